// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `wgmma`: four warps multiply a matrix of 64 rows by one in shared memory. Each warp computes its 16 rows when it
//! arrives at the product, and the warps wait for each other at `wgmma.wait_group`: what comes after it may overwrite
//! the matrices in shared memory. Sums are taken as in [`super::tensor`].

use super::arithmetic::tiny_float;
use super::data::access::{Access, Place};
use super::matrix_memory::incomplete;
use super::state::{BARRIERS, Flow, Machine, WARPGROUP};
use super::tensor::{float, integer, truncated};
use crate::code::fragment::Element;
use crate::code::{FULL, Handler, Instr, LANES};
use crate::launch::FaultKind;

/// Bytes of a row of A, or of a column of B: the depth of every shape.
const DEPTH_BYTES: usize = 32;
/// Bytes that lie together in shared memory whatever the layout.
const UNIT: usize = 16;
/// The rows of one warp.
const ROWS: usize = 16;
/// The columns that are computed at a time.
const COLUMNS: usize = 8;
/// The maximum number of elements in the direction of K.
const MAX_DEPTH: usize = 32;
/// Addresses in a descriptor have 18 bits.
const ADDRESS: u64 = (1 << 18) - 1;

/// `D = A * B + D` of a warpgroup: [`Instr::aux`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    /// The columns of B and D.
    pub(crate) columns: usize,
    pub(crate) a: Element,
    pub(crate) b: Element,
    pub(crate) d: Element,
    /// A is in registers.
    pub(crate) held: bool,
    /// The product is subtracted: one of A and B is negated.
    pub(crate) negated: bool,
    /// The rows of A are consecutive in memory, not K.
    pub(crate) a_by_rows: bool,
    /// The columns of B are consecutive in memory, not K.
    pub(crate) b_by_columns: bool,
    pub(crate) saturate: bool,
}

impl Product {
    pub(crate) fn pack(self) -> u32 {
        let flags = [self.held, self.negated, self.a_by_rows, self.b_by_columns, self.saturate];
        let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u32::from(*flag));
        let elements = [self.a, self.b, self.d].iter().fold(0, |bits, kind| bits << 4 | *kind as u32);
        (self.columns / COLUMNS) as u32 | elements << 8 | flags << 20
    }

    fn unpack(aux: u32) -> Product {
        let element = |shift: u32| Element::from_number(aux >> shift & 15);
        let flag = |bit: u32| aux >> bit & 1 != 0;
        Product {
            columns: (aux & 0xff) as usize * COLUMNS,
            a: element(16),
            b: element(12),
            d: element(8),
            held: flag(24),
            negated: flag(23),
            a_by_rows: flag(22),
            b_by_columns: flag(21),
            saturate: flag(20),
        }
    }

    /// The registers of A and of D. A has no registers if it is in shared memory.
    pub(crate) fn registers(self) -> [usize; 2] {
        [if self.held { 4 } else { 0 }, self.columns / COLUMNS * self.per_block()]
    }

    /// The registers of [`COLUMNS`] columns of D.
    fn per_block(self) -> usize {
        4 / self.d.per_register()
    }
}

/// The arithmetic on elements. One-bit matrices have words of 32 elements.
trait Arithmetic {
    type Value: Copy + Default;
    /// A factor from its bits.
    fn factor(kind: Element, bits: u32) -> Self::Value;
    fn negated(value: Self::Value) -> Self::Value;
    /// The sum before the products, from the bits in D.
    fn start(kind: Element, bits: u32) -> Self::Value;
    fn step(sum: Self::Value, a: Self::Value, b: Self::Value) -> Self::Value;
    /// The new bits in D, which had `old`.
    fn finish(product: &Product, sum: Self::Value, old: u32) -> u32;
}

struct Floats;

impl Arithmetic for Floats {
    type Value = f64;

    #[inline(always)]
    fn factor(kind: Element, bits: u32) -> f64 {
        float(kind, bits)
    }

    #[inline(always)]
    fn negated(value: f64) -> f64 {
        -value
    }

    #[inline(always)]
    fn start(kind: Element, bits: u32) -> f64 {
        float(kind, bits)
    }

    #[inline(always)]
    fn step(sum: f64, a: f64, b: f64) -> f64 {
        // A product of two such elements is exact: fused or not makes no difference.
        sum + a * b
    }

