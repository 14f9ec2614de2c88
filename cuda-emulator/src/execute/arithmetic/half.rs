// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Half precision (f16) and bfloat16, alone and in pairs. All arithmetic uses double precision with the exact error,
//! and then rounds once.

use super::round::{Rounding, round_to_odd, two_sum};
use crate::code::Handler;
use crate::execute::lanes::{each1, each3_imm};
use crate::ptx::types::Type;

/// A 16-bit floating-point format.
pub(crate) trait Format: Copy + 'static {
    /// Bits of the significand, the hidden one included.
    const PRECISION: u32;
    /// The exponent of the largest finite numbers.
    const MAX_EXPONENT: i32;
    /// The result of an invalid operation.
    const NAN: u16 = 0x7fff;
}

/// IEEE half precision.
#[derive(Clone, Copy)]
pub(crate) struct F16;
/// bfloat16.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl Format for F16 {
    const PRECISION: u32 = 11;
    const MAX_EXPONENT: i32 = 15;
}

impl Format for Bf16 {
    const PRECISION: u32 = 8;
    const MAX_EXPONENT: i32 = 127;
}

/// The value of 16 bits; exact.
pub(crate) fn decode<F: Format>(bits: u16) -> f64 {
    let fraction_bits = F::PRECISION - 1;
    let exponent_bits = 15 - fraction_bits;
    let fraction = u64::from(bits) & ((1 << fraction_bits) - 1);
    let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    let min_exponent = 1 - F::MAX_EXPONENT;
    let magnitude = if exponent == (1 << exponent_bits) - 1 {
        // A NaN keeps its payload and becomes quiet.
        f64::from_bits(
            0x7ff << 52 | if fraction != 0 { 1 << 51 | fraction << (52 - fraction_bits) } else { 0 },
        )
    } else if exponent == 0 {
        fraction as f64 * power(min_exponent - fraction_bits as i32)
    } else {
        let significand = fraction | 1 << fraction_bits;
        significand as f64 * power(exponent - F::MAX_EXPONENT - fraction_bits as i32)
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// Two to the power of `exponent`, which is in the range of normal doubles.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns the 16 bits nearest to `value` in the direction of `rounding`. Values that overflow become infinite or the
/// largest finite number, depending on the direction.
pub(crate) fn encode<F: Format>(value: f64, rounding: Rounding) -> u16 {
    if value.is_nan() {
        return F::NAN;
    }
    let sign = u16::from(value.is_sign_negative()) << 15;
    let fraction_bits = F::PRECISION as i32 - 1;
    let infinity = ((1_u32 << (15 - fraction_bits)) - 1) << fraction_bits;
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | infinity as u16;
    }
    let min_exponent = 1 - F::MAX_EXPONENT;
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(min_exponent);
    // One unit in the last place at this exponent; `magnitude / unit` is exact and less than 2^PRECISION.
    let unit = power(exponent - fraction_bits);
    let steps = magnitude / unit;
    let steps = match (rounding, sign != 0) {
        (Rounding::Nearest, _) => steps.round_ties_even(),
        (Rounding::Zero, _) | (Rounding::Down, false) | (Rounding::Up, true) => steps.trunc(),
        _ => steps.ceil(),
    };
    // Adding the significand to the exponent field automatically carries into the next exponent.
    let field = (exponent - min_exponent) as u32;
    let bits = (field << fraction_bits) + steps as u32;
    if bits < infinity {
        return sign | bits as u16;
    }
    let away = matches!(
        (rounding, sign != 0),
        (Rounding::Nearest, _) | (Rounding::Down, true) | (Rounding::Up, false)
    );
    sign | if away { infinity as u16 } else { (infinity - 1) as u16 }
}

/// The final rounding of a result, with the modifiers in `imm`.
fn finish<F: Format>(value: f64, imm: u64) -> u16 {
    let bits = encode::<F>(value, Rounding::Nearest);
    // Before rounding: a result that rounds up to a normal number is flushed too.
    let subnormal = value.abs() < power(1 - F::MAX_EXPONENT);
    let bits = if imm & FLUSH != 0 && subnormal { bits & 0x8000 } else { bits };
    let negative = bits & 0x8000 != 0;
    if imm & SATURATE != 0 {
        return if value.is_nan() || negative { 0 } else { bits.min(encode::<F>(1.0, Rounding::Nearest)) };
    }
    if imm & RELU != 0 && negative && !value.is_nan() { 0 } else { bits }
}

fn input<F: Format>(bits: u16, imm: u64) -> f64 {
    let subnormal = bits & 0x7fff < 1 << (F::PRECISION - 1);
    decode::<F>(if imm & FLUSH != 0 && subnormal { bits & 0x8000 } else { bits })
}

fn fused(a: f64, b: f64, c: f64) -> f64 {
    let (sum, error) = two_sum(a * b, c);
    round_to_odd(sum, if sum.is_finite() { error } else { 0.0 })
}

fn least(a: f64, b: f64, imm: u64) -> f64 {
    if imm & XOR_SIGN != 0 {
        return signed(least(a.abs(), b.abs(), imm & !XOR_SIGN), a, b);
    }
    if imm & PROPAGATE != 0 && (a.is_nan() || b.is_nan()) {
        return f64::NAN;
    }
    if a < b || b.is_nan() || (a == b && a.is_sign_negative()) { a } else { b }
}

/// `value` with the product of the signs of `a` and `b`.
fn signed(value: f64, a: f64, b: f64) -> f64 {
    value.copysign(if a.is_sign_negative() == b.is_sign_negative() { 1.0 } else { -1.0 })
}

fn most(a: f64, b: f64, imm: u64) -> f64 {
    if imm & XOR_SIGN != 0 {
        return signed(most(a.abs(), b.abs(), imm & !XOR_SIGN), a, b);
    }
    if imm & PROPAGATE != 0 && (a.is_nan() || b.is_nan()) {
        return f64::NAN;
    }
    if a > b || b.is_nan() || (a == b && a.is_sign_positive()) { a } else { b }
}

/// min of two, by bits.
pub(crate) fn least_bits<F: Format>(a: u16, b: u16) -> u16 {
    finish::<F>(least(decode::<F>(a), decode::<F>(b), 0), 0)
}

/// max of two, by bits.
pub(crate) fn most_bits<F: Format>(a: u16, b: u16) -> u16 {
    finish::<F>(most(decode::<F>(a), decode::<F>(b), 0), 0)
}

fn pair1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(a as u16)) | u32::from(f((a >> 16) as u16)) << 16
}

