// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sine and cosine of single-precision numbers, computed in double precision like `exponential`, for arguments that
//! are not too large. The library computes the others.

use super::float::{canonical, flush};
use crate::code::{Handler, Instr, LANES};
use crate::execute::state::{Flow, Machine};

/// Arguments up to this value are computed for all lanes together.
const MAX_ARGUMENT: f32 = 1e6;

/// Added to a double that is not too large, it puts the nearest integer into the lowest bits.
const INTEGER: f64 = 6_755_399_441_055_744.0;

/// π/2 in two parts: products of the first one with small integers are exact.
const HALF_PI: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];

/// Coefficients of sine, from x^13 down to x^3, between -π/4 and π/4: those of fdlibm.
const SINE: [f64; 6] = [
    1.589_690_995_211_55e-10,
    -2.505_076_025_340_686_3e-8,
    2.755_731_370_707_006_8e-6,
    -1.984_126_982_985_795e-4,
    8.333_333_333_322_49e-3,
    -1.666_666_666_666_663_2e-1,
];

/// Coefficients of cosine, from x^14 down to x^4.
const COSINE: [f64; 6] = [
    -1.135_964_755_778_819_5e-11,
    2.087_572_321_298_175e-9,
    -2.755_731_435_139_066_3e-7,
    2.480_158_728_947_673e-5,
    -1.388_888_888_887_411e-3,
    4.166_666_666_666_66e-2,
];

/// Returns whether an argument is up to [`MAX_ARGUMENT`]; false for NaN.
#[inline(always)]
fn is_near(a: f32) -> bool {
    a.abs() <= MAX_ARGUMENT
}

#[inline(always)]
fn polynomial(factors: &[f64; 6], square: f64) -> f64 {
    let mut sum = factors[0];
    for factor in &factors[1..] {
        sum = sum * square + factor;
    }
    sum
}

/// Computes the sine or cosine of an argument up to [`MAX_ARGUMENT`]. The result for other arguments is arbitrary.
#[inline(always)]
fn near<const COSINE_WANTED: bool>(a: f32) -> f32 {
    let x = f64::from(a);
    let shifted = x * std::f64::consts::FRAC_2_PI + INTEGER;
    let quarters = shifted - INTEGER;
    let rest = (x - quarters * HALF_PI[0]) - quarters * HALF_PI[1];
    let square = rest * rest;
    let sine = rest + rest * square * polynomial(&SINE, square);
    let cosine = 1.0 - square * 0.5 + square * square * polynomial(&COSINE, square);
    let quarter = shifted.to_bits().wrapping_add(u64::from(COSINE_WANTED));
    let value = if quarter & 1 != 0 { cosine } else { sine };
    let sign = (quarter & 2) << 62;
    let value = f64::from_bits(value.to_bits() ^ sign) as f32;
    // The sign of zero is preserved.
    if !COSINE_WANTED && a == 0.0 { a } else { value }
}

#[inline(always)]
unsafe fn body<const COSINE_WANTED: bool, const FLUSHED: bool>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    // SAFETY: `ops[0]` and `ops[1]` are f32 (`circular`).
    unsafe {
        let mut arguments = machine.lanes::<f32>(instr.ops[1]);
        if FLUSHED {
            arguments = arguments.map(flush);
        }
        let mut results = [0.0; LANES];
        let mut far = false;
        for (result, a) in results.iter_mut().zip(arguments) {
            *result = near::<COSINE_WANTED>(a);
            far |= !is_near(a);
        }
        if far {
            for (result, a) in results.iter_mut().zip(arguments).filter(|(_, a)| !is_near(*a)) {
                let x = f64::from(a);
                *result = canonical((if COSINE_WANTED { x.cos() } else { x.sin() }) as f32);
            }
        }
        if FLUSHED {
            results = results.map(flush);
        }
        machine.set_lanes(instr.ops[0], &results);
    }
    Flow::Next
}

/// sin.approx and cos.approx: `ops[0]` from `ops[1]`, both f32.
pub(crate) fn circular(cosine: bool, flushed: bool) -> Handler {
    unsafe fn base<const C: bool, const F: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the caller keeps the contract of `Handler`.
        unsafe { body::<C, F>(machine, instr) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn wide<const C: bool, const F: bool>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
        // SAFETY: the caller keeps the contract of `Handler`.
        unsafe { body::<C, F>(machine, instr) }
    }
    #[cfg(target_arch = "x86_64")]
    if crate::vectors::has_wide_vectors() {
        return match (cosine, flushed) {
            (false, false) => wide::<false, false>,
            (false, true) => wide::<false, true>,
            (true, false) => wide::<true, false>,
            (true, true) => wide::<true, true>,
        };
    }
    match (cosine, flushed) {
        (false, false) => base::<false, false>,
        (false, true) => base::<false, true>,
        (true, false) => base::<true, false>,
        (true, true) => base::<true, true>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_the_ones_of_the_library() {
        let ranges = [(-4.0, 4.0), (-1e-3, 1e-3), (100.0, 1000.0), (-1e6, 1e6)];
        for (from, to) in ranges {
            let count = 300_000;
            let mut different = 0;
            for index in 0..=count {
                let x = from + (to - from) * (index as f32 / count as f32);
                let pairs = [
                    (near::<false>(x), f64::from(x).sin() as f32),
                    (near::<true>(x), f64::from(x).cos() as f32),
                ];
                for (found, wanted) in pairs {
                    different += u32::from(found.to_bits() != wanted.to_bits());
                    assert!(found.to_bits().abs_diff(wanted.to_bits()) <= 1, "of {x}: {found}, not {wanted}");
                }
            }
            assert!(different <= 2, "{from} to {to}: {different} are not the nearest");
        }
        // The single-precision numbers next to multiples of π/2.
        for multiple in 1..600_000_u32 {
            let x = (f64::from(multiple) * std::f64::consts::FRAC_PI_2) as f32;
            let (sine, cosine) = (f64::from(x).sin() as f32, f64::from(x).cos() as f32);
            assert!(near::<false>(x).to_bits().abs_diff(sine.to_bits()) <= 1, "sine of {x}");
            assert!(near::<true>(x).to_bits().abs_diff(cosine.to_bits()) <= 1, "cosine of {x}");
        }
        assert_eq!(near::<false>(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(near::<true>(0.0), 1.0);
    }
}