    #[inline(always)]
    fn finish(product: &Product, sum: f64, _old: u32) -> u32 {
        if product.d == Element::F16 { u32::from(tiny_float::to_f16(sum)) } else { truncated(sum) }
    }
}

struct Integers;

impl Arithmetic for Integers {
    type Value = i32;

    #[inline(always)]
    fn factor(kind: Element, bits: u32) -> i32 {
        integer(kind, bits)
    }

    #[inline(always)]
    fn negated(value: i32) -> i32 {
        -value
    }

    #[inline(always)]
    fn start(_kind: Element, _bits: u32) -> i32 {
        0
    }

    #[inline(always)]
    fn step(sum: i32, a: i32, b: i32) -> i32 {
        sum.wrapping_add(a.wrapping_mul(b))
    }

    #[inline(always)]
    fn finish(product: &Product, sum: i32, old: u32) -> u32 {
        let old = old.cast_signed();
        let result = if product.saturate { old.saturating_add(sum) } else { old.wrapping_add(sum) };
        result.cast_unsigned()
    }
}

struct Bits;

impl Arithmetic for Bits {
    type Value = u32;

    #[inline(always)]
    fn factor(_kind: Element, bits: u32) -> u32 {
        bits
    }

    #[inline(always)]
    fn negated(value: u32) -> u32 {
        value
    }

    #[inline(always)]
    fn start(_kind: Element, _bits: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn step(sum: u32, a: u32, b: u32) -> u32 {
        sum + (a & b).count_ones()
    }

    #[inline(always)]
    fn finish(_product: &Product, sum: u32, old: u32) -> u32 {
        old.wrapping_add(sum)
    }
}

/// A matrix in shared memory: the descriptor's fields in bytes.
#[derive(Debug, Clone, Copy)]
struct Stored {
    start: u64,
    /// The leading dimension byte offset.
    leading: u64,
    /// The stride dimension byte offset.
    stride: u64,
    /// Bytes of a row of the swizzled pattern; [`UNIT`] without swizzling.
    width: u64,
}

impl Stored {
    /// Reads a descriptor; `None` if it has a base offset.
    fn new(descriptor: u64) -> Option<Stored> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) << 4;
        let width = [16, 128, 64, 32][(descriptor >> 62) as usize];
        let base_offset = descriptor >> 49 & 7;
        let plain = base_offset == 0 || width == UNIT as u64;
        plain.then_some(Stored { start: field(0), leading: field(16), stride: field(32), width })
    }

    /// The address of a unit in the direction of K: of row or column `side`, half `half` of the depth.
    fn along_depth(self, side: usize, half: usize) -> u64 {
        let (block, row, half) = ((side / 8) as u64, (side % 8) as u64, half as u64);
        let step = if self.width == UNIT as u64 { self.leading } else { UNIT as u64 };
        self.swizzled(row * self.width + block * self.stride + half * step)
    }

    /// The address of a unit in the direction of rows or columns: the eight from `8 * block` on, at `depth` of K.
    fn along_side(self, block: usize, depth: usize) -> u64 {
        let (block, group, row) = (block as u64, (depth / 8) as u64, (depth % 8) as u64);
        if self.width == UNIT as u64 {
            return self.swizzled(block * self.stride + row * self.width + group * self.leading);
        }
        let units = self.width / UNIT as u64;
        let inside = block % units * UNIT as u64 + row * self.width;
        self.swizzled(inside + block / units * self.leading + group * self.stride)
    }

    /// The bits of the address from 7 on change the bits from 4 on, as many as the pattern's width has units.
    fn swizzled(self, offset: u64) -> u64 {
        let address = (self.start + offset) & ADDRESS;
        address ^ (address >> 7 & (self.width / UNIT as u64 - 1)) << 4
    }
}

/// The elements of a unit, of `SIZE` bytes each, into the first places of `values`.
#[inline(always)]
fn elements<const SIZE: usize>(unit: &[u8; UNIT], mut put: impl FnMut(usize, u32)) {
    for (index, bytes) in unit.chunks_exact(SIZE).enumerate() {
        let mut word = [0; 4];
        word[..SIZE].copy_from_slice(bytes);
        put(index, u32::from_le_bytes(word));
    }
}

