// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formats below half precision, and tf32: e4m3, e5m2, and f32 with a shorter significand.

use super::half::{self, F16, decode, encode};
use super::round::Rounding;
use crate::code::Handler;
use crate::execute::lanes::{each1, each3_imm, map1};

/// In the parameter of [`pack`]: `.relu`.
pub(crate) const RELU: u64 = 1;
const NAN8: u8 = 0x7f;

/// An 8-bit format.
trait Tiny: Copy + 'static {
    const FRACTION_BITS: i32;
    const MIN_EXPONENT: i32;
    /// The bits of the largest finite number.
    const MAX_FINITE: u32;
}

#[derive(Clone, Copy)]
struct E4m3;
#[derive(Clone, Copy)]
struct E5m2;

impl Tiny for E4m3 {
    const FRACTION_BITS: i32 = 3;
    const MIN_EXPONENT: i32 = -6;
    const MAX_FINITE: u32 = 0x7e;
}

impl Tiny for E5m2 {
    const FRACTION_BITS: i32 = 2;
    const MIN_EXPONENT: i32 = -14;
    const MAX_FINITE: u32 = 0x7b;
}

fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// `.rn.satfinite`: values out of range become the largest finite ones.
fn narrow<F: Tiny>(value: f64, relu: bool) -> u8 {
    if value.is_nan() {
        return NAN8;
    }
    let negative = value.is_sign_negative();
    if relu && negative {
        return 0;
    }
    let sign = if negative { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | F::MAX_FINITE as u8;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(F::MIN_EXPONENT);
    let steps = (magnitude / power(exponent - F::FRACTION_BITS)).round_ties_even();
    let bits = ((exponent - F::MIN_EXPONENT) as u32).saturating_mul(1 << F::FRACTION_BITS);
    sign | bits.saturating_add(steps.min(255.0) as u32).min(F::MAX_FINITE) as u8
}

fn e5m2_to_f16(bits: u8) -> u16 {
    u16::from(bits) << 8
}

fn e4m3_to_f64(bits: u8) -> f64 {
    let fraction = f64::from(bits & 7);
    let exponent = i32::from(bits >> 3 & 15);
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction * power(-9),
        _ => (8.0 + fraction) * power(exponent - 10),
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// The value of an e4m3 number.
pub(crate) fn e4m3(bits: u8) -> f32 {
    e4m3_to_f64(bits) as f32
}

/// The value of an e5m2 number.
pub(crate) fn e5m2(bits: u8) -> f32 {
    decode::<F16>(e5m2_to_f16(bits)) as f32
}

/// `cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32`: two f32 to two bytes, `ops[1]` above `ops[2]`; `imm` may be [`RELU`].
pub(crate) fn pack(name: &str) -> Option<Handler> {
    fn two<F: Tiny>(a: f32, b: f32, _: f32, imm: u64) -> u16 {
        let element = |value: f32| u16::from(narrow::<F>(f64::from(value), imm & RELU != 0));
        element(a) << 8 | element(b)
    }
    match name {
        "e4m3x2" => Some(each3_imm(two::<E4m3>)),
        "e5m2x2" => Some(each3_imm(two::<E5m2>)),
        _ => None,
    }
}

/// As [`pack`], from the two halves of `ops[1]`; `ops[2]` and `ops[3]` are the same.
pub(crate) fn pack_halves(name: &str) -> Option<Handler> {
    fn two<F: Tiny>(a: u32, _: u32, _: u32, imm: u64) -> u16 {
        let element = |bits: u32| u16::from(narrow::<F>(decode::<F16>(bits as u16), imm & RELU != 0));
        element(a >> 16) << 8 | element(a)
    }
    match name {
        "e4m3x2" => Some(each3_imm(two::<E4m3>)),
        "e5m2x2" => Some(each3_imm(two::<E5m2>)),
        _ => None,
    }
}

/// `cvt.rn.f16x2.{e4m3x2,e5m2x2}`: `ops[0]` (u32) from the two bytes of `ops[1]` (u16).
pub(crate) fn unpack(name: &str, relu: bool) -> Option<Handler> {
    fn finish(bits: u16, relu: bool) -> u16 {
        if bits & 0x7fff > 0x7c00 {
            return 0x7fff;
        }
        if relu && bits & 0x8000 != 0 { 0 } else { bits }
    }
    fn halves(a: u16, relu: bool, f: impl Fn(u8) -> u16) -> u32 {
        u32::from(finish(f((a >> 8) as u8), relu)) << 16 | u32::from(finish(f(a as u8), relu))
    }
    fn from_e4m3(bits: u8) -> u16 {
        encode::<F16>(e4m3_to_f64(bits), Rounding::Nearest)
    }
    Some(match (name, relu) {
        ("e4m3x2", false) => each1(|a: u16| halves(a, false, from_e4m3)),
        ("e4m3x2", true) => each1(|a: u16| halves(a, true, from_e4m3)),
        ("e5m2x2", false) => each1(|a: u16| halves(a, false, e5m2_to_f16)),
        ("e5m2x2", true) => each1(|a: u16| halves(a, true, e5m2_to_f16)),
        _ => return None,
    })
}

/// The bits of an f32 rounded to the 11 significant bits of tf32; NaN as an H200 treats them.
fn tf32(bits: u32, mode: u8, relu: bool, finite: bool) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    if mode == b'a' {
        let rounded = bits.wrapping_add(0x1000) & !0x1fff;
        return if finite && rounded & 0x7f80_0000 == 0x7f80_0000 { rounded - 0x2000 } else { rounded };
    }
    if magnitude > 0x7f80_0000 {
        return 0x7fff_e000;
    }
    if relu && bits >> 31 != 0 {
        return 0;
    }
    let up = if mode == b'n' { 0xfff + (magnitude >> 13 & 1) } else { 0 };
    let rounded = (magnitude + up) & !0x1fff;
    bits & 0x8000_0000 | rounded.min(if finite { 0x7f7f_e000 } else { 0x7f80_0000 })
}

/// The bits of an f32 rounded to the nearest tf32, ties to even.
pub(crate) fn nearest_tf32(bits: u32) -> u32 {
    tf32(bits, b'n', false, false)
}

/// `cvt.{rna,rn,rz}.tf32.f32`.
pub(crate) fn to_tf32(mode: &str, relu: bool, finite: bool) -> Option<Handler> {
    Some(match (mode, relu, finite) {
        ("rna", false, false) => map1(|a: u32| tf32(a, b'a', false, false)),
        ("rna", false, true) => map1(|a: u32| tf32(a, b'a', false, true)),
        ("rn", false, false) => map1(|a: u32| tf32(a, b'n', false, false)),
        ("rn", false, true) => map1(|a: u32| tf32(a, b'n', false, true)),
        ("rn", true, false) => map1(|a: u32| tf32(a, b'n', true, false)),
        ("rn", true, true) => map1(|a: u32| tf32(a, b'n', true, true)),
        ("rz", false, false) => map1(|a: u32| tf32(a, b'z', false, false)),
        ("rz", false, true) => map1(|a: u32| tf32(a, b'z', false, true)),
        ("rz", true, false) => map1(|a: u32| tf32(a, b'z', true, false)),
        ("rz", true, true) => map1(|a: u32| tf32(a, b'z', true, true)),
        _ => return None,
    })
}

/// `.satfinite` of a conversion to f16 or bf16 (or pairs): an infinite result of `ops[1]` becomes the largest finite one.
pub(crate) fn limit_halves(kind: crate::ptx::types::Type) -> Option<Handler> {
    use crate::ptx::types::Type;
    fn limit<const INFINITY: u16>(bits: u16) -> u16 {
        if bits & 0x7fff == INFINITY { bits - 1 } else { bits }
    }
    fn pair<const INFINITY: u16>(bits: u32) -> u32 {
        u32::from(limit::<INFINITY>((bits >> 16) as u16)) << 16 | u32::from(limit::<INFINITY>(bits as u16))
    }
    Some(match kind {
        Type::F16 => map1(limit::<0x7c00>),
        Type::Bf16 => map1(limit::<0x7f80>),
        Type::F16x2 => map1(pair::<0x7c00>),
        Type::Bf16x2 => map1(pair::<0x7f80>),
        _ => return None,
    })
}

/// cvt.pack to fields of `bits` (2 or 4) bits: `ops[1]` above `ops[2]`, under the rest of `ops[3]`.
pub(crate) fn pack_fields(bits: u32, signed: bool) -> Option<Handler> {
    fn field(value: i32, bits: u32, signed: bool) -> u32 {
        let (least, most) =
            if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        value.clamp(least, most) as u32 & ((1 << bits) - 1)
    }
    fn two<const BITS: u32, const SIGNED: bool>(a: i32, b: i32, c: u32, _: u64) -> u32 {
        c << (2 * BITS) | field(a, BITS, SIGNED) << BITS | field(b, BITS, SIGNED)
    }
    Some(match (bits, signed) {
        (2, false) => each3_imm(two::<2, false>),
        (2, true) => each3_imm(two::<2, true>),
        (4, false) => each3_imm(two::<4, false>),
        (4, true) => each3_imm(two::<4, true>),
        _ => return None,
    })
}

/// f16 to f32, written so that it vectorises.
#[inline(always)]
pub(crate) fn f16(bits: u16) -> f32 {
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// bf16 to f32.
#[inline(always)]
pub(crate) fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// To f16, rounded to nearest.
pub(crate) fn to_f16(value: f64) -> u16 {
    encode::<half::F16>(value, Rounding::Nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_round_trips() {
        for bits in 0..=255_u8 {
            let value = e4m3_to_f64(bits);
            if value.is_nan() {
                assert_eq!(bits & 0x7f, 0x7f);
            } else {
                assert_eq!(narrow::<E4m3>(value, false), bits);
            }
        }
        assert_eq!(narrow::<E4m3>(1e9, false), 0x7e);
        assert_eq!(narrow::<E5m2>(-1e9, false), 0xfb);
        assert_eq!(narrow::<E4m3>(464.0, false), 0x7e);
    }

    #[test]
    fn f16_agrees_with_the_exact_conversion() {
        for bits in 0..=u16::MAX {
            let wanted = decode::<F16>(bits) as f32;
            let value = f16(bits);
            assert!(value.to_bits() == wanted.to_bits() || (value.is_nan() && wanted.is_nan()), "{bits:#x}");
        }
    }
}
