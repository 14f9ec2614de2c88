// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interpreter's side of translated code (`jit`): when it is entered, and what follows.

use super::barrier::whole_block;
use super::outcome::{Resume, Stop};
use crate::code::lanes_of;
use crate::execute::state::{AtBarrier, Flow, Machine, NativeState, shared_spare};
use crate::native::compiled::Variant;
use crate::native::{ExitCode, Left, Mode, Place, Shape, View, called, place_at};

/// The number of a worker's arrivals between two reads of the counters that all workers share.
const SAMPLE: u32 = 16;

/// A worker's state for a launch; `None` when it is interpreted.
pub(super) fn native_state<'l>(machine: &Machine<'l>) -> Option<Box<NativeState<'l>>> {
    if machine.grid.code.native.mode() == Mode::Never || !machine.wide || machine.checks {
        return None;
    }
    let launch = machine.grid.launch;
    let native = &machine.grid.code.native;
    let shape = Shape::of(launch.block);
    let mut globals = Vec::new();
    if launch.global_addresses.len() < launch.program.globals.len() {
        globals = launch.global_addresses.to_vec();
        globals.resize(launch.program.globals.len(), 0);
    }
    let tables = [false, true].map(|partial| native.table(shape, partial));
    let view = View::new(launch.block, launch.grid);
    Some(Box::new(NativeState { shape, tables, arrivals: [0; 2], view, globals }))
}

