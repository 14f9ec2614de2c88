// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block-compressed formats: 4 by 4 texels in 8 or 16 bytes. BC1 to BC5 do not define the rounding of values between
//! two ends: it is done as on an H200 here. BC6H and BC7 define every bit.

use super::format::{Channel, Format};

/// The compression of texels; `CU_AD_FORMAT_BC*`, with and without sRGB alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Two colours of 16 bits and what lies between them.
    Bc1,
    /// A colour as of BC1, and alpha of 4 bits.
    Bc2,
    /// A colour as of BC1, and alpha between two ends.
    Bc3,
    /// One channel between two ends; signed or not.
    Bc4 {
        /// -1 to 1, else 0 to 1.
        signed: bool,
    },
    /// Two channels, each as of BC4.
    Bc5 {
        /// As of BC4.
        signed: bool,
    },
    /// Three halves.
    Bc6 {
        /// They may be negative.
        signed: bool,
    },
    /// Four channels, in one of eight modes.
    Bc7,
}

/// The format that textures of these formats return: four floats.
pub const READ: Format = Format { channel: Channel::F32, channels: 4 };

/// Red, green, blue, alpha.
type Texel = [f32; 4];

impl Compression {
    /// Bytes of a block.
    pub fn block_bytes(self) -> u32 {
        if matches!(self, Compression::Bc1 | Compression::Bc4 { .. }) { 8 } else { 16 }
    }

    /// Returns whether it has colours, which may be sRGB, and alpha.
    pub fn has_colors(self) -> bool {
        matches!(self, Compression::Bc1 | Compression::Bc2 | Compression::Bc3 | Compression::Bc7)
    }

    /// Texel `x`, `y` (0 to 3) of a block, of which BC1 and BC4 have the first half. Channels that the format lacks are 0,
    /// alpha is 1.
    pub fn texel(self, block: &[u8; 16], [x, y]: [u32; 2]) -> Texel {
        let index = (y & 3) * 4 + (x & 3);
        let [mut low, mut high] = [[0; 8]; 2];
        low.copy_from_slice(&block[..8]);
        high.copy_from_slice(&block[8..]);
        let unorm = |bytes: [u8; 4]| bytes.map(|byte| f32::from(byte) / 255.0);
        let end = |block, signed| if signed { signed_channel(block, index) } else { channel(block, index) };
        match self {
            Compression::Bc1 => unorm(color(low, index, false)),
            Compression::Bc2 => {
                let [red, green, blue, _] = color(high, index, true);
                let alpha = (u64::from_le_bytes(low) >> (index * 4) & 0xf) as u8 * 0x11;
                unorm([red, green, blue, alpha])
            }
            Compression::Bc3 => {
                let [red, green, blue, _] = color(high, index, true);
                unorm([red, green, blue, alpha(low, index)])
            }
            Compression::Bc4 { signed } => [end(low, signed), 0.0, 0.0, 1.0],
            Compression::Bc5 { signed } => [end(low, signed), end(high, signed), 0.0, 1.0],
            Compression::Bc6 { signed } => {
                let mut texels = [0; 48];
                bcdec_rs::bc6h_half(block, &mut texels, 12, signed);
                let half = |channel: usize| Channel::F16.value(texels[index as usize * 3 + channel]);
                [half(0), half(1), half(2), 1.0]
            }
            Compression::Bc7 => {
                let mut texels = [0; 64];
                bcdec_rs::bc7(block, &mut texels, 16);
                let at = index as usize * 4;
                unorm([texels[at], texels[at + 1], texels[at + 2], texels[at + 3]])
            }
        }
    }
}

