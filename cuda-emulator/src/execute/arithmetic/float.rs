// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single and double precision.
//!
//! Arithmetic rounds exactly in every mode. Single-precision NaN results are the canonical 0x7fffffff, as the manual
//! requires. The approximate functions are computed in double precision and rounded, which is closer to the true
//! value than hardware.

use super::checked::checked;
use super::circular::circular;
use super::directed::{self, Operation};
use super::exponential::{exp2, log2};
use super::round::{self, Rounding};
use crate::code::Handler;
use crate::execute::lanes::{each1, each3_imm, map1, map2, map3};
use crate::ptx::types::Type;

/// The modifiers of an arithmetic instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modifiers {
    pub(crate) rounding: Rounding,
    /// Subnormal inputs and results become zero.
    pub(crate) flush: bool,
    /// The result is clamped to [0, 1], NaN becomes 0.
    pub(crate) saturate: bool,
}

const FLUSH: u64 = 4;
const SATURATE: u64 = 8;

impl Modifiers {
    /// [`crate::code::Instr::imm`] of the handlers of this file.
    pub(crate) fn imm(self) -> u64 {
        let flags = if self.flush { FLUSH } else { 0 } | if self.saturate { SATURATE } else { 0 };
        self.rounding as u64 | flags
    }
}

/// Flushes subnormals to zeros of the same sign.
#[inline(always)]
pub(crate) fn flush(a: f32) -> f32 {
    let bits = a.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// Replaces any NaN by the manual's one. Works on bits, because the compiler treats all NaNs as one and may drop the
/// choice.
#[inline(always)]
pub(crate) fn canonical(a: f32) -> f32 {
    let bits = a.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { bits })
}

#[inline(always)]
pub(crate) fn saturate(a: f32) -> f32 {
    // Also false for NaN.
    if a > 0.0 { if a < 1.0 { a } else { 1.0 } } else { 0.0 }
}

/// Applies the modifiers of `imm` around a single-precision operation.
#[inline(always)]
fn modified(imm: u64, inputs: [f32; 3], operation: impl Fn([f32; 3], Rounding) -> f32) -> f32 {
    let inputs = if imm & FLUSH != 0 { inputs.map(flush) } else { inputs };
    let result = canonical(operation(inputs, Rounding::from_bits(imm)));
    let result = if imm & FLUSH != 0 { flush(result) } else { result };
    if imm & SATURATE != 0 { saturate(result) } else { result }
}

/// One handler for each of the common modifiers, and one that reads `imm` for all the others. An operation that has fewer
/// operands ignores the last ones, which are registers or constants of the same width.
fn single(
    m: Modifiers,
    nearest: impl Fn([f32; 3]) -> f32 + Copy + 'static,
    general: impl Fn([f32; 3], Rounding) -> f32 + Copy + 'static,
) -> Handler {
    match (m.rounding, m.flush, m.saturate) {
        (Rounding::Nearest, false, false) => map3(move |a, b, c| canonical(nearest([a, b, c]))),
        (Rounding::Nearest, true, false) => {
            map3(move |a, b, c| flush(canonical(nearest([flush(a), flush(b), flush(c)]))))
        }
        (Rounding::Nearest, false, true) => map3(move |a, b, c| saturate(nearest([a, b, c]))),
        (Rounding::Nearest, true, true) => {
            map3(move |a, b, c| saturate(flush(nearest([flush(a), flush(b), flush(c)]))))
        }
        _ => each3_imm(move |a, b, c, imm| modified(imm, [a, b, c], general)),
    }
}

/// add, sub, mul, div: `ops[0] = ops[1] op ops[2]`. `ops[3]` must be a register or constant of the same width.
pub(crate) fn binary(name: &str, kind: Type, m: Modifiers) -> Option<Handler> {
    Some(match (name, kind) {
        ("add", Type::F32) => single(m, |[a, b, _]| a + b, |[a, b, _], mode| round::add32(a, b, mode)),
        ("sub", Type::F32) => single(m, |[a, b, _]| a - b, |[a, b, _], mode| round::add32(a, -b, mode)),
        ("mul", Type::F32) if m.flush => flushed_multiply_add(m, true),
        ("mul", Type::F32) => single(m, |[a, b, _]| a * b, |[a, b, _], mode| round::mul32(a, b, mode)),
        ("div", Type::F32) => single(m, |[a, b, _]| a / b, |[a, b, _], mode| round::div32(a, b, mode)),
        (_, Type::F64) => double_binary(name, m)?,
        _ => return None,
    })
}

