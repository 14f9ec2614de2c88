// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 2^x and the logarithm to base 2 of single-precision numbers, in double precision without calls and branches, so
//! that the compiler vectorises them. The relative error is about 10^-16: a result that is rounded to single
//! precision is nearly always the best one.

/// Added to a double that is not too large, it puts the nearest integer into the lowest bits.
const INTEGER: f64 = 6_755_399_441_055_744.0;

/// ln(2)^n / n!, from n = 12 down to 1.
const POWERS: [f64; 12] = [
    2.5678435993488206e-11,
    4.445_538_271_870_812e-10,
    7.054911620801123e-9,
    1.01780860092397e-7,
    1.321548679014431e-6,
    1.525_273_380_405_984e-5,
    0.0001540353039338161,
    0.0013333558146428443,
    0.009618129107628477,
    0.05550410866482158,
    0.240_226_506_959_100_72,
    std::f64::consts::LN_2,
];

/// 2^a
#[inline(always)]
pub(crate) fn exp2(a: f32) -> f32 {
    // Beyond these limits results are 0 and infinity. The compiler would turn single-precision `if`s into branches
    // instead of vectors.
    let x = f64::from(a).clamp(-200.0, 200.0);
    let shifted = x + INTEGER;
    let rest = x - (shifted - INTEGER);
    let mut power = POWERS[0];
    for factor in &POWERS[1..] {
        power = power * rest + factor;
    }
    power = power * rest + 1.0;
    // The integer is added to the exponent.
    let result = f64::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 52)) as f32;
    let is_nan = a.to_bits() & 0x7fff_ffff > 0x7f80_0000;
    if is_nan { f32::from_bits(0x7fff_ffff) } else { result }
}

/// 2 / ln(2) / (2 n + 1), from n = 10 down to 0.
const ODD: [f64; 11] = [
    0.137_399_527_703_710_8,
    0.15186263588304877,
    0.16972882833987804,
    0.19235933878519512,
    0.221_953_083_213_683_07,
    0.2623082891252538,
    0.3205988979753252,
    0.4121985831111324,
    0.5770780163555853,
    0.9617966939259756,
    2.885_390_081_777_926_8,
];

/// The logarithm to base 2.
#[inline(always)]
pub(crate) fn log2(a: f32) -> f32 {
    // Every positive single-precision number is a normal double.
    let bits = f64::from(a).to_bits();
    // The exponent, chosen so that the rest lies between the roots of 1/2 and 2. Its bias makes it positive, and a
    // double below.
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    const BIAS: u64 = 1023 << 52;
    let biased = bits.wrapping_sub(ROOT).wrapping_add(BIAS) >> 52;
    let rest = f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(BIAS));
    let exponent = f64::from_bits(biased | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + 1023.0);
    let s = (rest - 1.0) / (rest + 1.0);
    let square = s * s;
    let mut sum = ODD[0];
    for factor in &ODD[1..] {
        sum = sum * square + factor;
    }
    let result = (exponent + s * sum) as f32;
    let word = a.to_bits();
    let is_number = word.wrapping_sub(1) < 0x7f7f_ffff;
    let special = if word == 0x7f80_0000 {
        word
    } else if word & 0x7fff_ffff == 0 {
        0xff80_0000
    } else {
        0x7fff_ffff
    };
    if is_number { result } else { f32::from_bits(special) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that results differ from the library's by at most one bit, and not too often.
    fn compare(name: &str, ours: fn(f32) -> f32, library: fn(f64) -> f64, from: f32, to: f32) {
        let count = 1_000_000;
        let mut different = 0;
        for index in 0..=count {
            let x = from + (to - from) * (index as f32 / count as f32);
            let (found, wanted) = (ours(x), library(f64::from(x)) as f32);
            different += u32::from(found.to_bits() != wanted.to_bits());
            assert!(found.to_bits().abs_diff(wanted.to_bits()) <= 1, "{name} of {x}: {found}, not {wanted}");
        }
        assert!(different <= 2, "{name}: {different} of {count} are not the nearest");
    }

    #[test]
    fn functions_are_the_ones_of_the_library() {
        compare("exp2", exp2, f64::exp2, -150.0, 128.0);
        compare("exp2", exp2, f64::exp2, -1.0, 1.0);
        compare("log2", log2, f64::log2, 1e-40, 1e-38);
        compare("log2", log2, f64::log2, 0.5, 2.0);
        compare("log2", log2, f64::log2, 1.0, 1e9);
        compare("log2", log2, f64::log2, 1e30, 3e38);
    }

    #[test]
    fn special_values_are_exact() {
        for power in -149..128 {
            let value = 2f64.powi(power) as f32;
            assert_eq!(exp2(power as f32), value);
            assert_eq!(log2(value), power as f32);
        }
        assert_eq!(exp2(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(128.0), f32::INFINITY);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(f32::NAN).to_bits(), 0x7fff_ffff);
        assert_eq!(log2(0.0), f32::NEG_INFINITY);
        assert_eq!(log2(-0.0), f32::NEG_INFINITY);
        assert_eq!(log2(f32::INFINITY), f32::INFINITY);
        for nan in [f32::NAN, -f32::NAN, -1.0, f32::NEG_INFINITY, -1e-40] {
            assert_eq!(log2(nan).to_bits(), 0x7fff_ffff);
        }
    }
}
