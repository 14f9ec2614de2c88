// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments and results of the functions that the driver provides to kernels.

use super::state::Machine;
use crate::code::Call;

/// Returns argument `index` of a call, zero-extended.
pub(super) fn argument(machine: &mut Machine<'_>, call: &Call, lane: usize, index: usize) -> u64 {
    u64::from_le_bytes(argument_bytes(machine, call, lane, index))
}

/// Returns the first bytes of argument `index` of a call, with zeros if it is shorter.
pub(super) fn argument_bytes<const N: usize>(
    machine: &mut Machine<'_>,
    call: &Call,
    lane: usize,
    index: usize,
) -> [u8; N] {
    let mut bytes = [0; N];
    let Some(piece) = call.args.get(index) else { return bytes };
    let count = (piece.bytes as usize).min(N);
    // SAFETY: the piece lies in the local memory of the running function (lowering), and has at least `count` bytes.
    unsafe {
        let start = machine.local_start(lane).add(piece.offset as usize);
        std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), count);
    }
    bytes
}

/// Writes the return value.
pub(super) fn answer(machine: &mut Machine<'_>, call: &Call, lane: usize, value: u64) {
    let Some(piece) = call.returns.first() else { return };
    let count = piece.bytes.min(8) as usize;
    // SAFETY: the piece lies in the local memory of the running function (lowering), and has at least `count` bytes.
    unsafe {
        let start = machine.local_start(lane).add(piece.offset as usize);
        std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), start, count);
    }
}
