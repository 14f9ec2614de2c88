// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Matrices between memory and registers: `wmma.load`, `wmma.store`, `ldmatrix`, `stmatrix`; and `movmatrix`.

use super::data::access::{Access, aux};
use super::state::{Flow, Machine};
use crate::code::fragment::{Element, Fragment, Role};
use crate::code::{FULL, Handler, Instr, LANES, lanes_of};
use crate::launch::FaultKind;

/// In [`Instr::aux`]: the matrix lies column after column; else row after row.
pub(crate) const BY_COLUMN: u32 = 1 << 12;
/// In [`Instr::aux`]: transposed (`.trans`).
pub(crate) const TRANSPOSED: u32 = 1 << 12;
/// The first bit of the role in [`Instr::aux`]: 0 for A, 1 for B, 2 for C.
pub(crate) const ROLE_SHIFT: u32 = 13;
/// The first bit of the index of the matrices in [`Instr::aux`].
pub(crate) const INDEX_SHIFT: u32 = 16;
/// Bytes of a row of `ldmatrix`.
const ROW_BYTES: u64 = 16;

/// The matrix that a `wmma` load or store moves.
struct Tile<'l> {
    registers: &'l [u32],
    fragment: Fragment,
    element: Element,
    by_column: bool,
    /// From row to row (or column to column), in elements.
    stride: u64,
    /// The checked host address of the first element.
    base: u64,
}

impl Tile<'_> {
    /// The bit offset of element `element` of register `register` of a lane.
    #[inline(always)]
    fn bit(&self, lane: usize, register: usize, element: usize) -> u64 {
        let (row, column) = self.fragment.place(lane, register, element);
        let (slow, fast) = if self.by_column { (column, row) } else { (row, column) };
        (slow as u64 * self.stride + fast as u64) * self.element.bits() as u64
    }
}

/// Finds the tile: `ops[4] + imm` is its address, `ops[5]` (u32) the stride, `operands[ops[7]..]` the registers.
///
/// # Safety
/// Contract of `Handler`, operands as documented.
unsafe fn tile<'l>(machine: &mut Machine<'l>, instr: &Instr, access: Access) -> Result<Tile<'l>, Flow> {
    if let Some(flow) = machine.gather(FULL) {
        return Err(flow);
    }
    let code = machine.grid.code;
    let shape = code.matrices[(instr.aux >> INDEX_SHIFT) as usize].shape;
    let (role, element, count) = match instr.aux >> ROLE_SHIFT & 3 {
        0 => (Role::A, shape.a, shape.registers[0]),
        1 => (Role::B, shape.b, shape.registers[1]),
        _ => (Role::C, shape.c, shape.registers[2]),
    };
    let by_column = instr.aux & BY_COLUMN != 0;
    let (rows, columns) = match role {
        Role::A => (shape.m, shape.k),
        Role::B => (shape.k, shape.n),
        Role::C => (shape.m, shape.n),
    };
    let (slow, fast) = if by_column { (columns, rows) } else { (rows, columns) };
    let lane = machine.mask.trailing_zeros() as usize % LANES;
    // The manual demands that all lanes agree on address and stride: those of the first one count.
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`).
    let (address, stride) = unsafe {
        let address = if instr.aux & aux::WIDE_ADDRESS != 0 {
            (*machine.source::<u64>(instr.ops[4]).add(lane)).wrapping_add(instr.imm)
        } else {
            let offset = *machine.source::<u32>(instr.ops[4]).add(lane);
            u64::from(offset.wrapping_add(instr.imm as u32))
        };
        (address, u64::from(*machine.source::<u32>(instr.ops[5]).add(lane)))
    };
    let elements = (slow as u64 - 1) * stride + fast as u64;
    let bytes = (elements * element.bits() as u64).div_ceil(8);
    let align = (element.bits() as u64 / 8).max(1);
    if !address.is_multiple_of(align) {
        let what = format!("misaligned matrix of {align}-byte elements at {address:#x}");
        return Err(machine.fail(instr, lane, FaultKind::Misaligned, address, &what));
    }
    let base = machine.resolve_lane(instr, lane, address, bytes, aux::place(instr.aux), access)?;
    let registers = &code.operands[instr.ops[7] as usize..][..count];
    Ok(Tile { registers, fragment: shape.fragment(role, element), element, by_column, stride, base })
}

/// wmma.load.
pub(crate) fn load() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: contract of `Handler`; `tile` has checked all elements.
        unsafe {
            let tile = match tile(machine, instr, Access::Read) {
                Ok(tile) => tile,
                Err(flow) => return flow,
            };
            let bits = tile.element.bits();
            for (register, op) in tile.registers.iter().enumerate() {
                if bits == 64 {
                    for lane in lanes_of(machine.mask) {
                        let from = (tile.base + tile.bit(lane, register, 0) / 8) as *const u64;
                        *machine.target::<u64>(*op).add(lane) = from.read_unaligned();
                    }
                    continue;
                }
                let mut words = [0_u32; LANES];
                for (lane, word) in words.iter_mut().enumerate() {
                    let start = tile.bit(lane, register, 0);
                    let from = tile.base + start / 8;
                    let count = tile.fragment.elements;
                    if count == 1 || tile.bit(lane, register, count - 1) - start == (32 - bits) as u64 {
                        *word = (from as *const u32).read_unaligned();
                        continue;
                    }
                    for element in 0..count {
                        let from = tile.base + tile.bit(lane, register, element) / 8;
                        let value = match bits {
                            16 => u32::from((from as *const u16).read_unaligned()),
                            _ => u32::from((from as *const u8).read()),
                        };
                        *word |= value << (element * bits);
                    }
                }
                machine.set_lanes(*op, &words);
            }
        }
        Flow::Next
    }
    run
}

/// wmma.store.
pub(crate) fn store() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`); `tile` has checked the addresses.
        unsafe {
            let tile = match tile(machine, instr, Access::Write) {
                Ok(tile) => tile,
                Err(flow) => return flow,
            };
            let bits = tile.element.bits();
            for (register, op) in tile.registers.iter().enumerate() {
                for lane in lanes_of(machine.mask) {
                    if bits == 64 {
                        let to = (tile.base + tile.bit(lane, register, 0) / 8) as *mut u64;
                        to.write_unaligned(*machine.source::<u64>(*op).add(lane));
                        continue;
                    }
                    let word = *machine.source::<u32>(*op).add(lane);
                    for element in 0..tile.fragment.elements {
                        let to = tile.base + tile.bit(lane, register, element) / 8;
                        match bits {
                            32 => (to as *mut u32).write_unaligned(word),
                            _ => (to as *mut u16).write_unaligned((word >> (element * 16)) as u16),
                        }
                    }
                }
            }
        }
        Flow::Next
    }
    run
}

