// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ld and st.
//!
//! Emulated memory is never accessed by a Rust reference, only through raw pointers that were checked against the
//! valid ranges. Kernels may race on it; the values that they read are then undefined, as on the device.

use std::sync::atomic::{Ordering, fence};

use super::access::{Access, aux};
use super::pattern::{HALF, Pattern};
use super::vector;
use crate::code::{FULL, Handler, Instr, LANES, lanes_of};
use crate::execute::lanes::handler;
use crate::execute::state::{Flow, Machine};

handler! {
    /// `ops[0..n] = operation([ops[4] + imm])`: loads `n` elements of `S` (as `aux` says), widened to the registers `D`.
    load<S, D> (Fn(S) -> D) load_body
}
handler! {
    /// `[ops[4] + imm] = operation(ops[0..n])`: stores `n` elements, narrowed from the registers `S` to `D`.
    store<S, D> (Fn(S) -> D) store_body
}
handler! {
    /// `ops[0..n] = operation(parameter)`: loads from the parameter buffer at `imm`, the same for all lanes.
    load_param<S, D> (Fn(S) -> D) load_param_body
}
handler! {
    /// `ops[0..n]` from the frame's own local memory at the constant offset `imm`, the same for all lanes.
    load_frame<S, D> (Fn(S) -> D) load_frame_body
}
handler! {
    /// The opposite of [`load_frame`].
    store_frame<S, D> (Fn(S) -> D) store_frame_body
}

/// Returns whether a lane's access is one of the host's, without [`vector`]: of one element of up to 8 bytes.
#[inline(always)]
fn is_single<T>(count: usize) -> bool {
    count == 1 && size_of::<T>() <= size_of::<u64>()
}