fn double_binary(name: &str, m: Modifiers) -> Option<Handler> {
    if m.flush || m.saturate {
        return None;
    }
    let nearest = m.rounding == Rounding::Nearest;
    Some(match name {
        "add" if nearest => {
            checked(|a: f64, b: f64, _| a + b, round::is_nan64, |a, b, _| round::with_nan64(a + b, [b, a]))
        }
        "sub" if nearest => {
            checked(|a: f64, b: f64, _| a - b, round::is_nan64, |a, b, _| round::with_nan64(a - b, [b, a]))
        }
        "mul" if nearest => {
            checked(|a: f64, b: f64, _| a * b, round::is_nan64, |a, b, _| round::with_nan64(a * b, [b, a]))
        }
        "div" if nearest => {
            checked(|a: f64, b: f64, _| a / b, round::is_nan64, |a, b, _| round::with_nan64(a / b, [a, b]))
        }
        "add" => directed::handler(Operation::Add).unwrap_or_else(|| {
            each3_imm(|a: f64, b: f64, _: f64, imm| round::add64(a, b, Rounding::from_bits(imm)))
        }),
        "sub" => directed::handler(Operation::Sub).unwrap_or_else(|| {
            each3_imm(|a: f64, b: f64, _: f64, imm| round::sub64(a, b, Rounding::from_bits(imm)))
        }),
        "mul" => directed::handler(Operation::Mul).unwrap_or_else(|| {
            each3_imm(|a: f64, b: f64, _: f64, imm| round::mul64(a, b, Rounding::from_bits(imm)))
        }),
        "div" => directed::handler(Operation::Div).unwrap_or_else(|| {
            each3_imm(|a: f64, b: f64, _: f64, imm| round::div64(a, b, Rounding::from_bits(imm)))
        }),
        _ => return None,
    })
}

/// fma: `ops[0] = ops[1] * ops[2] + ops[3]`.
pub(crate) fn multiply_add(kind: Type, m: Modifiers) -> Option<Handler> {
    Some(match kind {
        Type::F32 if m.flush => flushed_multiply_add(m, false),
        Type::F32 => single(m, |[a, b, c]| a.mul_add(b, c), |[a, b, c], mode| round::fma32(a, b, c, mode)),
        Type::F64 if m.flush || m.saturate => return None,
        Type::F64 if m.rounding == Rounding::Nearest => checked(
            |a: f64, b: f64, c: f64| a.mul_add(b, c),
            round::is_nan64,
            |a, b, c| round::with_nan64(a.mul_add(b, c), [b, c, a]),
        ),
        Type::F64 => directed::handler(Operation::MulAdd).unwrap_or_else(|| {
            each3_imm(|a: f64, b: f64, c: f64, imm| round::fma64(a, b, c, Rounding::from_bits(imm)))
        }),
        _ => return None,
    })
}

/// mul and fma with `.ftz`. The smallest normal number may be the rounded value of a tiny result: such a lane is
/// recomputed.
fn flushed_multiply_add(m: Modifiers, product: bool) -> Handler {
    fn is_least_normal(result: f32) -> bool {
        result.to_bits() & 0x7fff_ffff == 0x0080_0000
    }
    fn exact(a: f32, b: f32, c: f32, imm: u64) -> f32 {
        modified(imm, [a, b, c], |[a, b, c], mode| {
            let result = round::fma32(a, b, c, mode);
            if round::is_tiny32(a, b, c) { 0.0_f32.copysign(result) } else { result }
        })
    }
    match (m.rounding, m.saturate, product) {
        (Rounding::Nearest, false, true) => checked(
            |a: f32, b: f32, _| flush(canonical(flush(a) * flush(b))),
            is_least_normal,
            |a, b, _| exact(a, b, zero_of_product(a, b), FLUSH),
        ),
        (Rounding::Nearest, false, false) => checked(
            |a: f32, b: f32, c: f32| flush(canonical(flush(a).mul_add(flush(b), flush(c)))),
            is_least_normal,
            |a, b, c| exact(a, b, c, FLUSH),
        ),
        (_, _, true) => each3_imm(|a: f32, b: f32, _: f32, imm| exact(a, b, zero_of_product(a, b), imm)),
        (_, _, false) => each3_imm(|a: f32, b: f32, c: f32, imm| exact(a, b, c, imm)),
    }
}