/// Reads the unit at an address of shared memory.
#[inline(always)]
fn unit(machine: &mut Machine<'_>, instr: &Instr, address: u64) -> Result<[u8; UNIT], Flow> {
    let host = if machine.checks || address + UNIT as u64 > u64::from(machine.block.shared_bytes) {
        machine.resolve_lane(instr, 0, address, UNIT as u64, Place::Shared, Access::Read)?
    } else {
        machine.block.shared.as_ptr() as u64 + address
    };
    // SAFETY: the unit lies in the block's shared memory, or `resolve_lane` has checked it.
    Ok(unsafe { (host as *const [u8; UNIT]).read_unaligned() })
}

/// A row per row of A, a column per row of B.
type Side<T, const N: usize> = [[T; MAX_DEPTH]; N];

/// Reads the rows (or columns) from `first` on of a matrix in shared memory.
#[inline(always)]
fn read<K: Arithmetic, const SIZE: usize, const N: usize>(
    machine: &mut Machine<'_>,
    instr: &Instr,
    stored: Stored,
    first: usize,
    (kind, by_side): (Element, bool),
) -> Result<Side<K::Value, N>, Flow> {
    let mut side = [[K::Value::default(); MAX_DEPTH]; N];
    if by_side {
        for depth in 0..DEPTH_BYTES / SIZE {
            for block in 0..N / 8 {
                let unit = unit(machine, instr, stored.along_side(first / 8 + block, depth))?;
                elements::<SIZE>(&unit, |index, bits| {
                    // Only elements of 16 bits lie so (lowering): eight in a unit.
                    let line = &mut side[8 * block + index % 8];
                    line[depth] = K::factor(kind, bits);
                });
            }
        }
        return Ok(side);
    }
    for (number, line) in side.iter_mut().enumerate() {
        for half in 0..2 {
            let unit = unit(machine, instr, stored.along_depth(first + number, half))?;
            let values = &mut line[half * UNIT / SIZE..];
            elements::<SIZE>(&unit, |index, bits| values[index] = K::factor(kind, bits));
        }
    }
    Ok(side)
}

/// The row and the first column of what a lane holds in register `half` of a block of D, and of A.
#[inline(always)]
fn position(lane: usize, half: usize) -> (usize, usize) {
    (lane / 4 + 8 * half, lane % 4)
}

/// # Safety
/// Contract of `Handler`, operands as [`multiply`] says.
#[inline(always)]
unsafe fn run<K: Arithmetic, const SIZE: usize>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    if machine.mask != FULL {
        return incomplete(machine, instr);
    }
    let product = Product::unpack(instr.aux);
    let [in_a, in_d] = product.registers();
    let code = machine.grid.code;
    let (d, sources) = code.operands[instr.ops[7] as usize..].split_at(in_d);
    let (held, c) = sources.split_at(in_a);
    // The manual demands that all lanes agree on the descriptors and on whether D counts.
    // SAFETY: descriptors have 64 bits, the other operand is a predicate (contract of `Handler`).
    let (descriptors, accumulates) = unsafe {
        let descriptors = [0, 1].map(|index| *machine.source::<u64>(instr.ops[index]));
        (descriptors, machine.predicate(instr.ops[2]) & 1 != 0)
    };
    let depth = DEPTH_BYTES / SIZE;
    let stored = descriptors.map(Stored::new);
    let (Some(in_memory), Some(b)) = (if product.held { Stored::new(0) } else { stored[0] }, stored[1])
    else {
        let what = "matrix descriptor with a base offset, which is not supported";
        return machine.fail(instr, 0, FaultKind::IllegalInstruction, 0, what);
    };
    let mut rows: Side<K::Value, ROWS> = [[K::Value::default(); MAX_DEPTH]; ROWS];
    if product.held {
        let count = 4 / SIZE;
        for (register, op) in held.iter().enumerate() {
            // SAFETY: registers of 32 bits (lowering).
            let words = unsafe { machine.lanes::<u32>(*op) };
            for (lane, word) in words.into_iter().enumerate() {
                let (row, column) = position(lane, register % 2);
                for index in 0..count {
                    let bits = word >> (8 * SIZE * index) & (u32::MAX >> (32 - 8 * SIZE));
                    rows[row][(4 * (register / 2) + column) * count + index] = K::factor(product.a, bits);
                }
            }
        }
    } else {
        let first = machine.warp().index as usize % (WARPGROUP / LANES) * ROWS;
        let form = (product.a, product.a_by_rows);
        rows = match read::<K, SIZE, ROWS>(machine, instr, in_memory, first, form) {
            Ok(rows) => rows,
            Err(flow) => return flow,
        };
    }
    if product.negated {
        rows.iter_mut().flatten().for_each(|value| *value = K::negated(*value));
    }
    let per_block = product.per_block();
    let bits = product.d.bits();
    for block in 0..product.columns / COLUMNS {
        let form = (product.b, product.b_by_columns);
        let columns = match read::<K, SIZE, COLUMNS>(machine, instr, b, COLUMNS * block, form) {
            Ok(columns) => columns,
            Err(flow) => return flow,
        };
        // K by columns, for vectors of columns.
        let mut lines = [[K::Value::default(); COLUMNS]; MAX_DEPTH];
        for (column, values) in columns.iter().enumerate() {
            values.iter().zip(&mut lines).for_each(|(value, line)| line[column] = *value);
        }
        let registers = block * per_block..(block + 1) * per_block;
        let mut old = [[0_u32; COLUMNS]; ROWS];
        for (index, op) in c[registers.clone()].iter().enumerate().filter(|_| accumulates) {
            // SAFETY: registers of 32 bits (lowering).
            let words = unsafe { machine.lanes::<u32>(*op) };
            for (lane, word) in words.into_iter().enumerate() {
                each_element(lane, index, bits, |row, column, shift| {
                    old[row][column] = word >> shift & (u32::MAX >> (32 - bits));
                });
            }
        }
        for (row, old) in rows.iter().zip(&mut old) {
            let mut sums = old.map(|bits| K::start(product.d, bits));
            for (factor, line) in row.iter().zip(&lines).take(depth) {
                for (sum, value) in sums.iter_mut().zip(line) {
                    *sum = K::step(*sum, *factor, *value);
                }
            }
            for (bits, sum) in old.iter_mut().zip(sums) {
                *bits = K::finish(&product, sum, *bits);
            }
        }
        for (index, op) in d[registers].iter().enumerate() {
            let words: [u32; LANES] = std::array::from_fn(|lane| {
                let mut word = 0;
                each_element(lane, index, bits, |row, column, shift| word |= old[row][column] << shift);
                word
            });
            // SAFETY: a register of 32 bits (lowering).
            unsafe { machine.set_lanes(*op, &words) };
        }
    }
    Flow::Next
}

