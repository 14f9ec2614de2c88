// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IEEE 754 rounding in all directions: from the nearest result and the side on which the exact one lies.

use std::cmp::Ordering;

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

/// The rounding modes of PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// From `rn`, `rz`, `rm`, `rp` or their `i` forms.
    pub(crate) fn from_name(name: &str) -> Option<Rounding> {
        Some(match name {
            "rn" | "rni" => Rounding::Nearest,
            "rz" | "rzi" => Rounding::Zero,
            "rm" | "rmi" => Rounding::Down,
            "rp" | "rpi" => Rounding::Up,
            _ => return None,
        })
    }

    /// From the low bits of an instruction's parameter.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Rounding {
        match bits & 3 {
            0 => Rounding::Nearest,
            1 => Rounding::Zero,
            2 => Rounding::Down,
            _ => Rounding::Up,
        }
    }

    fn exact(self) -> Round {
        match self {
            Rounding::Nearest => Round::NearestTiesToEven,
            Rounding::Zero => Round::TowardZero,
            Rounding::Down => Round::TowardNegative,
            Rounding::Up => Round::TowardPositive,
        }
    }
}

/// `nearest` is the exact value rounded to nearest; `exact` is the exact value's order relative to it.
#[inline(always)]
pub(crate) fn steer32(nearest: f32, exact: Ordering, rounding: Rounding) -> f32 {
    match step(nearest.is_sign_positive(), exact, rounding) {
        Ordering::Less => nearest.next_down(),
        Ordering::Equal => nearest,
        Ordering::Greater => nearest.next_up(),
    }
}

/// As [`steer32`].
#[inline(always)]
pub(crate) fn steer64(nearest: f64, exact: Ordering, rounding: Rounding) -> f64 {
    match step(nearest.is_sign_positive(), exact, rounding) {
        Ordering::Less => nearest.next_down(),
        Ordering::Equal => nearest,
        Ordering::Greater => nearest.next_up(),
    }
}