/// The zero that does not change a product when it is added, in any rounding mode.
fn zero_of_product(a: f32, b: f32) -> f32 {
    if a.is_sign_negative() == b.is_sign_negative() { 0.0 } else { -0.0 }
}

/// sqrt and rcp with IEEE rounding: `ops[1]`, `ops[2]` and `ops[3]` are all the operand.
pub(crate) fn root(name: &str, kind: Type, m: Modifiers) -> Option<Handler> {
    Some(match (name, kind) {
        ("sqrt", Type::F32) => single(m, |[a, ..]| a.sqrt(), |[a, ..], mode| round::sqrt32(a, mode)),
        ("rcp", Type::F32) => single(m, |[a, ..]| 1.0 / a, |[a, ..], mode| round::div32(1.0, a, mode)),
        (_, Type::F64) if m.flush || m.saturate => return None,
        ("sqrt", Type::F64) if m.rounding == Rounding::Nearest => {
            map1(|a: f64| round::with_nan64(a.sqrt(), [a]))
        }
        ("rcp", Type::F64) if m.rounding == Rounding::Nearest => {
            map1(|a: f64| round::with_nan64(1.0 / a, [a]))
        }
        ("sqrt", Type::F64) => {
            each3_imm(|a: f64, _: f64, _: f64, imm| round::sqrt64(a, Rounding::from_bits(imm)))
        }
        ("rcp", Type::F64) => {
            each3_imm(|a: f64, _: f64, _: f64, imm| round::div64(1.0, a, Rounding::from_bits(imm)))
        }
        _ => return None,
    })
}

/// The `.approx` functions of one operand.
pub(crate) fn approximate(name: &str, kind: Type, flushed: bool) -> Option<Handler> {
    fn both(flushed: bool, f: impl Fn(f64) -> f64 + Copy + 'static) -> Handler {
        if flushed {
            each1(move |a: f32| flush(canonical(f(f64::from(flush(a))) as f32)))
        } else {
            each1(move |a: f32| canonical(f(f64::from(a)) as f32))
        }
    }
    Some(match (name, kind) {
        ("rcp", Type::F32) => both(flushed, |a: f64| 1.0 / a),
        ("sqrt", Type::F32) => both(flushed, f64::sqrt),
        ("rsqrt", Type::F32) => both(flushed, |a: f64| 1.0 / a.sqrt()),
        ("sin" | "cos", Type::F32) => circular(name == "cos", flushed),
        ("lg2", Type::F32) if flushed => map1(|a: f32| flush(log2(flush(a)))),
        ("lg2", Type::F32) => map1(log2),
        ("ex2", Type::F32) if flushed => map1(|a: f32| flush(exp2(flush(a)))),
        ("ex2", Type::F32) => map1(exp2),
        ("tanh", Type::F32) => both(flushed, f64::tanh),
        // Only the upper 32 bits of the result count; hardware leaves the lower ones zero.
        ("rcp", Type::F64) if flushed => each1(|a: f64| upper_half(1.0 / flush64(a))),
        ("rsqrt", Type::F64) if flushed => each1(|a: f64| upper_half(1.0 / flush64(a).sqrt())),
        ("rsqrt", Type::F64) => each1(|a: f64| 1.0 / a.sqrt()),
        _ => return None,
    })
}

fn flush64(a: f64) -> f64 {
    if a.is_subnormal() { a.signum() * 0.0 } else { a }
}

fn upper_half(a: f64) -> f64 {
    flush64(f64::from_bits(a.to_bits() & 0xffff_ffff_0000_0000))
}

/// div.approx and div.full.
pub(crate) fn divide_approximately(kind: Type, flushed: bool) -> Option<Handler> {
    (kind == Type::F32).then(|| {
        if flushed {
            map2(|a: f32, b: f32| flush(canonical(flush(a) / flush(b))))
        } else {
            map2(|a: f32, b: f32| canonical(a / b))
        }
    })
}