impl Machine<'_> {
    /// Executes instruction `pc` by its handler for the lanes in `mask`. Returns the handler's result, and whether
    /// the same lanes as before are active.
    ///
    /// # Safety
    /// `pc` is an instruction of the running function, and the frame holds its operands.
    pub(crate) unsafe fn execute(&mut self, pc: u32, mask: u32) -> (Flow, bool) {
        let active = self.active;
        self.pc = pc;
        self.mask = mask;
        let instr = &self.grid.code.instrs[pc as usize];
        // SAFETY: lowering pairs handlers with the operands that they document.
        let flow = unsafe { (instr.run)(self, instr) };
        (flow, self.active == active)
    }

    /// Continues at `pc` in translated code, if there is any.
    #[inline(always)]
    pub(super) fn arrive(&mut self) -> Resume {
        let Some(state) = &mut self.native else { return Resume::Interpret };
        let active = self.active;
        let partial = active != self.block.warps[self.current].alive;
        let place = state.tables[usize::from(partial)].and_then(|table| place_at(table, self.pc));
        match place {
            Some(place) => self.enter(place),
            None => {
                self.unpark();
                let Some(state) = &mut self.native else { return Resume::Interpret };
                state.arrivals[usize::from(partial)] += 1;
                let always = self.grid.code.native.mode() == Mode::Always;
                if always || state.arrivals[usize::from(partial)] >= SAMPLE {
                    self.look_for_places(partial);
                    if always {
                        let state = self.native.as_ref();
                        let table = state.and_then(|state| state.tables[usize::from(partial)]);
                        if let Some(place) = table.and_then(|table| place_at(table, self.pc)) {
                            return self.enter(place);
                        }
                    }
                }
                Resume::Interpret
            }
        }
    }

    #[cold]
    fn look_for_places(&mut self, partial: bool) {
        let Some(state) = &mut self.native else { return };
        let code = self.grid.code;
        let count = std::mem::take(&mut state.arrivals[usize::from(partial)]);
        code.native.warm(code, self.pc, count, Variant { shape: state.shape, partial });
        state.tables[usize::from(partial)] = code.native.table(state.shape, partial);
    }

    /// Sets what stays the same in the view during a launch.
    pub(super) fn prepare_view(&mut self) {
        let machine: *mut Machine<'_> = self;
        if self.native.as_ref().is_none_or(|state| state.view.machine == machine.cast()) {
            return;
        }
        let Some(mut state) = self.native.take() else { return };
        let launch = self.grid.launch;
        let globals = if state.globals.is_empty() { launch.global_addresses } else { &state.globals };
        let view = &mut *state.view;
        view.machine = machine.cast();
        view.params = self.grid.params.as_ptr();
        view.ranges = self.ranges.as_ptr().cast();
        view.generation = launch.memory.generation_place();
        view.budget = &raw mut self.budget;
        view.globals = globals.as_ptr();
        view.shared_offsets = self.grid.entry.shared_offsets.as_ptr();
        view.shared_bytes = u64::from(self.grid.shared_bytes);
        view.shared_spare = shared_spare(self.grid.shared_bytes);
        self.native = Some(state);
    }

    fn enter(&mut self, place: &Place) -> Resume {
        self.prepare_view();
        let Some(state) = &mut self.native else { return Resume::Interpret };
        let warp = &mut self.block.warps[self.current];
        let mut resumes = false;
        if let Some(left) = warp.resume.take() {
            resumes = std::ptr::eq(left.place, place) && left.active == self.active && left.base == self.base;
            if resumes {
                state.view.scratch[..warp.barrier_words.len()].copy_from_slice(&warp.barrier_words);
            } else {
                // SAFETY: the warp stopped at `left.place` by the function whose frame begins at `left.base`, and
                // `barrier_words` are those of that exit.
                unsafe { (*left.place).unpark(warp.frame_at(left.base), left.active, &warp.barrier_words) };
            }
        }
        let view = &mut *state.view;
        view.frame = self.frame;
        view.polled = &raw mut warp.polled;
        view.shared = self.block.shared.as_mut_ptr().cast();
        view.thread = warp.tid.as_ptr().cast();
        view.active = self.active;
        view.merge_pc = self.merge_pc;
        view.block = self.block.index;
        let view: *mut View = view;
        // SAFETY: all fields are set, for the function that runs; `wide` is why there is a state. `view` lies in a box of its own,
        // and what else of the machine translated code reaches it reaches by the pointers in it.
        let left = unsafe { place.run(&mut *view, resumes) };
        // By reference: a copy would wait for the stores of its parts.
        let Some(left) = &left else { return Resume::Interpret };
        self.follow(place, left)
    }

    /// Returns the next step after translated code has been left.
    pub(super) fn follow(&mut self, place: &Place, left: &Left<'_>) -> Resume {
        self.pc = left.pc;
        match left.code {
            ExitCode::Interpret if left.parts.is_empty() => Resume::Interpret,
            ExitCode::Interpret => {
                self.save();
                for (pc, word) in left.parts {
                    let Some(state) = &self.native else { break };
                    let lanes = state.view.scratch[*word] as u32 & self.active;
                    let warp = &mut self.block.warps[self.current];
                    lanes_of(lanes).for_each(|lane| warp.lane_pc[lane] = *pc);
                }
                // The others are all further on.
                self.choose();
                Resume::Interpret
            }
            ExitCode::Turn => {
                self.save();
                self.warp().last = self.active;
                Resume::Stop(Stop::Turn)
            }
            ExitCode::Merge => self.merge(),
            ExitCode::Barrier => self.wait_at_barrier(place, left),
            ExitCode::Ended => {
                self.mask = self.active;
                self.end_lanes();
                self.active = 0;
                Resume::Stop(Stop::Blocked)
            }
            ExitCode::Handler => match left.result {
                called::FAULT => Resume::Stop(Stop::Fault),
                called::CHANGED if self.pc >= self.merge_pc => self.merge(),
                called::CHANGED => Resume::Arrive,
                _ => self.switch(),
            },
        }
    }

    /// Executes the barrier at `pc`. Scalars of translated code are kept for the code after the barrier.
    fn wait_at_barrier(&mut self, from: &Place, left: &Left<'_>) -> Resume {
        let (pc, active, base) = (self.pc, self.active, self.base);
        let partial = active != self.block.warps[self.current].alive;
        let Some(state) = &self.native else { return Resume::Interpret };
        let place = state.tables[usize::from(partial)].and_then(|table| place_at(table, pc + 1));
        if let Some(place) = place {
            let warp = &mut self.block.warps[self.current];
            warp.barrier_words.clear();
            warp.barrier_words.extend_from_slice(&state.view.scratch[..place.words()]);
            warp.resume = Some(AtBarrier { place, active, base });
        } else {
            // Another thread is just about to list the places of this function.
            // SAFETY: the view is still that of the function that has been left.
            unsafe { from.restore(left, &state.view) };
        }
        let code = &self.grid.code.instrs;
        if !partial
            && self.block.cluster.is_none()
            && let Some(name) = whole_block(self, &code[pc as usize])
        {
            self.warp().together = Some((pc, base));
            self.block.arrive_together(name, self.current, code);
            if self.warp().at_barrier != 0 {
                return Resume::Stop(Stop::Blocked);
            }
            if self.budget == 0 {
                self.warp().last = active;
                return Resume::Stop(Stop::Turn);
            }
            self.warp().together = None;
            self.resume(pc + 1, base);
            return Resume::Arrive;
        }
        // SAFETY: the frame is that of the function that has the barrier, whose operands it holds (`ExitCode::Barrier`).
        match unsafe { self.execute(pc, active) } {
            (Flow::Fault, _) => Resume::Stop(Stop::Fault),
            _ => self.switch(),
        }
    }

    /// Brings the registers that the running warp has left in scalars to its frame, for the interpreter.
    fn unpark(&mut self) {
        let warp = &mut self.block.warps[self.current];
        let Some(left) = warp.resume.take() else { return };
        // SAFETY: places live as long as the program; the frame at `base` is the one that was left.
        unsafe { (*left.place).unpark(warp.frame_at(left.base), left.active, &warp.barrier_words) };
    }

    fn merge(&mut self) -> Resume {
        self.save();
        self.choose();
        Resume::Arrive
    }

    /// Returns the next step after a handler that has chosen other lanes to continue.
    fn switch(&mut self) -> Resume {
        if !self.choose() {
            return Resume::Stop(Stop::Blocked);
        }
        if self.budget == 0 {
            self.save();
            self.warp().last = self.active;
            return Resume::Stop(Stop::Turn);
        }
        Resume::Arrive
    }
}
