// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block barriers: bar.sync, bar.arrive, bar.red.

use super::run::BarrierKind;
use super::state::{BARRIERS, Flow, Machine};
use crate::code::{Handler, Instr, LANES};
use crate::launch::FaultKind;

/// `ops[0]`: result of bar.red (u32, or predicate), `ops[1]`: barrier (u32), `ops[2]`: thread count (u32; `aux >> 8`
/// is not 0 if it is present), `ops[3]`: the predicate to reduce. `aux & 0xff` is the [`BarrierKind`].
pub(crate) fn barrier() -> Handler {
    arrive
}

unsafe fn arrive(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`).
    let (names, counts, votes) = unsafe {
        let votes = if instr.aux & 0xff >= BarrierKind::CountTrue as u32 {
            machine.predicate(instr.ops[3])
        } else {
            0
        };
        (machine.lanes::<u32>(instr.ops[1]), machine.lanes::<u32>(instr.ops[2]), votes)
    };
    let has_count = instr.aux >> 8 != 0;
    let waits = instr.aux & 0xff != BarrierKind::Arrive as u32;
    let mask = machine.mask;
    // Those that wait stay at this instruction until the barrier completes.
    let target = if waits { machine.pc } else { machine.pc + 1 };
    machine.split(target);
    let current = machine.current;
    let mut left = mask;
    while left != 0 {
        let first = left.trailing_zeros() as usize % LANES;
        let name = names[first];
        let count = if has_count { counts[first] } else { 0 };
        let group = super::lanes::pack(names.map(|other| other == name)) & left;
        left &= !group;
        if name as usize >= BARRIERS || (has_count && (count == 0 || count % 32 != 0)) {
            let what = format!("barrier {name} with {count} threads is not possible");
            return machine.fail(instr, first, FaultKind::IllegalInstruction, 0, &what);
        }
        let block = &mut machine.block;
        block.arrive(name as usize, current, group, count, waits);
        let barrier = &mut block.barriers[name as usize];
        barrier.votes += (votes & group).count_ones();
        barrier.voters += group.count_ones();
        machine.block.check_barrier(name as usize, &machine.grid.code.instrs);
    }
    Flow::Switch
}
