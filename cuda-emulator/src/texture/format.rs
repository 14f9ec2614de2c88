// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texel formats: from bytes to channel values.

/// The type of one channel of a texel (CUarray_format).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// CU_AD_FORMAT_UNSIGNED_INT8
    U8,
    /// CU_AD_FORMAT_UNSIGNED_INT16
    U16,
    /// CU_AD_FORMAT_UNSIGNED_INT32
    U32,
    /// CU_AD_FORMAT_SIGNED_INT8
    S8,
    /// CU_AD_FORMAT_SIGNED_INT16
    S16,
    /// CU_AD_FORMAT_SIGNED_INT32
    S32,
    /// CU_AD_FORMAT_HALF
    F16,
    /// CU_AD_FORMAT_FLOAT
    F32,
    /// CU_AD_FORMAT_UNORM_INT8X*: read as 0.0..=1.0.
    Unorm8,
    /// CU_AD_FORMAT_UNORM_INT16X*
    Unorm16,
    /// CU_AD_FORMAT_SNORM_INT8X*: read as -1.0..=1.0.
    Snorm8,
    /// CU_AD_FORMAT_SNORM_INT16X*
    Snorm16,
}

impl Channel {
    /// Bytes of one channel.
    #[inline(always)]
    pub fn bytes(self) -> u32 {
        match self {
            Channel::U8 | Channel::S8 | Channel::Unorm8 | Channel::Snorm8 => 1,
            Channel::U16 | Channel::S16 | Channel::F16 | Channel::Unorm16 | Channel::Snorm16 => 2,
            Channel::U32 | Channel::S32 | Channel::F32 => 4,
        }
    }

    /// The channel type that a read as normalised float makes of it: 32-bit integers are never converted.
    pub fn normalized(self) -> Channel {
        match self {
            Channel::U8 => Channel::Unorm8,
            Channel::U16 => Channel::Unorm16,
            Channel::S8 => Channel::Snorm8,
            Channel::S16 => Channel::Snorm16,
            other => other,
        }
    }

    /// The number that 16 bits are.
    pub(super) fn value(self, bits: u16) -> f32 {
        let [low, high] = bits.to_le_bytes();
        f32::from_bits(self.decode([low, high, 0, 0]))
    }

    /// Returns whether reads give floating-point values.
    #[inline(always)]
    pub fn is_float(self) -> bool {
        !matches!(self, Channel::U8 | Channel::U16 | Channel::U32 | Channel::S8 | Channel::S16 | Channel::S32)
    }

    /// One channel as a kernel gets it: the bits of an f32, or an integer extended to 32 bits.
    #[inline(always)]
    fn decode(self, bytes: [u8; 4]) -> u32 {
        let half = u16::from_le_bytes([bytes[0], bytes[1]]);
        match self {
            Channel::U8 => u32::from(bytes[0]),
            Channel::S8 => i32::from(bytes[0] as i8) as u32,
            Channel::U16 => u32::from(half),
            Channel::S16 => i32::from(half as i16) as u32,
            Channel::U32 | Channel::S32 | Channel::F32 => u32::from_le_bytes(bytes),
            Channel::F16 => f32_of_half(half).to_bits(),
            Channel::Unorm8 => (f32::from(bytes[0]) / 255.0).to_bits(),
            Channel::Unorm16 => (f32::from(half) / 65535.0).to_bits(),
            Channel::Snorm8 => (f32::from(bytes[0] as i8) / 127.0).max(-1.0).to_bits(),
            Channel::Snorm16 => (f32::from(half as i16) / 32767.0).max(-1.0).to_bits(),
        }
    }

    /// The bytes that a formatted store (`sust.p`) makes of a register; the first [`Self::bytes`] count.
    pub fn encode(self, bits: u32) -> [u8; 4] {
        let value = f32::from_bits(bits);
        // Float to integer conversions of Rust saturate and make 0 of NaN.
        let scaled = |most: f32, least: f32| (value.clamp(least, 1.0) * most).round_ties_even();
        match self {
            Channel::F16 => u32::from(half_of_f32(value)).to_le_bytes(),
            Channel::Unorm8 => (scaled(255.0, 0.0) as u32).to_le_bytes(),
            Channel::Unorm16 => (scaled(65535.0, 0.0) as u32).to_le_bytes(),
            Channel::Snorm8 => (scaled(127.0, -1.0) as i32).to_le_bytes(),
            Channel::Snorm16 => (scaled(32767.0, -1.0) as i32).to_le_bytes(),
            _ => bits.to_le_bytes(),
        }
    }
}

