// SPDX-License-Identifier: Apache-2.0 OR MIT
//! malloc and free of kernels.

use super::argument::{answer, argument};
use super::state::{Flow, Machine};
use crate::code::{Instr, lanes_of};
use crate::launch::FaultKind;

/// `void *malloc(size_t)`
pub(super) unsafe fn allocate(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let call = &machine.grid.code.calls[instr.imm as usize];
    for lane in lanes_of(machine.mask) {
        let bytes = argument(machine, call, lane, 0);
        let base = machine.grid.launch.memory.heap_allocate(bytes).unwrap_or(0);
        answer(machine, call, lane, base);
    }
    Flow::Next
}

/// `void free(void *)`
pub(super) unsafe fn release(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let call = &machine.grid.code.calls[instr.imm as usize];
    for lane in lanes_of(machine.mask) {
        let base = argument(machine, call, lane, 0);
        if base != 0 && !machine.grid.launch.memory.heap_free(base) {
            let what = format!("free of {base:#x}, which malloc did not return");
            return machine.fail(instr, lane, FaultKind::IllegalAddress, base, &what);
        }
    }
    Flow::Next
}
