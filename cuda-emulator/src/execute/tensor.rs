// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mma.sync` and `wmma.mma`. Sums of f16, bf16, tf32 and 8-bit floats are taken in double precision, then rounded towards
//! zero to single precision, as an H200 does (it drops more where exponents are far apart); f64 is a chain of fma; integers
//! are exact.

use super::arithmetic::tiny_float;
use super::state::{Flow, Machine};
use crate::code::fragment::{BitOperation, Element, MAX_DEPTH, MAX_SIDE, Matrices, Role, Shape};
use crate::code::{FULL, Handler, Instr, LANES};

/// `D = A * B + C`: `operands[ops[7]..]` are the registers of D, A, B and C as [`Shape::registers`] counts them;
/// `aux` is the index of the matrices.
pub(crate) fn multiply(shape: &Shape) -> Handler {
    if shape.bits != BitOperation::None {
        return bits;
    }
    if shape.c == Element::F64 {
        return doubles;
    }
    let integers = shape.a.is_integer();
    #[cfg(target_arch = "x86_64")]
    if crate::vectors::has_wide_vectors() {
        return if integers { integers_wide } else { floats_wide };
    }
    if integers { integers_base } else { floats_base }
}

/// The operands of the four matrices.
#[derive(Clone, Copy)]
struct Operands<'l> {
    matrices: &'l Matrices,
    d: &'l [u32],
    a: &'l [u32],
    b: &'l [u32],
    c: &'l [u32],
}

fn operands<'l>(machine: &Machine<'l>, instr: &Instr) -> Operands<'l> {
    let code = machine.grid.code;
    let matrices = &code.matrices[instr.aux as usize];
    let all = &code.operands[instr.ops[7] as usize..];
    let [a, b, c, d] = matrices.shape.registers;
    let (in_d, rest) = all.split_at(d);
    let (in_a, rest) = rest.split_at(a);
    let (in_b, rest) = rest.split_at(b);
    Operands { matrices, d: in_d, a: in_a, b: in_b, c: &rest[..c] }
}

/// Puts every element of a matrix into its place in `matrix`.
///
/// # Safety
/// `registers` are 32-bit registers or constants of the running frame.
#[inline(always)]
unsafe fn gather<T>(
    machine: &Machine<'_>,
    registers: &[u32],
    places: &[u16],
    element: Element,
    matrix: &mut [T],
    value: impl Fn(u32) -> T,
) {
    let count = element.per_register();
    let bits = 32 / count;
    let mask = u32::MAX >> (32 - bits);
    for (op, places) in registers.iter().zip(places.chunks_exact(LANES * count)) {
        // SAFETY: `registers` are registers or constants of 32 bits by this function's contract.
        let words = unsafe { machine.lanes::<u32>(*op) };
        for (word, places) in words.into_iter().zip(places.chunks_exact(count)) {
            for (index, place) in places.iter().enumerate() {
                if let Some(cell) = matrix.get_mut(usize::from(*place)) {
                    *cell = value(word >> (index * bits) & mask);
                }
            }
        }
    }
}

/// Writes a matrix to its registers, copies included.
///
/// # Safety
/// As [`gather`]; none is a constant.
#[inline(always)]
unsafe fn scatter(
    machine: &mut Machine<'_>,
    registers: &[u32],
    places: &[u16],
    element: Element,
    value: impl Fn(usize) -> u32,
) {
    let count = element.per_register();
    let bits = 32 / count;
    for (op, places) in registers.iter().zip(places.chunks_exact(LANES * count)) {
        let mut words = [0; LANES];
        for (word, places) in words.iter_mut().zip(places.chunks_exact(count)) {
            for (index, place) in places.iter().enumerate() {
                *word |= value(usize::from(*place)) << (index * bits);
            }
        }
        // SAFETY: `registers` are registers of 32 bits by this function's contract.
        unsafe { machine.set_lanes(*op, &words) };
    }
}

#[inline(always)]
pub(super) fn float(kind: Element, bits: u32) -> f64 {
    f64::from(match kind {
        Element::F16 => tiny_float::f16(bits as u16),
        Element::Bf16 => tiny_float::bf16(bits as u16),
        // The low bits do not count.
        Element::Tf32 => f32::from_bits(bits & !0x1fff),
        Element::E4m3 => tiny_float::e4m3(bits as u8),
        Element::E5m2 => tiny_float::e5m2(bits as u8),
        _ => f32::from_bits(bits),
    })
}

