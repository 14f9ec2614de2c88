// SPDX-License-Identifier: Apache-2.0 OR MIT

//! From random bits to numbers of a distribution, as cuRAND's guide describes them.

use std::f32::consts::TAU as TAU32;
use std::f64::consts::TAU;

const TWO_M32: f32 = 1.0 / (1_u64 << 32) as f32;
const TWO_M53: f64 = 1.0 / (1_u64 << 53) as f64;

/// Above 0, up to 1: of 32 bits.
pub fn uniform(word: u32) -> f32 {
    word as f32 * TWO_M32 + TWO_M32 / 2.0
}

/// Above 0, up to 1: of 53 of 64 bits.
pub fn uniform_double([low, high]: [u32; 2]) -> f64 {
    (u64::from(low) ^ u64::from(high) << 21) as f64 * TWO_M53 + TWO_M53 / 2.0
}

/// Two numbers of the standard normal distribution (Box and Muller), of a number above 0, up to 1, and an angle.
pub fn box_muller(uniform: f32, angle: f32) -> [f32; 2] {
    let radius = (-2.0 * uniform.ln()).sqrt();
    let (sine, cosine) = angle.sin_cos();
    [radius * sine, radius * cosine]
}

/// The same in double precision.
pub fn box_muller_double(uniform: f64, angle: f64) -> [f64; 2] {
    let radius = (-2.0 * uniform.ln()).sqrt();
    let (sine, cosine) = angle.sin_cos();
    [radius * sine, radius * cosine]
}

/// Two normal numbers of two words.
pub fn normal([first, second]: [u32; 2]) -> [f32; 2] {
    box_muller(uniform(first), second as f32 * (TWO_M32 * TAU32) + TWO_M32 / 2.0 * TAU32)
}

/// Two normal numbers in double precision, of four words.
pub fn normal_double([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    box_muller_double(uniform_double([a, b]), uniform_double([c, d]) * TAU)
}

/// The value below which a number of the standard normal distribution lies with that probability (Wichura: "Algorithm AS 241:
/// The percentage points of the normal distribution", PPND16). Its relative error is about 1e-16.
pub fn normal_quantile(probability: f64) -> f64 {
    const CENTRE: ([f64; 8], [f64; 8]) = (
        [
            3.387_132_872_796_366_5,
            133.141_667_891_784_38,
            1_971.590_950_306_551_3,
            13_731.693_765_509_46,
            45_921.953_931_549_87,
            67_265.770_927_008_7,
            33_430.575_583_588_13,
            2_509.080_928_730_122_7,
        ],
        [
            1.0,
            42.313_330_701_600_91,
            687.187_007_492_057_9,
            5_394.196_021_424_751,
            21_213.794_301_586_597,
            39_307.895_800_092_71,
            28_729.085_735_721_943,
            5_226.495_278_852_854,
        ],
    );
    const MIDDLE: ([f64; 8], [f64; 8]) = (
        [
            1.423_437_110_749_683_5,
            4.630_337_846_156_546,
            5.769_497_221_460_691,
            3.647_848_324_763_204_5,
            1.270_458_252_452_368_4,
            0.241_780_725_177_450_6,
            0.022_723_844_989_269_184,
            0.000_774_545_014_278_341_4,
        ],
        [
            1.0,
            2.053_191_626_637_759,
            1.676_384_830_183_803_8,
            0.689_767_334_985_1,
            0.148_103_976_427_480_08,
            0.015_198_666_563_616_457,
            0.000_547_593_808_499_534_5,
            1.050_750_071_644_416_9e-09,
        ],
    );
    const TAIL: ([f64; 8], [f64; 8]) = (
        [
            6.657_904_643_501_103,
            5.463_784_911_164_114,
            1.784_826_539_917_291_3,
            0.296_560_571_828_504_87,
            0.026_532_189_526_576_124,
            0.001_242_660_947_388_078_4,
            2.711_555_568_743_487_6e-05,
            2.010_334_399_292_288_1e-07,
        ],
        [
            1.0,
            0.599_832_206_555_888,
            0.136_929_880_922_735_8,
            0.014_875_361_290_850_615,
            0.000_786_869_131_145_613_3,
            1.846_318_317_510_054_8e-05,
            1.421_511_758_316_446e-07,
            2.044_263_103_389_939_7e-15,
        ],
    );
    let ratio = |(over, under): &([f64; 8], [f64; 8]), x: f64| {
        let polynomial = |factors: &[f64; 8]| factors.iter().rev().fold(0.0, |sum, factor| sum * x + factor);
        polynomial(over) / polynomial(under)
    };
    let q = probability - 0.5;
    if q.abs() <= 0.425 {
        return q * ratio(&CENTRE, 0.180_625 - q * q);
    }
    let distance = (-probability.min(1.0 - probability).ln()).sqrt();
    let value = if distance <= 5.0 { ratio(&MIDDLE, distance - 1.6) } else { ratio(&TAIL, distance - 5.0) };
    value.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_are_above_0_and_up_to_1() {
        assert_eq!((uniform(0), uniform(u32::MAX)), (1.0 / (1_u64 << 33) as f32, 1.0));
        let ends = [uniform_double([0, 0]), uniform_double([u32::MAX, u32::MAX])];
        assert!(ends[0] > 0.0 && ends[1] <= 1.0, "{ends:?}");
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        // The second and the third are of the paper.
        for (probability, value) in [
            (0.5, 0.0),
            (0.25, -0.674_489_750_196_081_7),
            (1e-3, -3.090_232_306_167_813_6),
            (1e-20, -9.262_340_089_798_409),
            (0.975, 1.959_963_984_540_054),
        ] {
            let found = normal_quantile(probability);
            assert!((found - value).abs() <= 4e-16 * value.abs(), "{probability}: {found} is not {value}");
        }
    }
}