#[inline(always)]
unsafe fn load_body<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    let count = aux::count(instr.aux);
    let single = is_single::<S>(count);
    let mut at = [0; LANES];
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`); `resolve` has checked the addresses for `count` elements.
    unsafe {
        if single && load_pattern::<S, D, Op>(machine, instr) {
            if instr.aux & (aux::ACQUIRE | aux::POLLS) != 0 {
                order(machine, instr);
            }
            return Flow::Next;
        }
        let contiguous = match machine.resolve(instr, &mut at, (size_of::<S>() * count) as u64, Access::Read)
        {
            Ok(contiguous) => contiguous,
            Err(flow) => return flow,
        };
        if single && contiguous {
            let from = at[0] as *const S;
            let target = machine.target::<[D; LANES]>(instr.ops[0]);
            *target = std::array::from_fn(|lane| operation(from.add(lane).read_unaligned()));
        } else if single && machine.mask == FULL {
            let target = machine.target::<D>(instr.ops[0]);
            for (lane, place) in at.iter().enumerate() {
                *target.add(lane) = operation((*place as *const S).read_unaligned());
            }
        } else {
            for lane in lanes_of(machine.mask) {
                vector::read(at[lane] as *const S, count, |element, value| {
                    *machine.target::<D>(instr.ops[element]).add(lane) = operation(value);
                });
            }
        }
    }
    if instr.aux & (aux::ACQUIRE | aux::POLLS) != 0 {
        order(machine, instr);
    }
    Flow::Next
}

/// Loads half a warp from a checked host address.
#[inline(always)]
unsafe fn load_half<S: Copy, D: Copy>(
    target: *mut D,
    from: *const S,
    same: bool,
    operation: impl Fn(S) -> D,
) {
    // SAFETY: the caller has checked `from` for one element or for all, and `target` has room for half a register.
    unsafe {
        let target = target.cast::<[D; HALF]>();
        *target = if same {
            [operation(from.read_unaligned()); HALF]
        } else {
            std::array::from_fn(|lane| operation(from.add(lane).read_unaligned()))
        };
    }
}

/// The load, if its addresses have a pattern; false when nothing was done.
#[inline(always)]
unsafe fn load_pattern<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> bool {
    let operation = crate::execute::lanes::instance::<Op>();
    let bytes = size_of::<S>();
    // SAFETY: contract of `Handler`; offsets and addresses come checked.
    unsafe {
        if let Some(offsets) = machine.shared_offsets(instr, bytes as u32) {
            let shared = machine.block.shared.as_ptr().cast::<u8>();
            let target = machine.target::<D>(instr.ops[0]);
            for half in 0..2 {
                let start = half * HALF;
                let from = shared.add(offsets.of[start] as usize).cast::<S>();
                match offsets.patterns[half] {
                    Pattern::Scattered => {
                        for (lane, offset) in offsets.of.iter().enumerate().skip(start).take(HALF) {
                            let from = shared.add(*offset as usize).cast::<S>();
                            *target.add(lane) = operation(from.read_unaligned());
                        }
                    }
                    pattern => load_half(target.add(start), from, pattern == Pattern::Same, operation),
                }
            }
            return true;
        }
        let Some(halves) = machine.global_halves(instr, bytes as u64) else { return false };
        let target = machine.target::<D>(instr.ops[0]);
        for half in 0..2 {
            let same = halves.patterns[half] == Pattern::Same;
            load_half(target.add(half * HALF), halves.at[half] as *const S, same, operation);
        }
        true
    }
}

/// The store, if its addresses have a pattern; false when nothing was done.
#[inline(always)]
unsafe fn store_pattern<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> bool {
    let operation = crate::execute::lanes::instance::<Op>();
    let bytes = size_of::<D>();
    // SAFETY: the operands have the widths of `S` and `D` (contract of `Handler`); the pattern's address is that of
    // memory for the lanes' elements, which was checked.
    unsafe {
        let values = machine.source::<S>(instr.ops[0]);
        let store_half = |to: *mut D, start: usize| {
            for lane in 0..HALF {
                to.add(lane).write_unaligned(operation(*values.add(start + lane)));
            }
        };
        if let Some(offsets) = machine.shared_offsets(instr, bytes as u32) {
            let shared = machine.block.shared.as_mut_ptr().cast::<u8>();
            for half in 0..2 {
                let start = half * HALF;
                if offsets.patterns[half] == Pattern::Sequence {
                    store_half(shared.add(offsets.of[start] as usize).cast::<D>(), start);
                    continue;
                }
                for (lane, offset) in offsets.of.iter().enumerate().skip(start).take(HALF) {
                    let to = shared.add(*offset as usize).cast::<D>();
                    to.write_unaligned(operation(*values.add(lane)));
                }
            }
            return true;
        }
        let Some(halves) = machine.global_halves(instr, bytes as u64) else { return false };
        if halves.patterns != [Pattern::Sequence; 2] {
            return false;
        }
        store_half(halves.at[0] as *mut D, 0);
        store_half(halves.at[1] as *mut D, HALF);
        true
    }
}

#[inline(always)]
unsafe fn store_body<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    let count = aux::count(instr.aux);
    let single = is_single::<D>(count);
    if instr.aux & aux::RELEASE != 0 {
        fence(Ordering::SeqCst);
    }
    let mut at = [0; LANES];
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`); `resolve` has checked the addresses for `count` elements.
    unsafe {
        if single && store_pattern::<S, D, Op>(machine, instr) {
            return Flow::Next;
        }
        let contiguous = match machine.resolve(instr, &mut at, (size_of::<D>() * count) as u64, Access::Write)
        {
            Ok(contiguous) => contiguous,
            Err(flow) => return flow,
        };
        if single && contiguous {
            let values = machine.lanes::<S>(instr.ops[0]);
            let to = at[0] as *mut D;
            for (lane, value) in values.into_iter().enumerate() {
                to.add(lane).write_unaligned(operation(value));
            }
        } else if single && machine.mask == FULL {
            let values = machine.source::<S>(instr.ops[0]);
            for (lane, place) in at.iter().enumerate() {
                (*place as *mut D).write_unaligned(operation(*values.add(lane)));
            }
        } else {
            for lane in lanes_of(machine.mask) {
                vector::write(at[lane] as *mut D, count, |element| {
                    operation(*machine.source::<S>(instr.ops[element]).add(lane))
                });
            }
        }
    }
    Flow::Next
}

#[cold]
fn order(machine: &mut Machine<'_>, instr: &Instr) {
    if instr.aux & aux::ACQUIRE != 0 {
        fence(Ordering::SeqCst);
    }
    if instr.aux & aux::POLLS != 0 {
        machine.polls();
    }
}

#[inline(always)]
unsafe fn load_param_body<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    for element in 0..aux::count(instr.aux) {
        let offset = instr.imm as usize + element * size_of::<S>();
        let bytes = &machine.grid.params[offset..offset + size_of::<S>()];
        // SAFETY: the slice has the bytes of an `S`, for which every pattern is valid; the target is as wide as `D`.
        unsafe {
            let value = operation(bytes.as_ptr().cast::<S>().read_unaligned());
            if machine.mask == FULL {
                *machine.target::<[D; LANES]>(instr.ops[element]) = [value; LANES];
            } else {
                machine.set_lanes(instr.ops[element], &[value; LANES]);
            }
        }
    }
    Flow::Next
}