/// The bits of a sum in single precision, rounded towards zero; infinite when it is too large.
#[inline(always)]
pub(super) fn truncated(sum: f64) -> u32 {
    // The low 29 bits are those that an f32 does not have.
    let short = f64::from_bits(sum.to_bits() & !((1 << 29) - 1)) as f32;
    if sum.is_nan() { 0x7fff_ffff } else { short.to_bits() }
}

#[inline(always)]
pub(super) fn integer(kind: Element, bits: u32) -> i32 {
    match kind {
        Element::S8 => i32::from(bits as i8),
        Element::S4 => (bits << 28).cast_signed() >> 28,
        _ => bits.cast_signed(),
    }
}

/// `sums[m][n] += a[m][k] * b[k][n]`
#[inline(always)]
fn accumulate<T: Copy, const N: usize>(
    shape: &Shape,
    a: &[T],
    b: &[T],
    sums: &mut [T],
    step: impl Fn(T, T, T) -> T,
) {
    let rows = a.chunks_exact(MAX_DEPTH).zip(sums.chunks_exact_mut(MAX_SIDE));
    for (row, sums) in rows.take(shape.m) {
        let mut partial: [T; N] = std::array::from_fn(|n| sums[n]);
        for (factor, line) in row.iter().zip(b.chunks_exact(MAX_SIDE)).take(shape.k) {
            for n in 0..N {
                partial[n] = step(partial[n], *factor, line[n]);
            }
        }
        sums[..N].copy_from_slice(&partial);
    }
}

/// [`accumulate`] for each number of columns.
#[inline(always)]
fn by_columns<T: Copy>(shape: &Shape, a: &[T], b: &[T], sums: &mut [T], step: impl Fn(T, T, T) -> T) {
    match shape.n {
        8 => accumulate::<_, 8>(shape, a, b, sums, step),
        16 => accumulate::<_, 16>(shape, a, b, sums, step),
        _ => accumulate::<_, 32>(shape, a, b, sums, step),
    }
}

/// # Safety
/// Contract of `Handler`, operands as [`multiply`] says.
#[inline(always)]
unsafe fn floats(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    let all = operands(machine, instr);
    let matrices = all.matrices;
    let shape = matrices.shape;
    let mut a = [0.0_f64; MAX_SIDE * MAX_DEPTH];
    let mut b = [0.0_f64; MAX_SIDE * MAX_DEPTH];
    let mut sums = [0.0_f64; MAX_SIDE * MAX_SIDE];
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`).
    unsafe {
        if shape.a == Element::F16 {
            // The common one, with the conversion known to the optimiser.
            let convert = |bits| float(Element::F16, bits);
            gather(machine, all.a, &matrices.a, Element::F16, &mut a, convert);
            gather(machine, all.b, &matrices.b, Element::F16, &mut b, convert);
        } else {
            gather(machine, all.a, &matrices.a, shape.a, &mut a, |bits| float(shape.a, bits));
            gather(machine, all.b, &matrices.b, shape.b, &mut b, |bits| float(shape.b, bits));
        }
        gather(machine, all.c, &matrices.c, shape.c, &mut sums, |bits| float(shape.c, bits));
        // A product of two such elements is exact: fused or not makes no difference.
        by_columns(&shape, &a, &b, &mut sums, |sum: f64, a: f64, b: f64| sum + a * b);
        if shape.d == Element::F16 {
            let value = |place: usize| u32::from(tiny_float::to_f16(sums[place]));
            scatter(machine, all.d, &matrices.d, Element::F16, value);
        } else {
            let value = |place: usize| truncated(sums[place]);
            scatter(machine, all.d, &matrices.d, shape.d, value);
        }
    }
    Flow::Next
}

/// # Safety
/// As [`floats`].
#[inline(always)]
unsafe fn integers(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    let all = operands(machine, instr);
    let matrices = all.matrices;
    let shape = matrices.shape;
    let mut a = [0_i32; MAX_SIDE * MAX_DEPTH];
    let mut b = [0_i32; MAX_SIDE * MAX_DEPTH];
    // The products of one instruction fit: 64 * 255 * 255.
    let mut sums = [0_i32; MAX_SIDE * MAX_SIDE];
    let mut addends = [0_i32; MAX_SIDE * MAX_SIDE];
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`).
    unsafe {
        gather(machine, all.a, &matrices.a, shape.a, &mut a, |bits| integer(shape.a, bits));
        gather(machine, all.b, &matrices.b, shape.b, &mut b, |bits| integer(shape.b, bits));
        gather(machine, all.c, &matrices.c, Element::S32, &mut addends, u32::cast_signed);
        by_columns(&shape, &a, &b, &mut sums, |sum: i32, a: i32, b: i32| sum.wrapping_add(a.wrapping_mul(b)));
        scatter(machine, all.d, &matrices.d, Element::S32, |place| {
            let (sum, addend) = (sums[place], addends[place]);
            let result = if shape.saturate { addend.saturating_add(sum) } else { addend.wrapping_add(sum) };
            result.cast_unsigned()
        });
    }
    Flow::Next
}

