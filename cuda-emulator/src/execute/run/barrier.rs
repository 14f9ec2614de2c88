// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the threads that arrive at the barriers of a block.

use crate::code::{CONSTANT, Instr, LANES, lanes_of};
use crate::execute::state::{BARRIERS, Block, Machine};

/// The work of a barrier instruction besides counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// bar.red.popc: the number of threads whose predicate holds.
    CountTrue,
    /// bar.red.and
    AllTrue,
    /// bar.red.or
    AnyTrue,
}

/// The number of the barrier, if the instruction is a `bar.sync` of all threads of the block.
pub(super) fn whole_block(machine: &Machine<'_>, instr: &Instr) -> Option<usize> {
    let plain = instr.aux == BarrierKind::Sync as u32 && instr.ops[1] & CONSTANT != 0;
    // SAFETY: operand 1 is a u32 (`barrier`), and a constant.
    let name = unsafe { plain.then(|| *machine.source::<u32>(instr.ops[1]))? } as usize;
    (name < BARRIERS).then_some(name)
}

impl Block {
    /// All living lanes of a warp, whose `together` is set, wait at barrier `name`.
    pub(super) fn arrive_together(&mut self, name: usize, warp: usize, code: &[Instr]) {
        let alive = self.warps[warp].alive;
        let barrier = &mut self.barriers[name];
        barrier.expected = 0;
        barrier.arrived += alive.count_ones();
        barrier.calls += 1;
        barrier.waiting.push((warp, alive));
        self.barrier_waiters += 1;
        self.warps[warp].at_barrier |= alive;
        self.check_barrier(name, code);
    }

    /// Lanes of a warp arrive at barrier `name`, which expects `count` threads; 0 means all live threads.
    pub(in crate::execute) fn arrive(
        &mut self,
        name: usize,
        warp: usize,
        lanes: u32,
        count: u32,
        waits: bool,
    ) {
        let barrier = &mut self.barriers[name];
        barrier.expected = count;
        barrier.arrived += lanes.count_ones();
        self.barrier_waiters += 1;
        barrier.calls += 1;
        let already = barrier.waiting.iter().filter(|(other, _)| *other == warp);
        let here = already.fold(lanes, |bits, (_, mask)| bits | mask);
        if waits {
            barrier.waiting.push((warp, lanes));
            self.warps[warp].at_barrier |= lanes;
        }
        let alive = self.warps[warp].alive;
        if count > 0 && here == alive {
            // A count is in whole warps: lanes that do not live count as arrived with the last one that does.
            barrier.arrived += LANES as u32 - alive.count_ones();
        }
    }

    /// Completes the barriers at which enough threads have arrived.
    pub(super) fn check_barriers(&mut self, code: &[Instr]) {
        for name in 0..self.barriers.len() {
            self.check_barrier(name, code);
        }
    }

    /// Completes barrier `name` if enough threads have arrived.
    pub(in crate::execute) fn check_barrier(&mut self, name: usize, code: &[Instr]) {
        let barrier = &self.barriers[name];
        let expected = if barrier.expected > 0 { barrier.expected } else { self.live };
        if barrier.arrived > 0 && barrier.arrived >= expected {
            self.complete(name, code);
        }
    }

    fn complete(&mut self, name: usize, code: &[Instr]) {
        self.synchronise();
        let mut barrier = std::mem::take(&mut self.barriers[name]);
        self.barrier_waiters = self.barrier_waiters.saturating_sub(barrier.calls);
        for (index, mask) in barrier.waiting.drain(..) {
            let warp = &mut self.warps[index];
            warp.at_barrier &= !mask;
            if let Some((pc, _)) = &mut warp.together {
                *pc += 1;
                continue;
            }
            // They came with one instruction.
            let pc = warp.lane_pc[mask.trailing_zeros() as usize % LANES];
            let instr = &code[pc as usize];
            for (lane, pc) in warp.lane_pc.iter_mut().enumerate() {
                *pc += mask >> lane & 1;
            }
            if instr.aux & 0xff < BarrierKind::CountTrue as u32 {
                continue;
            }
            for lane in lanes_of(mask) {
                let base = warp.lane_base[lane] as usize;
                let place = base + instr.ops[0] as usize;
                let kind = instr.aux & 0xff;
                if kind == BarrierKind::CountTrue as u32 {
                    warp.write_register(place, lane, barrier.votes);
                } else if kind == BarrierKind::AllTrue as u32 {
                    warp.write_predicate(place, lane, barrier.votes == barrier.voters);
                } else if kind == BarrierKind::AnyTrue as u32 {
                    warp.write_predicate(place, lane, barrier.votes > 0);
                }
            }
        }
        // Its list is used again.
        self.barriers[name].waiting = barrier.waiting;
    }
}