/// Checks the row addresses `ops[4] + imm` of the first `8 * count` lanes.
///
/// # Safety
/// Contract of `Handler`, operands as documented.
unsafe fn rows(
    machine: &mut Machine<'_>,
    instr: &Instr,
    count: usize,
    access: Access,
) -> Result<[u64; LANES], Flow> {
    if let Some(flow) = machine.gather(FULL) {
        return Err(flow);
    }
    let mut at = [0; LANES];
    let mask = machine.mask;
    // The other lanes' addresses do not count.
    machine.mask &= u32::MAX >> (32 - 8 * count);
    let found = if machine.mask == 0 {
        Ok(false)
    } else {
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`).
        unsafe { machine.resolve(instr, &mut at, ROW_BYTES, access) }
    };
    machine.mask = mask;
    found.map(|_| at)
}

/// The row and the column of the element that a lane holds in half `half` of its register.
fn position(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + half);
    if transposed { (column, row) } else { (row, column) }
}

/// ldmatrix: `ops[0..4]` from the rows at `ops[4] + imm`; `aux` has the count of matrices, and [`TRANSPOSED`].
pub(crate) fn load_rows() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let transposed = instr.aux & TRANSPOSED != 0;
        // SAFETY: contract of `Handler`; `rows` has checked the rows that are read, if all lanes are there.
        unsafe {
            let at = match rows(machine, instr, aux::count(instr.aux), Access::Read) {
                Ok(at) => at,
                Err(flow) => return flow,
            };
            if machine.mask != FULL {
                return incomplete(machine, instr);
            }
            for matrix in 0..aux::count(instr.aux) {
                let words: [u32; LANES] = std::array::from_fn(|lane| {
                    let half = |half: usize| {
                        let (row, column) = position(lane, half, transposed);
                        u32::from(*(at[8 * matrix + row] as *const u16).add(column))
                    };
                    half(0) | half(1) << 16
                });
                machine.set_lanes(instr.ops[matrix], &words);
            }
        }
        Flow::Next
    }
    run
}

/// stmatrix: the opposite of [`load_rows`].
pub(crate) fn store_rows() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        let transposed = instr.aux & TRANSPOSED != 0;
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`); `rows` has checked the addresses.
        unsafe {
            let at = match rows(machine, instr, aux::count(instr.aux), Access::Write) {
                Ok(at) => at,
                Err(flow) => return flow,
            };
            if machine.mask != FULL {
                return incomplete(machine, instr);
            }
            for matrix in 0..aux::count(instr.aux) {
                let words = machine.lanes::<u32>(instr.ops[matrix]);
                for (lane, word) in words.into_iter().enumerate() {
                    for half in 0..2 {
                        let (row, column) = position(lane, half, transposed);
                        *(at[8 * matrix + row] as *mut u16).add(column) = (word >> (16 * half)) as u16;
                    }
                }
            }
        }
        Flow::Next
    }
    run
}

/// Undefined by the manual: some lanes have exited or went another way.
#[cold]
pub(super) fn incomplete(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let lane = machine.mask.trailing_zeros() as usize % LANES;
    let what = "matrix instruction without all threads of the warp";
    machine.fail(instr, lane, FaultKind::IllegalInstruction, 0, what)
}

/// movmatrix: `ops[0]` is the 8 by 8 matrix `ops[1]` transposed.
pub(crate) fn transpose() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        if let Some(flow) = machine.gather(FULL) {
            return flow;
        }
        // SAFETY: both are 32-bit registers.
        unsafe {
            let words = machine.lanes::<u32>(instr.ops[1]);
            let element =
                |row: usize, column: usize| words[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
            let result: [u32; LANES] = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                element(column, row) | element(column + 1, row) << 16
            });
            machine.set_lanes(instr.ops[0], &result);
        }
        Flow::Next
    }
    run
}