#[inline(always)]
unsafe fn load_frame_body<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    for lane in lanes_of(machine.mask) {
        // SAFETY: lowering has checked that `imm` and the elements lie within the function's local memory.
        unsafe {
            let from = machine.local_start(lane).add(instr.imm as usize).cast::<S>();
            for element in 0..aux::count(instr.aux) {
                let value = operation(from.add(element).read_unaligned());
                *machine.target::<D>(instr.ops[element]).add(lane) = value;
            }
        }
    }
    Flow::Next
}

#[inline(always)]
unsafe fn store_frame_body<S: Copy, D: Copy, Op: Fn(S) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    for lane in lanes_of(machine.mask) {
        // SAFETY: the operands have the widths of `S` and `D` (contract of `Handler`); the element lies in the
        // frame's local memory (lowering).
        unsafe {
            let to = machine.local_start(lane).add(instr.imm as usize).cast::<D>();
            for element in 0..aux::count(instr.aux) {
                let value = *machine.source::<S>(instr.ops[element]).add(lane);
                to.add(element).write_unaligned(operation(value));
            }
        }
    }
    Flow::Next
}

/// The handler that loads an element of `bytes` bytes, sign-extended if `signed`, to a register of `register` bytes.
pub(crate) fn select_load(kind: Transfer, bytes: u32, signed: bool, register: u32) -> Option<Handler> {
    fn loads<S: Copy + 'static, D: Copy + 'static>(
        kind: Transfer,
        widen: impl Fn(S) -> D + Copy + 'static,
    ) -> Handler {
        match kind {
            Transfer::Memory => load(widen),
            Transfer::Param => load_param(widen),
            Transfer::Frame => load_frame(widen),
        }
    }
    Some(match (bytes, signed && bytes < register, register) {
        (1, false, 2) => loads(kind, |value: u8| value as u16),
        (1, true, 2) => loads(kind, |value: i8| value as u16),
        (1, false, 4) => loads(kind, |value: u8| value as u32),
        (1, true, 4) => loads(kind, |value: i8| value as u32),
        (1, false, 8) => loads(kind, |value: u8| value as u64),
        (1, true, 8) => loads(kind, |value: i8| value as u64),
        (2, false, 2) => loads(kind, |value: u16| value),
        (2, false, 4) => loads(kind, |value: u16| value as u32),
        (2, true, 4) => loads(kind, |value: i16| value as u32),
        (2, false, 8) => loads(kind, |value: u16| value as u64),
        (2, true, 8) => loads(kind, |value: i16| value as u64),
        (4, false, 4) => loads(kind, |value: u32| value),
        (4, false, 8) => loads(kind, |value: u32| value as u64),
        (4, true, 8) => loads(kind, |value: i32| value as u64),
        (8, false, 8) => loads(kind, |value: u64| value),
        (16, false, 16) => loads(kind, |value: u128| value),
        _ => return None,
    })
}

/// The handler that stores the low `bytes` bytes of a register of `register` bytes.
pub(crate) fn select_store(kind: Transfer, bytes: u32, register: u32) -> Option<Handler> {
    fn stores<S: Copy + 'static, D: Copy + 'static>(
        kind: Transfer,
        narrow: impl Fn(S) -> D + Copy + 'static,
    ) -> Handler {
        if kind == Transfer::Frame { store_frame(narrow) } else { store(narrow) }
    }
    Some(match (bytes, register) {
        (1, 2) => stores(kind, |value: u16| value as u8),
        (1, 4) => stores(kind, |value: u32| value as u8),
        (1, 8) => stores(kind, |value: u64| value as u8),
        (2, 2) => stores(kind, |value: u16| value),
        (2, 4) => stores(kind, |value: u32| value as u16),
        (2, 8) => stores(kind, |value: u64| value as u16),
        (4, 4) => stores(kind, |value: u32| value),
        (4, 8) => stores(kind, |value: u64| value as u32),
        (8, 8) => stores(kind, |value: u64| value),
        (16, 16) => stores(kind, |value: u128| value),
        _ => return None,
    })
}

/// The addressing of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// An address in a register.
    Memory,
    /// A constant offset in the kernel's parameters.
    Param,
    /// A constant offset in the function's local memory: parameters of calls, `.local` variables.
    Frame,
}
