// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that translated code calls.

use std::ffi::c_void;

use crate::code::LANES;
use crate::execute::{Flow, Machine};
use crate::native::called;

/// Executes instruction `pc` for the lanes in `mask` (not 0) by its handler.
///
/// # Safety
/// Called by translated code of the function that `machine` runs, whose frame holds the operands.
pub(super) unsafe extern "C" fn call_handler(machine: *mut c_void, pc: u32, mask: u32) -> u32 {
    // SAFETY: `View::machine` is the machine that entered translated code, which waits for its return; handlers fit their
    // instructions (lowering).
    unsafe {
        let machine = &mut *machine.cast::<Machine<'_>>();
        match machine.execute(pc, mask) {
            (Flow::Next, true) => called::NEXT,
            (Flow::Next, false) => called::CHANGED,
            (Flow::Fault, _) => called::FAULT,
            (Flow::Jump | Flow::Switch, _) => called::SWITCH,
        }
    }
}

/// Writes `base + stride * lane` to those of the first `count` lanes that are in `mask`.
///
/// # Safety
/// `target` is a register of 32-bit lanes, or its part from some lane on.
pub(super) unsafe extern "C" fn write_words(target: *mut u32, count: u32, base: u32, stride: u32, mask: u32) {
    for lane in 0..(count as usize).min(LANES) {
        if mask >> lane & 1 != 0 {
            // SAFETY: `target` is a register with at least `count` lanes by this function's contract.
            unsafe { *target.add(lane) = base.wrapping_add(stride.wrapping_mul(lane as u32)) };
        }
    }
}

/// As [`write_words`], of 64 bits.
///
/// # Safety
/// As there.
pub(super) unsafe extern "C" fn write_long_words(
    target: *mut u64,
    count: u32,
    base: u64,
    stride: u64,
    mask: u32,
) {
    for lane in 0..(count as usize).min(LANES) {
        if mask >> lane & 1 != 0 {
            // SAFETY: `target` is a register with at least `count` lanes by this function's contract.
            unsafe { *target.add(lane) = base.wrapping_add(stride.wrapping_mul(lane as u64)) };
        }
    }
}