pub(crate) fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    let high = f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
    u32::from(f(a as u16, b as u16, c as u16)) | u32::from(high) << 16
}

const FLUSH: u64 = 1;
const SATURATE: u64 = 2;
const RELU: u64 = 4;
const PROPAGATE: u64 = 8;
const XOR_SIGN: u64 = 16;

/// The modifiers of a half-precision instruction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HalfModifiers {
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    pub(crate) relu: bool,
    /// `.NaN` of min and max.
    pub(crate) propagate: bool,
    /// `.xorsign.abs` of min and max.
    pub(crate) xor_sign: bool,
}

impl HalfModifiers {
    /// [`crate::code::Instr::imm`] of [`binary`] and [`multiply_add`].
    pub(crate) fn imm(self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        bit(self.flush, FLUSH)
            | bit(self.saturate, SATURATE)
            | bit(self.relu, RELU)
            | bit(self.propagate, PROPAGATE)
            | bit(self.xor_sign, XOR_SIGN)
    }
}

/// add, sub, mul, min, max; `ops[3]` is ignored, of the same width.
pub(crate) fn binary(name: &str, kind: Type, m: HalfModifiers) -> Option<Handler> {
    if (m.relu || m.xor_sign) && !matches!(name, "min" | "max") {
        return None;
    }
    match name {
        "add" if !m.propagate => of_two(kind, |a, b, _| a + b),
        "sub" if !m.propagate => of_two(kind, |a, b, _| a - b),
        "mul" if !m.propagate => of_two(kind, |a, b, _| a * b),
        "min" if !m.saturate && !m.relu => of_two(kind, least),
        "max" if !m.saturate && !m.relu => of_two(kind, most),
        _ => None,
    }
}