/// Calls `with` with row, column and first bit of each element that register `index` of a block of D holds.
#[inline(always)]
fn each_element(lane: usize, index: usize, bits: usize, mut with: impl FnMut(usize, usize, usize)) {
    let count = 32 / bits;
    for element in 0..count {
        let number = index * count + element;
        let (row, pair) = position(lane, number / 2);
        with(row, 2 * pair + number % 2, bits * element);
    }
}

unsafe fn base<K: Arithmetic, const SIZE: usize>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the caller keeps the contract of `Handler`.
    unsafe { run::<K, SIZE>(machine, instr) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn wide<K: Arithmetic, const SIZE: usize>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `run`.
    unsafe { run::<K, SIZE>(machine, instr) }
}

fn handler<K: Arithmetic, const SIZE: usize>() -> Handler {
    #[cfg(target_arch = "x86_64")]
    if crate::vectors::has_wide_vectors() {
        return wide::<K, SIZE>;
    }
    base::<K, SIZE>
}

/// wgmma.mma_async: `ops[0]` and `ops[1]` (u64) are the descriptors of A, if it is in memory, and B; the predicate
/// `ops[2]` says whether D is added. `operands[ops[7]..]` are the registers of D, A (if it is held) and D again; `aux` is
/// the packed product.
pub(crate) fn multiply(product: Product) -> Handler {
    match product.a {
        Element::Tf32 => handler::<Floats, 4>(),
        Element::E4m3 | Element::E5m2 => handler::<Floats, 1>(),
        Element::S8 | Element::U8 => handler::<Integers, 1>(),
        Element::B1 => handler::<Bits, 4>(),
        _ => handler::<Floats, 2>(),
    }
}

/// wgmma.wait_group: a barrier of the warpgroup.
pub(crate) fn wait() -> Handler {
    unsafe fn run(machine: &mut Machine<'_>, _instr: &Instr) -> Flow {
        if let Some(flow) = machine.gather(FULL) {
            return flow;
        }
        let (lanes, current) = (machine.mask, machine.current);
        machine.split(machine.pc);
        let name = BARRIERS + machine.warp().index as usize / (WARPGROUP / LANES);
        machine.block.arrive(name, current, lanes, WARPGROUP as u32, true);
        machine.block.check_barrier(name, &machine.grid.code.instrs);
        Flow::Switch
    }
    run
}