unsafe fn floats_base(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the caller keeps the contract of `Handler`.
    unsafe { floats(machine, instr) }
}

unsafe fn integers_base(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `integers`.
    unsafe { integers(machine, instr) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn floats_wide(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `floats`.
    unsafe { floats(machine, instr) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn integers_wide(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    // SAFETY: the contract of `Handler` is that of `integers`.
    unsafe { integers(machine, instr) }
}

/// f64: registers of 64 bits.
unsafe fn doubles(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    let all = operands(machine, instr);
    let matrices = all.matrices;
    let shape = matrices.shape;
    let mut a = [0.0_f64; 16 * MAX_DEPTH];
    let mut b = [0.0_f64; 16 * MAX_SIDE];
    let mut sums = [0.0_f64; 16 * MAX_SIDE];
    let load = |registers: &[u32], places: &[u16], matrix: &mut [f64]| {
        for (op, places) in registers.iter().zip(places.chunks_exact(LANES)) {
            // SAFETY: 64-bit registers (lowering).
            let values = unsafe { machine.lanes::<f64>(*op) };
            for (value, place) in values.into_iter().zip(places) {
                matrix[usize::from(*place)] = value;
            }
        }
    };
    load(all.a, &matrices.a, &mut a);
    load(all.b, &matrices.b, &mut b);
    load(all.c, &matrices.c, &mut sums);
    let rows = a.chunks_exact(MAX_DEPTH).zip(sums.chunks_exact_mut(MAX_SIDE));
    for (row, sums) in rows.take(shape.m) {
        for (factor, line) in row.iter().zip(b.chunks_exact(MAX_SIDE)).take(shape.k) {
            for (sum, value) in sums.iter_mut().zip(line).take(shape.n) {
                *sum = factor.mul_add(*value, *sum);
            }
        }
    }
    for (op, places) in all.d.iter().zip(matrices.d.chunks_exact(LANES)) {
        let values: [f64; LANES] = std::array::from_fn(|lane| sums[usize::from(places[lane])]);
        // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
        // `Handler`); none is a constant.
        unsafe { machine.set_lanes(*op, &values) };
    }
    Flow::Next
}

/// One-bit matrices: counts the ones of `a ^ b` or `a & b`, a word of 32 elements at a time.
unsafe fn bits(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    if let Some(flow) = machine.gather(FULL) {
        return flow;
    }
    let all = operands(machine, instr);
    let matrices = all.matrices;
    let shape = matrices.shape;
    let mut a = [[0_u32; 8]; MAX_SIDE];
    let mut b = [[0_u32; 8]; MAX_SIDE];
    let mut addends = [0_u32; MAX_SIDE * MAX_SIDE];
    let fragments = (shape.fragment(Role::A, Element::B1), shape.fragment(Role::B, Element::B1));
    // SAFETY: 32-bit registers (lowering).
    unsafe {
        for (register, op) in all.a.iter().enumerate() {
            for (lane, word) in machine.lanes::<u32>(*op).into_iter().enumerate() {
                let (row, column) = fragments.0.place(lane, register, 0);
                a[row][column / 32] = word;
            }
        }
        for (register, op) in all.b.iter().enumerate() {
            for (lane, word) in machine.lanes::<u32>(*op).into_iter().enumerate() {
                let (row, column) = fragments.1.place(lane, register, 0);
                b[column][row / 32] = word;
            }
        }
        gather(machine, all.c, &matrices.c, Element::S32, &mut addends, |bits| bits);
        scatter(machine, all.d, &matrices.d, Element::S32, |place| {
            let pairs = a[place / MAX_SIDE].iter().zip(&b[place % MAX_SIDE]).take(shape.k / 32);
            let count = |(a, b): (&u32, &u32)| {
                if shape.bits == BitOperation::Xor { (a ^ b).count_ones() } else { (a & b).count_ones() }
            };
            addends[place].wrapping_add(pairs.map(count).sum())
        });
    }
    Flow::Next
}
