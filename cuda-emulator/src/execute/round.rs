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
    pub(super) fn from_bits(bits: u64) -> Rounding {
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

macro_rules! steer {
    ($name:ident, $t:ty) => {
        /// `nearest` is the exact value rounded to nearest; `exact` says how the exact one compares to it.
        #[inline(always)]
        pub(super) fn $name(nearest: $t, exact: Ordering, rounding: Rounding) -> $t {
            let smaller = match rounding {
                Rounding::Nearest => return nearest,
                Rounding::Zero => nearest.is_sign_positive(),
                Rounding::Down => true,
                Rounding::Up => false,
            };
            match exact {
                Ordering::Less if smaller => nearest.next_down(),
                Ordering::Greater if !smaller => nearest.next_up(),
                _ => nearest,
            }
        }
    };
}
steer!(steer32, f32);
steer!(steer64, f64);

/// The sum of two doubles and its exact error (when nothing overflows).
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
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
pub(super) fn round_to_odd(sum: f64, error: f64) -> f64 {
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
pub(super) fn add32(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma32(a, 1.0, b, rounding)
}

/// `a * b`
#[inline(always)]
pub(super) fn mul32(a: f32, b: f32, rounding: Rounding) -> f32 {
    narrow(f64::from(a) * f64::from(b), 0.0, rounding)
}

/// `a * b + c`
#[inline(always)]
pub(super) fn fma32(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
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
pub(super) fn div32(a: f32, b: f32, rounding: Rounding) -> f32 {
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
pub(super) fn sqrt32(a: f32, rounding: Rounding) -> f32 {
    let nearest = a.sqrt();
    if !nearest.is_finite() || rounding == Rounding::Nearest {
        return nearest;
    }
    let square = f64::from(nearest) * f64::from(nearest);
    steer32(nearest, f64::from(a).partial_cmp(&square).unwrap_or(Ordering::Equal), rounding)
}

/// The square root of `a`.
pub(super) fn sqrt64(a: f64, rounding: Rounding) -> f64 {
    let nearest = a.sqrt();
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

/// `a + b`
pub(super) fn add64(a: f64, b: f64, rounding: Rounding) -> f64 {
    back(double(a).add_r(double(b), rounding.exact()).value)
}

/// `a * b`
pub(super) fn mul64(a: f64, b: f64, rounding: Rounding) -> f64 {
    back(double(a).mul_r(double(b), rounding.exact()).value)
}

/// `a / b`
pub(super) fn div64(a: f64, b: f64, rounding: Rounding) -> f64 {
    back(double(a).div_r(double(b), rounding.exact()).value)
}

/// `a * b + c`
pub(super) fn fma64(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    back(double(a).mul_add_r(double(b), double(c), rounding.exact()).value)
}

/// A double as a single.
#[inline(always)]
pub(super) fn narrow64(value: f64, rounding: Rounding) -> f32 {
    narrow(value, 0.0, rounding)
}

/// To an integral value.
#[inline(always)]
pub(super) fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}
