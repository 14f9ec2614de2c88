// SPDX-License-Identifier: Apache-2.0 OR MIT
//! mov: registers, parts of registers, and addresses of symbols.

use crate::code::{Handler, Instr, LANES, frame, window};
use crate::execute::lanes::{logic2, map1, map2};
use crate::execute::state::{Flow, Machine};

/// Copies a register of `bytes` bytes.
pub(crate) fn copy(bytes: u32) -> Option<Handler> {
    Some(match bytes {
        2 => map1(|a: u16| a),
        4 => map1(|a: u32| a),
        8 => map1(|a: u64| a),
        16 => map1(|a: u128| a),
        _ => return None,
    })
}

/// Copies the predicate `ops[1]`; `ops[2]` is the same.
pub(crate) fn copy_predicate() -> Handler {
    logic2(|a, _| a)
}

/// Part `index` of `bytes` bytes of a register of `from` bytes.
pub(crate) fn extract(from: u32, bytes: u32, index: usize) -> Option<Handler> {
    Some(match (from, bytes, index) {
        (8, 4, 0) => map1(|a: u64| a as u32),
        (8, 4, 1) => map1(|a: u64| (a >> 32) as u32),
        (8, 2, 0) => map1(|a: u64| a as u16),
        (8, 2, 1) => map1(|a: u64| (a >> 16) as u16),
        (8, 2, 2) => map1(|a: u64| (a >> 32) as u16),
        (8, 2, 3) => map1(|a: u64| (a >> 48) as u16),
        (4, 2, 0) => map1(|a: u32| a as u16),
        (4, 2, 1) => map1(|a: u32| (a >> 16) as u16),
        (4, 1, 0) => map1(|a: u32| a as u16 & 0xff),
        (4, 1, 1) => map1(|a: u32| (a >> 8) as u16 & 0xff),
        (4, 1, 2) => map1(|a: u32| (a >> 16) as u16 & 0xff),
        (4, 1, 3) => map1(|a: u32| (a >> 24) as u16),
        (2, 1, 0) => map1(|a: u16| a & 0xff),
        (2, 1, 1) => map1(|a: u16| a >> 8),
        (16, 8, 0) => map1(|a: u128| a as u64),
        (16, 8, 1) => map1(|a: u128| (a >> 64) as u64),
        _ => return None,
    })
}

/// Joins two values of `bytes` bytes, `ops[1]` below `ops[2]`; bytes lie in registers of two.
pub(crate) fn join(bytes: u32) -> Option<Handler> {
    Some(match bytes {
        1 => map2(|a: u16, b: u16| a & 0xff | b << 8),
        8 => map2(|a: u64, b: u64| u128::from(a) | u128::from(b) << 64),
        2 => map2(|a: u16, b: u16| u32::from(a) | u32::from(b) << 16),
        4 => map2(|a: u32, b: u32| u64::from(a) | u64::from(b) << 32),
        _ => return None,
    })
}

/// Adds the offset `imm` to the u64 `ops[1]`: cvta, from a space to generic addresses or, the offset negated, back.
/// `ops[2]` and `ops[3]` are the same.
pub(crate) fn shift_window() -> Handler {
    crate::execute::lanes::map3_imm(|a: u64, _: u64, _: u64, offset: u64| a.wrapping_add(offset))
}

/// isspacep for the windows: the predicate `ops[0]` holds if the address in `ops[1]` (u64) lies in the window at `imm`.
pub(crate) fn in_window() -> Handler {
    unsafe fn test(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let addresses = machine.lanes::<u64>(instr.ops[1]);
            let bits =
                crate::execute::lanes::pack(addresses.map(|a| a.wrapping_sub(instr.imm) < window::BYTES));
            machine.set_predicate(instr.ops[0], bits);
        }
        Flow::Next
    }
    test
}

/// isspacep.global: true for addresses outside of all windows.
pub(crate) fn in_no_window() -> Handler {
    unsafe fn test(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let windows = [window::PARAM, window::LOCAL, window::SHARED];
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe {
            let addresses = machine.lanes::<u64>(instr.ops[1]);
            let outside = |a: u64| windows.iter().all(|start| a.wrapping_sub(*start) >= window::BYTES);
            machine.set_predicate(instr.ops[0], crate::execute::lanes::pack(addresses.map(outside)));
        }
        Flow::Next
    }
    test
}

/// The base of a symbol's address; `aux` of [`address_of`] is its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// A variable with device memory.
    Global,
    /// A shared variable: an offset in shared memory.
    Shared,
    /// The local memory of the running function.
    Frame,
}

/// `ops[0] = address of the symbol + imm`, in a register of `bytes` bytes.
pub(crate) fn address_of(symbol: Symbol, bytes: u32) -> Option<Handler> {
    unsafe fn write(machine: &mut Machine<'_>, instr: &Instr, wide: bool, values: [u64; LANES]) {
        // SAFETY: the destination has the width that `wide` says.
        unsafe {
            if wide {
                machine.set_lanes::<u64>(instr.ops[0], &values);
            } else {
                machine.set_lanes::<u32>(instr.ops[0], &values.map(|value| value as u32));
            }
        }
    }
    unsafe fn global<const WIDE: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let base = machine.grid.launch.global_addresses.get(instr.aux as usize).copied().unwrap_or(0);
        // SAFETY: contract of `Handler`.
        unsafe { write(machine, instr, WIDE, [base.wrapping_add(instr.imm); LANES]) };
        Flow::Next
    }
    unsafe fn shared<const WIDE: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let offsets = &machine.grid.entry.shared_offsets;
        let base = offsets.get(instr.aux as usize).copied().unwrap_or(u32::MAX);
        // SAFETY: contract of `Handler`.
        unsafe { write(machine, instr, WIDE, [u64::from(base).wrapping_add(instr.imm); LANES]) };
        Flow::Next
    }
    unsafe fn local<const WIDE: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the frame header has 32 lanes of LOCAL_BASE; else the contract of `Handler`.
        unsafe {
            let bases = machine.lanes::<u32>(frame::LOCAL_BASE);
            write(machine, instr, WIDE, bases.map(|base| u64::from(base).wrapping_add(instr.imm)));
        }
        Flow::Next
    }
    Some(match (symbol, bytes) {
        (Symbol::Global, 8) => global::<true>,
        (Symbol::Global, 4) => global::<false>,
        (Symbol::Shared, 8) => shared::<true>,
        (Symbol::Shared, 4) => shared::<false>,
        (Symbol::Frame, 8) => local::<true>,
        (Symbol::Frame, 4) => local::<false>,
        _ => return None,
    })
}