/// abs, neg.
pub(crate) fn sign(name: &str, kind: Type, flushed: bool) -> Option<Handler> {
    Some(match (name, kind, flushed) {
        ("abs", Type::F32, false) => map1(|a: f32| canonical(a.abs())),
        ("abs", Type::F32, true) => map1(|a: f32| canonical(flush(a).abs())),
        ("neg", Type::F32, false) => map1(|a: f32| canonical(-a)),
        ("neg", Type::F32, true) => map1(|a: f32| canonical(-flush(a))),
        // The sign of a NaN is preserved.
        ("abs", Type::F64, false) => {
            map1(|a: f64| if round::is_nan64(a) { round::quiet64(a) } else { a.abs() })
        }
        ("neg", Type::F64, false) => map1(|a: f64| if round::is_nan64(a) { round::quiet64(a) } else { -a }),
        _ => return None,
    })
}

/// `copysign d, a, b`: the sign of `a`, the rest of `b`.
pub(crate) fn copy_sign(kind: Type) -> Option<Handler> {
    Some(match kind {
        Type::F32 => map2(|a: f32, b: f32| b.copysign(a)),
        Type::F64 => map2(|a: f64, b: f64| b.copysign(a)),
        _ => return None,
    })
}

/// The treatment of NaN and signs by min and max.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extremum {
    pub(crate) max: bool,
    pub(crate) flush: bool,
    /// `.NaN`: one NaN makes the result NaN.
    pub(crate) propagate: bool,
    /// `.xorsign.abs`
    pub(crate) xor_sign: bool,
}

impl Extremum {
    /// [`crate::code::Instr::imm`] of [`extremum`].
    pub(crate) fn imm(self) -> u64 {
        u64::from(self.max)
            | u64::from(self.propagate) << 1
            | u64::from(self.xor_sign) << 3
            | if self.flush { FLUSH } else { 0 }
    }
}

#[inline(always)]
pub(crate) fn extremum32(a: f32, b: f32, imm: u64) -> f32 {
    let (mut x, mut y) = if imm & FLUSH != 0 { (flush(a), flush(b)) } else { (a, b) };
    let sign = (x.to_bits() ^ y.to_bits()) & 0x8000_0000;
    if imm & 8 != 0 {
        (x, y) = (x.abs(), y.abs());
    }
    let result = if x.is_nan() || y.is_nan() {
        if imm & 2 != 0 || (x.is_nan() && y.is_nan()) {
            return f32::from_bits(0x7fff_ffff);
        }
        if x.is_nan() { y } else { x }
    } else if imm & 1 != 0 {
        if x > y || (x == y && x.is_sign_positive()) { x } else { y }
    } else if x < y || (x == y && x.is_sign_negative()) {
        x
    } else {
        y
    };
    if imm & 8 != 0 { f32::from_bits(result.to_bits() & 0x7fff_ffff | sign) } else { result }
}

/// Returns the min or max where one operand is NaN: the other operand, or the second of two NaN. `None` when both are
/// numbers.
#[inline(always)]
fn number(a: f64, b: f64) -> Option<f64> {
    match (round::is_nan64(a), round::is_nan64(b)) {
        (true, true) => Some(round::quiet64(b)),
        (true, false) => Some(b),
        (false, true) => Some(a),
        (false, false) => None,
    }
}

/// min, max: `ops[3]` is ignored, of the same width.
pub(crate) fn extremum(kind: Type, how: Extremum) -> Option<Handler> {
    let plain = how.imm() & !1 == 0;
    Some(match kind {
        Type::F32 if plain && how.max => map2(|a: f32, b: f32| extremum32(a, b, 1)),
        Type::F32 if plain => map2(|a: f32, b: f32| extremum32(a, b, 0)),
        Type::F32 => each3_imm(|a: f32, b: f32, _: f32, imm| extremum32(a, b, imm)),
        Type::F64 if !plain => return None,
        Type::F64 if how.max => map2(|a: f64, b: f64| match number(a, b) {
            Some(one) => one,
            None if a > b || (a == b && a.is_sign_positive()) => a,
            None => b,
        }),
        Type::F64 => map2(|a: f64, b: f64| match number(a, b) {
            Some(one) => one,
            None if a < b || (a == b && a.is_sign_negative()) => a,
            None => b,
        }),
        _ => return None,
    })
}