/// Returns on which side of the nearest number the rounded one is.
#[inline(always)]
fn step(is_positive: bool, exact: Ordering, rounding: Rounding) -> Ordering {
    let smaller = match rounding {
        Rounding::Nearest => return Ordering::Equal,
        Rounding::Zero => is_positive,
        Rounding::Down => true,
        Rounding::Up => false,
    };
    match exact {
        Ordering::Less if smaller => Ordering::Less,
        Ordering::Greater if !smaller => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// The sum of two doubles and its exact error (when nothing overflows).
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `sum + error` as a single-precision number.
#[inline(always)]
fn narrow(sum: f64, error: f64, rounding: Rounding) -> f32 {
    let nearest_odd = round_to_odd(sum, error) as f32;
    if !sum.is_finite() {
        return nearest_odd;
    }
    let wide = f64::from(nearest_odd);
    let exact = match sum.partial_cmp(&wide) {
        Some(Ordering::Equal) | None => error.partial_cmp(&0.0).unwrap_or(Ordering::Equal),
        Some(order) => order,
    };
    steer32(nearest_odd, exact, rounding)
}

/// The double next to `sum + error` that keeps all later roundings to fewer bits right: inexact results get an odd
/// last bit.
#[inline(always)]
pub(crate) fn round_to_odd(sum: f64, error: f64) -> f64 {
    let bits = sum.to_bits();
    if error == 0.0 || bits & 1 != 0 || !sum.is_finite() {
        return sum;
    }
    f64::from_bits(if (error > 0.0) == (sum > 0.0) { bits | 1 } else { bits - 1 })
}

/// The sign of an exact zero that came from operands of different signs.
#[inline(always)]
fn signed_zero(sum: f64, rounding: Rounding, both_negative: bool) -> f64 {
    if sum == 0.0 && rounding == Rounding::Down && !both_negative { -0.0 } else { sum }
}

/// `a + b`
#[inline(always)]
pub(crate) fn add32(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma32(a, 1.0, b, rounding)
}

/// `a * b`
#[inline(always)]
pub(crate) fn mul32(a: f32, b: f32, rounding: Rounding) -> f32 {
    narrow(f64::from(a) * f64::from(b), 0.0, rounding)
}

/// `a * b + c`
#[inline(always)]
pub(crate) fn fma32(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    // The product of two single-precision numbers is exact in double precision.
    let product = f64::from(a) * f64::from(b);
    let addend = f64::from(c);
    let (sum, error) = two_sum(product, addend);
    if sum == 0.0 {
        let same_sign = product.is_sign_negative() == addend.is_sign_negative();
        return signed_zero(sum, rounding, same_sign) as f32;
    }
    narrow(sum, if sum.is_finite() { error } else { 0.0 }, rounding)
}

/// `a / b`
#[inline(always)]
pub(crate) fn div32(a: f32, b: f32, rounding: Rounding) -> f32 {
    let nearest = a / b;
    if rounding == Rounding::Nearest || nearest.is_nan() || !a.is_finite() || !b.is_finite() || b == 0.0 {
        return nearest;
    }
    let exact = if nearest.is_infinite() {
        0.0_f32.partial_cmp(&nearest)
    } else {
        // Exact in double precision. The quotient is larger than `nearest` when the product is too small, if b > 0.
        let product = f64::from(nearest) * f64::from(b);
        let order = f64::from(a).partial_cmp(&product);
        if b < 0.0 { order.map(Ordering::reverse) } else { order }
    };
    steer32(nearest, exact.unwrap_or(Ordering::Equal), rounding)
}

/// The square root of `a`.
#[inline(always)]
pub(crate) fn sqrt32(a: f32, rounding: Rounding) -> f32 {
    let nearest = a.sqrt();
    if !nearest.is_finite() || rounding == Rounding::Nearest {
        return nearest;
    }
    let square = f64::from(nearest) * f64::from(nearest);
    steer32(nearest, f64::from(a).partial_cmp(&square).unwrap_or(Ordering::Equal), rounding)
}

/// The square root of `a`.
pub(crate) fn sqrt64(a: f64, rounding: Rounding) -> f64 {
    let nearest = with_nan64(a.sqrt(), [a]);
    if !nearest.is_finite() || rounding == Rounding::Nearest || a == 0.0 {
        return nearest;
    }
    // Scaled so that the residue does not underflow: by 2^216 and, the root, by 2^108.
    let scale = if a < 1e-200 { f64::from_bits((1023 + 108) << 52) } else { 1.0 };
    let root = nearest * scale;
    let residue = root.mul_add(-root, a * scale * scale);
    steer64(nearest, residue.partial_cmp(&0.0).unwrap_or(Ordering::Equal), rounding)
}

fn double(value: f64) -> Double {
    Double::from_bits(u128::from(value.to_bits()))
}

fn back(value: Double) -> f64 {
    f64::from_bits(value.to_bits() as u64)
}

/// Returns whether the bits are those of a NaN. Tests of the value may be folded away by the compiler together with the choice of
/// the NaN: to it, all NaN are one.
#[inline(always)]
pub(crate) fn is_nan64(a: f64) -> bool {
    a.to_bits() & (u64::MAX >> 1) > 0x7ff0_0000_0000_0000
}

/// Makes a NaN quiet, with the same sign and payload.
#[inline(always)]
pub(crate) fn quiet64(a: f64) -> f64 {
    f64::from_bits(a.to_bits() | 0x0008_0000_0000_0000)
}

/// The result of an invalid operation on hardware.
const DEFAULT_NAN64: f64 = f64::from_bits(0xfff8_0000_0000_0000);

/// `result`, unless it is NaN: then the first NaN among the operands, or the default one.
#[inline(always)]
pub(crate) fn with_nan64<const N: usize>(result: f64, operands: [f64; N]) -> f64 {
    for operand in operands {
        if is_nan64(operand) {
            return quiet64(operand);
        }
    }
    if is_nan64(result) { DEFAULT_NAN64 } else { result }
}

/// `a + b`. When both are NaN the second counts, as on hardware; so in `mul64`.
pub(crate) fn add64(a: f64, b: f64, rounding: Rounding) -> f64 {
    with_nan64(back(double(a).add_r(double(b), rounding.exact()).value), [b, a])
}

/// `a - b`, preserving the sign of a NaN.
pub(crate) fn sub64(a: f64, b: f64, rounding: Rounding) -> f64 {
    with_nan64(back(double(a).add_r(double(-b), rounding.exact()).value), [b, a])
}

/// `a * b`
pub(crate) fn mul64(a: f64, b: f64, rounding: Rounding) -> f64 {
    with_nan64(back(double(a).mul_r(double(b), rounding.exact()).value), [b, a])
}

/// `a / b`
pub(crate) fn div64(a: f64, b: f64, rounding: Rounding) -> f64 {
    with_nan64(back(double(a).div_r(double(b), rounding.exact()).value), [a, b])
}

/// `a * b + c`
pub(crate) fn fma64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    with_nan64(back(double(a).mul_add_r(double(b), double(c), rounding.exact()).value), [b, c, a])
}

/// Returns whether the exact `a * b + c` is smaller than every normal single-precision number: such results are flushed although
/// they may round to a normal one.
#[inline(always)]
pub(crate) fn is_tiny32(a: f32, b: f32, c: f32) -> bool {
    let (sum, error) = two_sum(f64::from(a) * f64::from(b), f64::from(c));
    round_to_odd(sum, if sum.is_finite() { error } else { 0.0 }).abs() < f64::from(f32::MIN_POSITIVE)
}

/// A double as a single.
#[inline(always)]
pub(crate) fn narrow64(value: f64, rounding: Rounding) -> f32 {
    narrow(value, 0.0, rounding)
}

/// To an integral value.
#[inline(always)]
pub(crate) fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}