/// A colour of BC1. `four`: there is no black with alpha 0, whatever the order of the ends.
fn color(block: [u8; 8], index: u32, four: bool) -> [u8; 4] {
    let ends = [0, 2].map(|at| u16::from_le_bytes([block[at], block[at + 1]]));
    let parts = |end: u16| [end >> 11, end >> 5 & 0x3f, end & 0x1f].map(i32::from);
    let whole = |end: u16| {
        let [red, green, blue] = parts(end);
        [red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2]
    };
    let code = block[4 + index as usize / 4] >> (index % 4 * 2) & 3;
    let has_four = four || ends[0] > ends[1];
    // From one end towards the other: a third, or a half.
    let between = |from: u16, to: u16| {
        let ([red, _, blue], [to_red, _, to_blue]) = (parts(from), parts(to));
        let (green, difference) = (whole(from)[1], whole(to)[1] - whole(from)[1]);
        let mix = |from: i32, to: i32| if has_four { (2 * from + to) * 22 / 8 } else { (from + to) * 33 / 8 };
        let weight = if has_four { 80 } else { 128 };
        let green = (256 * green + difference / 4 + 128 + difference * weight) / 256;
        [mix(red, to_red), green, mix(blue, to_blue)]
    };
    let [red, green, blue] = match code {
        0 => whole(ends[0]),
        1 => whole(ends[1]),
        2 => between(ends[0], ends[1]),
        _ if has_four => between(ends[1], ends[0]),
        _ => return [0; 4],
    };
    [red as u8, green as u8, blue as u8, 255]
}

/// The value of a channel of a texel.
enum Choice {
    First,
    Second,
    /// This number of 64ths from the first end to the second.
    FromFirst(i32),
    /// This number of 64ths from the second end to the first.
    FromSecond(i32),
    Least,
    Most,
}

/// Returns the meaning of a texel's code. `eight`: all codes lie between the ends.
fn choice(block: [u8; 8], index: u32, eight: bool) -> Choice {
    use Choice::{First, FromFirst, FromSecond, Least, Most, Second};
    let code = u64::from_le_bytes(block) >> (16 + index * 3) & 7;
    match (code, eight) {
        (0, _) => First,
        (1, _) => Second,
        (2, true) => FromFirst(9),
        (3, true) => FromFirst(18),
        (4, true) => FromSecond(36),
        (5, true) => FromFirst(36),
        (6, true) => FromSecond(18),
        (7, true) => FromSecond(9),
        (2, false) => FromFirst(12),
        (3, false) => FromFirst(24),
        (4, false) => FromSecond(24),
        (5, false) => FromSecond(12),
        (6, false) => Least,
        _ => Most,
    }
}

/// Alpha of BC3, which has 8 bits.
fn alpha(block: [u8; 8], index: u32) -> u8 {
    let [first, second] = [block[0], block[1]].map(i32::from);
    let difference = second - first;
    let step = |weight: i32| {
        let length = difference.abs() + (difference.abs() >> 7);
        ((length * weight + 32) >> 6) * difference.signum()
    };
    let value = match choice(block, index, first > second) {
        Choice::First => first,
        Choice::Second => second,
        Choice::FromFirst(weight) => first + step(weight),
        Choice::FromSecond(weight) => second - step(weight),
        Choice::Least => 0,
        Choice::Most => 255,
    };
    value as u8
}

/// A channel of BC4, which has 16 bits.
fn channel(block: [u8; 8], index: u32) -> f32 {
    let [first, second] = [block[0], block[1]].map(i32::from);
    let difference = 4 * (second - first);
    let value = match choice(block, index, first > second) {
        Choice::First => first * 257,
        Choice::Second => second * 257,
        Choice::FromFirst(weight) => first * 257 + difference * weight,
        Choice::FromSecond(weight) => second * 257 - difference * weight,
        Choice::Least => 0,
        Choice::Most => 65_535,
    };
    value as f32 / 65_535.0
}

