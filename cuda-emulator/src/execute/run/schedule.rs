// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selects the lanes of a warp that run: among the lanes that are deepest in calls, those with the lowest pc. The
//! others wait until these catch up, so that diverged lanes reconverge automatically at the end of an `if` or loop.

use super::outcome::{Resume, Stop};
use crate::code::{FULL, GUARD_NOT, Instr, LANES, NO_GUARD, frame, lanes_of};
use crate::execute::state::{Flow, Machine};
use crate::launch::FaultKind;

/// Backward jumps and calls until a warp makes room for the next one.
pub(super) const TURN: u32 = 256;

/// Backward jumps that reading volatile memory and atomics count as.
pub(crate) const POLL_COST: u32 = 7;

impl Machine<'_> {
    /// Runs warp `current` until it stops.
    pub(super) fn run_warp(&mut self) -> Stop {
        self.budget = TURN;
        let turns = std::mem::replace(&mut self.warp().polled, false);
        if std::mem::take(&mut self.warp().fresh) {
            self.begin();
        } else if let Some((pc, base)) = self.warp().together.take() {
            self.resume(pc, base);
        } else if !(if turns { self.choose_next() } else { self.choose() }) {
            return Stop::Blocked;
        }
        self.go(Resume::Arrive)
    }

    /// Runs the warp, whose lanes have been chosen, until it stops.
    pub(super) fn go(&mut self, mut resume: Resume) -> Stop {
        let code: &[Instr] = &self.grid.code.instrs;
        // Somewhere that translated code may begin.
        let mut arrived = true;
        loop {
            if std::mem::take(&mut arrived) {
                match std::mem::replace(&mut resume, Resume::Arrive) {
                    Resume::Interpret => {}
                    Resume::Arrive => {
                        resume = self.arrive();
                        arrived = true;
                        continue;
                    }
                    Resume::Stop(stop) => return stop,
                }
            }
            // SAFETY: lowering ends every function with an instruction that does not go on to the next, and jump
            // targets, return addresses and entry points are positions in the code.
            let instr = unsafe { code.get_unchecked(self.pc as usize) };
            self.mask = self.active;
            if instr.guard != NO_GUARD {
                // SAFETY: the guard is a predicate of this frame (lowering).
                let bits = unsafe { self.predicate(instr.guard & !GUARD_NOT) };
                self.mask &= if instr.guard & GUARD_NOT != 0 { !bits } else { bits };
                if self.mask == 0 {
                    self.pc += 1;
                    if self.pc >= self.merge_pc {
                        self.save();
                        self.choose();
                    }
                    arrived = true;
                    continue;
                }
            }
            // SAFETY: lowering pairs handlers with the operands that they document; the frame is this function's.
            match unsafe { (instr.run)(self, instr) } {
                Flow::Next => self.pc += 1,
                Flow::Jump => {
                    let target = instr.imm as u32;
                    let back = target <= self.pc;
                    arrived = true;
                    if self.mask == self.active {
                        self.pc = target;
                    } else {
                        self.split(target);
                        self.choose();
                    }
                    if back {
                        self.budget = self.budget.saturating_sub(1);
                        if self.budget == 0 {
                            self.save();
                            self.warp().last = self.active;
                            return Stop::Turn;
                        }
                    }
                }
                Flow::Switch => {
                    arrived = true;
                    if !self.choose() {
                        return Stop::Blocked;
                    }
                    if self.budget == 0 {
                        self.save();
                        self.warp().last = self.active;
                        return Stop::Turn;
                    }
                }
                Flow::Fault => return Stop::Fault,
            }
            if self.pc >= self.merge_pc {
                self.save();
                self.choose();
                arrived = true;
            }
        }
    }

    /// Sets all lanes to the kernel's first instruction.
    fn begin(&mut self) {
        let entry = self.grid.entry.function;
        self.resume(self.grid.code.functions[entry].entry_pc, 0);
    }

    /// Continues at a position with all lanes, which have all arrived.
    pub(super) fn resume(&mut self, pc: u32, base: u32) {
        self.force = false;
        self.active = self.warp().alive;
        self.mask = self.active;
        self.pc = pc;
        self.merge_pc = u32::MAX;
        self.set_base(base);
    }

    /// The current instruction reads what others may be about to write: its turn becomes shorter, and others follow.
    #[inline(always)]
    pub(in crate::execute) fn polls(&mut self) {
        self.budget = self.budget.saturating_sub(POLL_COST).max(1);
        self.warp().polled = true;
    }

    /// Writes down where the active lanes are.
    pub(super) fn save(&mut self) {
        let (active, pc, base) = (self.active, self.pc, self.base);
        let warp = self.warp();
        for lane in 0..LANES {
            if active & (1 << lane) != 0 {
                warp.lane_pc[lane] = pc;
                warp.lane_base[lane] = base;
            }
        }
    }

    /// Writes down that the lanes in `mask` go on at `target` and the other active ones at the next instruction.
    pub(in crate::execute) fn split(&mut self, target: u32) {
        let (mask, next) = (self.mask, self.pc + 1);
        self.save();
        let active = self.active;
        let warp = self.warp();
        for (lane, pc) in warp.lane_pc.iter_mut().enumerate() {
            let new = if mask & (1 << lane) != 0 { target } else { next };
            *pc = if active & (1 << lane) != 0 { new } else { *pc };
        }
    }

    /// Selects the lanes that run. Returns false when no lane can. `lane_pc` must be right for all lanes.
    pub(super) fn choose(&mut self) -> bool {
        self.force = false;
        let warp = self.warp();
        let mut ready = warp.alive & !warp.at_barrier & !warp.at_sync;
        if ready == 0 {
            ready = warp.alive & !warp.at_barrier;
            if ready == 0 {
                self.active = 0;
                return false;
            }
            // Lanes in the masks of the waiting ones have exited, or wait at a barrier or another such instruction.
            self.force = true;
        }
        let warp = self.warp();
        let first = ready.trailing_zeros() as usize % LANES;
        let (pc, base) = (warp.lane_pc[first], warp.lane_base[first]);
        let differences = (0..LANES).fold(0, |bits, lane| {
            let other = (warp.lane_pc[lane] ^ pc) | (warp.lane_base[lane] ^ base);
            bits | if ready & (1 << lane) != 0 { other } else { 0 }
        });
        if differences == 0 && ready == warp.alive {
            // All continue together, and no lane waits elsewhere.
            self.active = ready;
            self.mask = ready;
            self.pc = pc;
            self.merge_pc = u32::MAX;
            self.set_base(base);
            return true;
        }
        let base = lanes_of(ready).map(|lane| warp.lane_base[lane]).max().unwrap_or(0);
        let same = lanes_of(ready).filter(|lane| warp.lane_base[*lane] == base);
        let pc = same.map(|lane| warp.lane_pc[lane]).min().unwrap_or(0);
        self.go_on(base, pc, true);
        true
    }

    /// As [`Self::choose`], but lets another group go on than would be its turn: it may be what that one polls for.
    fn choose_next(&mut self) -> bool {
        let warp = self.warp();
        let last = warp.last;
        let ready = warp.alive & !warp.at_barrier & !warp.at_sync;
        if ready == 0 {
            return self.choose();
        }
        // Any group but the one that ran last; among those, each lane in its turn.
        let others = if ready & !last != 0 { ready & !last } else { ready };
        let later = others & u32::MAX.checked_shl(warp.favoured + 1).unwrap_or(0);
        let lane = if later != 0 { later } else { others }.trailing_zeros();
        warp.favoured = lane;
        let (base, pc) = (warp.lane_base[lane as usize], warp.lane_pc[lane as usize]);
        self.force = false;
        self.go_on(base, pc, false);
        true
    }

    /// Activates all lanes that are at `pc` in the frame at `base`.
    pub(super) fn go_on(&mut self, base: u32, pc: u32, merge: bool) {
        let warp = self.warp();
        let candidates = warp.alive & !warp.at_barrier;
        let mut active = 0;
        let mut merge_pc = u32::MAX;
        for lane in lanes_of(candidates) {
            if warp.lane_base[lane] == base {
                let lane_pc = warp.lane_pc[lane];
                if lane_pc == pc {
                    active |= 1 << lane;
                } else if lane_pc > pc {
                    merge_pc = merge_pc.min(lane_pc);
                }
            }
        }
        warp.at_sync &= !active;
        self.active = active;
        self.mask = active;
        self.pc = pc;
        self.merge_pc = if merge { merge_pc } else { u32::MAX };
        self.set_base(base);
    }

    /// Moves to the frame at `base`, which lies inside the registers.
    pub(in crate::execute) fn set_base(&mut self, base: u32) {
        let registers = &mut self.warp().registers;
        debug_assert!(base as usize + frame::HEADER as usize <= registers.len() * 64);
        let start = registers.as_mut_ptr().cast::<u8>();
        self.base = base;
        // SAFETY: frames lie inside the registers: `call` makes room first.
        self.frame = unsafe { start.add(base as usize) };
    }

    /// Ends the lanes in `mask`.
    pub(in crate::execute) fn end_lanes(&mut self) -> Flow {
        let (mask, next) = (self.mask, self.pc + 1);
        if mask != self.active {
            self.split(next);
        }
        let warp = self.warp();
        warp.alive &= !mask;
        self.block.live -= mask.count_ones();
        if let Some(cluster) = &self.block.cluster {
            cluster.leave(mask.count_ones());
        }
        if self.block.barrier_waiters > 0 {
            self.block.check_barriers(&self.grid.code.instrs);
        }
        Flow::Switch
    }

    /// For a warp-synchronous instruction with the member mask `members`: returns `None` when all live members have
    /// arrived, otherwise the handler's result.
    #[inline(always)]
    pub(in crate::execute) fn gather(&mut self, members: u32) -> Option<Flow> {
        if self.mask == FULL || members & !self.mask == 0 || std::mem::take(&mut self.force) {
            return None;
        }
        self.gather_slowly(members)
    }

    #[cold]
    fn gather_slowly(&mut self, members: u32) -> Option<Flow> {
        let (mask, pc, base) = (self.mask, self.pc, self.base);
        let warp = self.warp();
        let missing = members & warp.alive & !mask;
        if missing == 0 {
            return None;
        }
        let here = lanes_of(warp.at_sync & !warp.at_barrier)
            .filter(|lane| warp.lane_pc[*lane] == pc && warp.lane_base[*lane] == base)
            .fold(0, |bits, lane| bits | 1 << lane);
        self.split(pc);
        self.warp().at_sync |= mask;
        if missing & !here == 0 {
            self.go_on(base, pc, true);
            self.force = true;
            return Some(self.rerun());
        }
        Some(Flow::Switch)
    }

    /// Returns the instructions of the same kind as `instr` at which lanes of `members` wait for others, each with the frame
    /// and these lanes.
    pub(in crate::execute) fn waiting_at(&mut self, instr: &Instr, members: u32) -> Vec<((Instr, u32), u32)> {
        let code = &self.grid.code.instrs;
        let warp = &self.block.warps[self.current];
        let mut found: Vec<((u32, u32), u32)> = Vec::new();
        for lane in lanes_of(members & warp.alive & warp.at_sync & !warp.at_barrier) {
            let place = (warp.lane_pc[lane], warp.lane_base[lane]);
            match found.iter_mut().find(|(other, _)| *other == place) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => found.push((place, 1 << lane)),
            }
        }
        let with_code = found.into_iter().map(|((pc, base), lanes)| ((code[pc as usize], base), lanes));
        with_code
            .filter(|((other, _), _)| std::ptr::fn_addr_eq(other.run, instr.run) && other.aux == instr.aux)
            .collect()
    }

    /// Ends the wait of the lanes in `others`, for which the current instruction has executed theirs.
    pub(in crate::execute) fn go_on_apart(&mut self, others: u32) -> Flow {
        self.split(self.pc + 1);
        let warp = self.warp();
        warp.at_sync &= !others;
        lanes_of(others).for_each(|lane| warp.lane_pc[lane] += 1);
        Flow::Switch
    }

    /// Executes the instruction at `pc` again, for the lanes that are active now.
    fn rerun(&mut self) -> Flow {
        let instr = self.grid.code.instrs[self.pc as usize];
        // SAFETY: the instruction is one of the running function's, so its operands fulfil the contract of `Handler`;
        // all active lanes passed the guard before.
        unsafe { (instr.run)(self, &instr) }
    }

    /// A fault of the whole block rather than of an instruction's lane.
    pub(super) fn deadlock(&mut self) -> Stop {
        let stuck = (0..self.block.warps.len()).find(|index| self.block.warps[*index].alive != 0);
        self.current = stuck.unwrap_or(0);
        let lane = self.warp().alive.trailing_zeros() as usize % LANES;
        let warp = self.warp();
        let pc = warp.together.map_or(warp.lane_pc[lane], |(pc, _)| pc);
        let instr = self.grid.code.instrs[pc as usize];
        let what = "all threads of the block that are left wait at barriers that can never complete";
        self.fail(&instr, lane, FaultKind::LaunchFailed, 0, what);
        Stop::Fault
    }
}