/// The handler of an operation with two operands.
fn of_two(kind: Type, f: impl Fn(f64, f64, u64) -> f64 + Copy + 'static) -> Option<Handler> {
    fn element<F: Format>(a: u16, b: u16, imm: u64, f: impl Fn(f64, f64, u64) -> f64) -> u16 {
        finish::<F>(f(input::<F>(a, imm), input::<F>(b, imm), imm), imm)
    }
    fn one<F: Format>(f: impl Fn(f64, f64, u64) -> f64 + Copy + 'static) -> Handler {
        each3_imm(move |a: u16, b: u16, _: u16, imm| element::<F>(a, b, imm, f))
    }
    fn pair<F: Format>(f: impl Fn(f64, f64, u64) -> f64 + Copy + 'static) -> Handler {
        each3_imm(move |a: u32, b: u32, _: u32, imm| pair2(a, b, |a, b| element::<F>(a, b, imm, f)))
    }
    Some(match kind {
        Type::F16 => one::<F16>(f),
        Type::Bf16 => one::<Bf16>(f),
        Type::F16x2 => pair::<F16>(f),
        Type::Bf16x2 => pair::<Bf16>(f),
        _ => return None,
    })
}

/// fma.
pub(crate) fn multiply_add(kind: Type, m: HalfModifiers) -> Option<Handler> {
    fn element<F: Format>(a: u16, b: u16, c: u16, imm: u64) -> u16 {
        finish::<F>(fused(input::<F>(a, imm), input::<F>(b, imm), input::<F>(c, imm)), imm)
    }
    fn pair<F: Format>(a: u32, b: u32, c: u32, imm: u64) -> u32 {
        pair3(a, b, c, |a, b, c| element::<F>(a, b, c, imm))
    }
    if m.propagate || (m.saturate && m.relu) {
        return None;
    }
    Some(match kind {
        Type::F16 => each3_imm(element::<F16>),
        Type::Bf16 => each3_imm(element::<Bf16>),
        Type::F16x2 => each3_imm(pair::<F16>),
        Type::Bf16x2 => each3_imm(pair::<Bf16>),
        _ => return None,
    })
}

/// abs, neg, ex2, tanh.
pub(crate) fn unary(name: &str, kind: Type, flush: bool) -> Option<Handler> {
    fn flushed_f16(a: u16) -> u16 {
        if a & 0x7c00 == 0 { a & 0x8000 } else { a }
    }
    fn canonical<const INFINITY: u16>(a: u16) -> u16 {
        if a & 0x7fff > INFINITY { 0x7fff } else { a }
    }
    let half = matches!(kind, Type::F16 | Type::F16x2);
    match (name, half, flush) {
        ("abs", true, true) => of_bits(kind, |a| canonical::<0x7c00>(flushed_f16(a) & 0x7fff)),
        ("neg", true, true) => of_bits(kind, |a| canonical::<0x7c00>(flushed_f16(a) ^ 0x8000)),
        ("abs", true, false) => of_bits(kind, |a| canonical::<0x7c00>(a & 0x7fff)),
        ("neg", true, false) => of_bits(kind, |a| canonical::<0x7c00>(a ^ 0x8000)),
        ("abs", false, false) => of_bits(kind, |a| canonical::<0x7f80>(a & 0x7fff)),
        ("neg", false, false) => of_bits(kind, |a| canonical::<0x7f80>(a ^ 0x8000)),
        ("ex2", ..) => of_one(kind, f64::exp2),
        ("tanh", ..) => of_one(kind, f64::tanh),
        _ => None,
    }
}

/// The handler of an operation on the bits of an element.
fn of_bits(kind: Type, f: impl Fn(u16) -> u16 + Copy + 'static) -> Option<Handler> {
    match kind {
        Type::F16 | Type::Bf16 => Some(each1(f)),
        Type::F16x2 | Type::Bf16x2 => Some(each1(move |a: u32| pair1(a, f))),
        _ => None,
    }
}

/// The handler of a function of one operand.
fn of_one(kind: Type, f: impl Fn(f64) -> f64 + Copy + 'static) -> Option<Handler> {
    match kind {
        Type::F16 | Type::F16x2 => of_bits(kind, move |a| finish::<F16>(f(decode::<F16>(a)), 0)),
        _ => of_bits(kind, move |a| finish::<Bf16>(f(decode::<Bf16>(a)), 0)),
    }
}

/// The value of a half-precision register for comparisons and conversions.
pub(crate) fn to_f32(kind: Type, bits: u16) -> f32 {
    // Every f16 and bf16 is a single-precision number.
    (if kind == Type::Bf16 { decode::<Bf16>(bits) } else { decode::<F16>(bits) }) as f32
}