/// A signed channel of BC4.
fn signed_channel(block: [u8; 8], index: u32) -> f32 {
    // There are two numbers for -1.
    let [first, second] = [block[0], block[1]].map(|byte| i32::from(byte as i8).max(-127));
    let whole = |value: i32| {
        let length = value.abs();
        (length << 8 | length << 1 | length >> 6) * value.signum()
    };
    let difference = 4 * (second - first);
    let value = match choice(block, index, first > second) {
        Choice::First => whole(first),
        Choice::Second => whole(second),
        Choice::FromFirst(weight) => whole(first) + difference * weight,
        Choice::FromSecond(weight) => whole(second) - difference * weight,
        Choice::Least => -32_767,
        Choice::Most => 32_767,
    };
    value as f32 / 32_767.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(low: [u8; 8], high: [u8; 8]) -> [u8; 16] {
        std::array::from_fn(|at| if at < 8 { low[at] } else { high[at - 8] })
    }

    /// The bits that an H200 reads.
    #[test]
    fn values_between_ends_are_those_of_an_h200() {
        let colors = block([0x78, 0x56, 0x34, 0x12, 0xe4, 0x39, 0x4e, 0x93], [0; 8]);
        let bits = |compression: Compression, block: &[u8; 16], at: [u32; 2]| {
            compression.texel(block, at).map(f32::to_bits)
        };
        let expected = [0x3e70_f0f1, 0x3f24_a4a5, 0x3f3b_bbbc, 0x3f80_0000];
        assert_eq!(bits(Compression::Bc1, &colors, [2, 0]), expected);
        let three = block([0x34, 0x12, 0x78, 0x56, 0xe4, 0x39, 0x4e, 0x93], [0; 8]);
        assert_eq!(bits(Compression::Bc1, &three, [2, 0])[..3], [0x3e44_c4c5, 0x3f0a_8a8b, 0x3f35_b5b6]);
        assert_eq!(bits(Compression::Bc1, &three, [3, 0]), [0; 4]);
        let (ends, six) =
            ([0x80, 0x7f, 0x88, 0xc6, 0xfa, 5, 0x39, 0x77], [0x20, 0xc0, 0x88, 0xc6, 0xfa, 0, 0, 0]);
        let unsigned = Compression::Bc4 { signed: false };
        let first = |compression, low: [u8; 8], x, y| bits(compression, &block(low, [0; 8]), [x, y])[0];
        assert_eq!(first(unsigned, ends, 2, 0), 0x3f00_5c80);
        assert_eq!(first(unsigned, ends, 1, 1), 0x3eff_e100);
        assert_eq!(first(unsigned, six, 3, 0), 0x3eb8_40b8);
        assert_eq!(first(unsigned, six, 1, 1), 0x3f22_c0a3);
        let signed = Compression::Bc4 { signed: true };
        assert_eq!(first(signed, six, 2, 0), 0x3e16_012c);
        assert_eq!(first(signed, ends, 2, 0), 0xbf20_bf41);
        let alphas = [0xff, 0, 0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa];
        let of_bc3: Vec<u8> = (0..8).map(|index| alpha(alphas, index)).collect();
        assert_eq!(of_bc3, [255, 0, 219, 183, 144, 111, 72, 36]);
    }

    /// Any bytes are a block.
    #[test]
    fn no_block_is_refused() {
        let all = [
            Compression::Bc1,
            Compression::Bc2,
            Compression::Bc3,
            Compression::Bc5 { signed: false },
            Compression::Bc5 { signed: true },
            Compression::Bc6 { signed: false },
            Compression::Bc6 { signed: true },
            Compression::Bc7,
        ];
        let mut seed = 1u64;
        for round in 0..50_000u64 {
            let mut block = [0; 16];
            for byte in &mut block {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (seed >> 56) as u8;
            }
            // Every mode of BC6H and BC7 in turn.
            block[0] = (round % 256) as u8;
            for compression in all {
                let texel = compression.texel(&block, [(round % 4) as u32, (round / 4 % 4) as u32]);
                let within = texel.iter().all(|value| value.abs() <= 1.0);
                assert!(
                    within || matches!(compression, Compression::Bc6 { .. }),
                    "{compression:?} {block:?}"
                );
            }
        }
    }
}