/// The format of a texel: one to four channels of the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The type of each channel.
    pub channel: Channel,
    /// 1, 2 or 4.
    pub channels: u32,
}

impl Format {
    /// Bytes of a texel, 1..=16.
    #[inline(always)]
    pub fn bytes(self) -> u32 {
        self.channel.bytes() * self.channels
    }

    /// The same with one channel.
    #[inline(always)]
    pub(super) fn one_channel(self) -> Format {
        Format { channels: 1, ..self }
    }

    /// All channels of the texel at `from` as a kernel gets them; channels that the format lacks are 0.
    ///
    /// # Safety
    /// [`Self::bytes`] bytes can be read at `from`; other threads may write them.
    #[inline(always)]
    pub(super) unsafe fn decode_at(self, from: *const u8) -> [u32; 4] {
        let mut values = [0; 4];
        if self.channel.bytes() == 4 {
            // As they are.
            for (index, value) in values.iter_mut().enumerate().take(self.channels as usize) {
                // SAFETY: as many bytes as the format has can be read at `from` by this function's contract.
                *value = unsafe { from.cast::<u32>().add(index).read_unaligned() };
            }
            return values;
        }
        let size = self.channel.bytes() as usize;
        for (index, value) in values.iter_mut().enumerate().take(self.channels as usize) {
            // SAFETY: as many bytes as the format has can be read at `from` by this function's contract.
            let [low, high] = unsafe {
                let from = from.add(index * size);
                if size == 1 { [from.read(), 0] } else { from.cast::<[u8; 2]>().read() }
            };
            *value = self.channel.decode([low, high, 0, 0]);
        }
        values
    }
}

/// Exact: every half is a float.
fn f32_of_half(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10) & 0x1f;
    let fraction = u32::from(half) & 0x3ff;
    match exponent {
        0 => {
            let magnitude = fraction as f32 / 16_777_216.0;
            f32::from_bits(magnitude.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// Rounds to the nearest half, ties to even.
fn half_of_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Subnormal halves are multiples of 2^-24; the product is exact before it is rounded.
        let scaled = f32::from_bits(magnitude) * 16_777_216.0;
        return sign | scaled.round_ties_even() as u16;
    }
    let rebased = magnitude - (112 << 23);
    let rounded = rebased + 0xfff + (rebased >> 13 & 1);
    sign | (rounded >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_survive_the_way_to_float_and_back() {
        for half in 0..=u16::MAX {
            let value = f32_of_half(half);
            if !value.is_nan() {
                assert_eq!(half_of_f32(value), half);
            }
        }
        assert_eq!(f32_of_half(0x3c00), 1.0);
        assert_eq!(half_of_f32(65519.9), 0x7bff);
        assert_eq!(half_of_f32(65520.0), 0x7c00);
        assert_eq!(half_of_f32(1.0 + 1.0 / 2048.0), 0x3c00);
    }

    #[test]
    fn normalised_channels_reach_both_ends() {
        let read = |channel: Channel, bytes| f32::from_bits(channel.decode(bytes));
        assert_eq!(read(Channel::Unorm8, [255, 0, 0, 0]), 1.0);
        assert_eq!(read(Channel::Snorm8, [0x80, 0, 0, 0]), -1.0);
        assert_eq!(read(Channel::Snorm8, [127, 0, 0, 0]), 1.0);
        assert_eq!(read(Channel::Unorm16, [255, 255, 0, 0]), 1.0);
        assert_eq!(Channel::Unorm8.encode(0.5f32.to_bits())[0], 128);
        assert_eq!(Channel::Snorm8.encode((-7f32).to_bits())[0], 0x81);
        assert_eq!(Channel::Unorm8.encode(f32::NAN.to_bits())[0], 0);
        assert_eq!(Channel::S8.decode([0xff, 1, 1, 1]), u32::MAX);
    }
}
