// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cvt. Integers of 8 bits live in 16-bit registers. Lowering first moves a source into the register of its own type
//! and afterwards widens the result to the destination register. So here every type has one width.

use super::float::{canonical, flush, saturate};
use super::half::{Bf16, F16, Format, decode, encode};
use super::round::{self, Rounding, round_to_odd};
use crate::code::Handler;
use crate::execute::lanes::{each1, each2, each3_imm, map1};
use crate::ptx::types::Type;

const FLUSH: u64 = 4;
const SATURATE: u64 = 8;
const RELU: u64 = 16;

/// Modifiers of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) rounding: Rounding,
    /// Round to an integral value (`.rni` and so on, float to float).
    pub(crate) integral: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    pub(crate) relu: bool,
}

impl Conversion {
    /// [`crate::code::Instr::imm`] of the handlers.
    pub(crate) fn imm(self) -> u64 {
        self.rounding as u64
            | if self.flush { FLUSH } else { 0 }
            | if self.saturate { SATURATE } else { 0 }
            | if self.relu { RELU } else { 0 }
    }
}

/// Extends the low bits of a register to another: from `bits` of a register of `from` bytes to one of `to` bytes.
pub(crate) fn extend(from: u32, bits: u32, signed: bool, to: u32) -> Option<Handler> {
    Some(match (from, bits, to, signed) {
        (2, 8, 2, false) => map1(|a: u16| a as u8 as u16),
        (2, 8, 2, true) => map1(|a: u16| a as i8 as u16),
        (4, 8, 2, false) => map1(|a: u32| a as u8 as u16),
        (4, 8, 2, true) => map1(|a: u32| a as i8 as u16),
        (8, 8, 2, false) => map1(|a: u64| a as u8 as u16),
        (8, 8, 2, true) => map1(|a: u64| a as i8 as u16),
        (4, 16, 2, false) => map1(|a: u32| a as u16),
        (4, 16, 2, true) => map1(|a: u32| a as i16 as u16),
        (8, 16, 2, false) => map1(|a: u64| a as u16),
        (8, 16, 2, true) => map1(|a: u64| a as i16 as u16),
        (8, 32, 4, false) => map1(|a: u64| a as u32),
        (8, 32, 4, true) => map1(|a: u64| a as i32 as u32),
        (2, 8, 4, false) => map1(|a: u16| a as u8 as u32),
        (2, 8, 4, true) => map1(|a: u16| a as i8 as u32),
        (2, 8, 8, false) => map1(|a: u16| a as u8 as u64),
        (2, 8, 8, true) => map1(|a: u16| a as i8 as u64),
        (2, 16, 4, false) => map1(|a: u16| a as u32),
        (2, 16, 4, true) => map1(|a: u16| a as i16 as u32),
        (2, 16, 8, false) => map1(|a: u16| a as u64),
        (2, 16, 8, true) => map1(|a: u16| a as i16 as u64),
        (4, 32, 8, false) => map1(|a: u32| a as u64),
        (4, 32, 8, true) => map1(|a: u32| a as i32 as u64),
        _ => return None,
    })
}

/// Between integer types; with `saturate`, to the nearest value of the destination. `ops[1]`, `ops[2]` and `ops[3]` are
/// all the operand.
pub(crate) fn integer(to: Type, from: Type, saturate: bool) -> Option<Handler> {
    match from {
        Type::U8 | Type::U16 => integer_to::<u16>(to, saturate),
        Type::S8 | Type::S16 => integer_to::<i16>(to, saturate),
        Type::U32 => integer_to::<u32>(to, saturate),
        Type::S32 => integer_to::<i32>(to, saturate),
        Type::U64 => integer_to::<u64>(to, saturate),
        Type::S64 => integer_to::<i64>(to, saturate),
        _ => None,
    }
}

/// From an integer of type `S`. A cast from 128 bits is as fast as one from `S`: the upper bits are not computed.
fn integer_to<S: Copy + Into<i128> + 'static>(to: Type, saturate: bool) -> Option<Handler> {
    fn either<S: Copy + Into<i128> + 'static, W: Copy + 'static>(
        saturate: bool,
        cast: impl Fn(i128) -> W + Copy + 'static,
        nearest: impl Fn(i128) -> W + Copy + 'static,
    ) -> Handler {
        if saturate { each1(move |a: S| nearest(a.into())) } else { map1(move |a: S| cast(a.into())) }
    }
    Some(match to {
        Type::U8 => either::<S, u16>(
            saturate,
            |a| a as u8 as u16,
            |a| a.clamp(u8::MIN.into(), u8::MAX.into()) as u8 as u16,
        ),
        Type::S8 => either::<S, i16>(
            saturate,
            |a| a as i8 as i16,
            |a| a.clamp(i8::MIN.into(), i8::MAX.into()) as i8 as i16,
        ),
        Type::U16 => {
            either::<S, u16>(saturate, |a| a as u16, |a| a.clamp(u16::MIN.into(), u16::MAX.into()) as u16)
        }
        Type::S16 => {
            either::<S, i16>(saturate, |a| a as i16, |a| a.clamp(i16::MIN.into(), i16::MAX.into()) as i16)
        }
        Type::U32 => {
            either::<S, u32>(saturate, |a| a as u32, |a| a.clamp(u32::MIN.into(), u32::MAX.into()) as u32)
        }
        Type::S32 => {
            either::<S, i32>(saturate, |a| a as i32, |a| a.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
        }
        Type::U64 => {
            either::<S, u64>(saturate, |a| a as u64, |a| a.clamp(u64::MIN.into(), u64::MAX.into()) as u64)
        }
        Type::S64 => {
            either::<S, i64>(saturate, |a| a as i64, |a| a.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
        }
        _ => return None,
    })
}

/// Returns the double next to an integer, and the exact error.
fn split(value: i128) -> (f64, f64) {
    let nearest = value as f64;
    (nearest, (value - nearest as i128) as f64)
}

fn to_single(value: i128, rounding: Rounding) -> f32 {
    let nearest = value as f32;
    round::steer32(nearest, value.cmp(&(nearest as i128)), rounding)
}

fn to_double(value: i128, rounding: Rounding) -> f64 {
    let nearest = value as f64;
    round::steer64(nearest, value.cmp(&(nearest as i128)), rounding)
}

/// From an integer; `ops[1]`, `ops[2]` and `ops[3]` are all the operand.
pub(crate) fn from_integer(to: Type, from: Type, how: Conversion) -> Option<Handler> {
    match from {
        Type::U8 | Type::U16 => integer_as::<u16>(to, how, |a| a as f32, |a| a as f64),
        Type::S8 | Type::S16 => integer_as::<i16>(to, how, |a| a as f32, |a| a as f64),
        Type::U32 => integer_as::<u32>(to, how, |a| a as f32, |a| a as f64),
        Type::S32 => integer_as::<i32>(to, how, |a| a as f32, |a| a as f64),
        Type::U64 => integer_as::<u64>(to, how, |a| a as f32, |a| a as f64),
        Type::S64 => integer_as::<i64>(to, how, |a| a as f32, |a| a as f64),
        _ => None,
    }
}

/// From an integer of type `S`, whose conversions without modifiers are given.
fn integer_as<S: Copy + Into<i128> + 'static>(
    to: Type,
    how: Conversion,
    single: impl Fn(S) -> f32 + Copy + 'static,
    double: impl Fn(S) -> f64 + Copy + 'static,
) -> Option<Handler> {
    fn half<F: Format>(value: i128, imm: u64) -> u16 {
        let (sum, error) = split(value);
        encode::<F>(limit(round_to_odd(sum, error), imm), Rounding::from_bits(imm))
    }
    let plain = how.imm() == 0;
    Some(match to {
        Type::F32 if plain => map1(single),
        Type::F64 if plain => map1(double),
        Type::F32 => each3_imm(|a: S, _: S, _: S, imm| {
            let value = to_single(a.into(), Rounding::from_bits(imm));
            if imm & SATURATE != 0 { saturate(value) } else { value }
        }),
        Type::F64 => each3_imm(|a: S, _: S, _: S, imm| {
            let value = to_double(a.into(), Rounding::from_bits(imm));
            if imm & SATURATE != 0 { value.clamp(0.0, 1.0) } else { value }
        }),
        Type::F16 => each3_imm(|a: S, _: S, _: S, imm| half::<F16>(a.into(), imm)),
        Type::Bf16 => each3_imm(|a: S, _: S, _: S, imm| half::<Bf16>(a.into(), imm)),
        _ => return None,
    })
}

/// Applies saturation and relu before the final rounding: both keep their result exact.
fn limit(value: f64, imm: u64) -> f64 {
    if imm & SATURATE != 0 {
        if value > 0.0 { value.min(1.0) } else { 0.0 }
    } else if imm & RELU != 0 && value <= 0.0 {
        0.0
    } else {
        value
    }
}

/// A floating-point source as a double. `S` is the register.
trait Source: Copy + 'static {
    fn double(self, imm: u64) -> f64;
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Half(u16);
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Brain(u16);

impl Source for f32 {
    #[inline(always)]
    fn double(self, imm: u64) -> f64 {
        f64::from(if imm & FLUSH != 0 { canonical(flush(self)) } else { self })
    }
}
impl Source for f64 {
    #[inline(always)]
    fn double(self, _: u64) -> f64 {
        self
    }
}
impl Source for Half {
    #[inline(always)]
    fn double(self, _: u64) -> f64 {
        decode::<F16>(self.0)
    }
}
impl Source for Brain {
    #[inline(always)]
    fn double(self, _: u64) -> f64 {
        decode::<Bf16>(self.0)
    }
}

/// To an integer; `ops[1]`, `ops[2]` and `ops[3]` are all the operand. Values out of range become the nearest one. NaN
/// becomes 0, or for 64-bit operands the value with only the highest bit set.
pub(crate) fn to_integer(to: Type, from: Type, how: Conversion) -> Option<Handler> {
    if from == Type::F32 && how.imm() == Rounding::Zero as u64 {
        match to {
            Type::S32 => return Some(map1(|a: f32| a as i32)),
            Type::U32 => return Some(map1(|a: f32| a as u32)),
            _ => {}
        }
    }
    match from {
        Type::F16 => integer_from::<Half>(to, false),
        Type::Bf16 => integer_from::<Brain>(to, false),
        Type::F32 => integer_from::<f32>(to, false),
        Type::F64 => integer_from::<f64>(to, true),
        _ => None,
    }
}

fn integer_from<S: Source>(to: Type, double: bool) -> Option<Handler> {
    /// For NaN, the result is `highest` or 0.
    fn each<S: Source, W: Copy + 'static>(
        has_highest: bool,
        nearest: impl Fn(f64) -> W + Copy + 'static,
        highest: impl Fn() -> W + Copy + 'static,
    ) -> Handler {
        if has_highest {
            each3_imm(move |a: S, _: S, _: S, imm| {
                let value = round::integral(a.double(imm), Rounding::from_bits(imm));
                if value.is_nan() { highest() } else { nearest(value) }
            })
        } else {
            each3_imm(move |a: S, _: S, _: S, imm| {
                nearest(round::integral(a.double(imm), Rounding::from_bits(imm)))
            })
        }
    }
    Some(match to {
        Type::U8 => each::<S, u16>(double, |value| value as u8 as u16, || 1 << 7),
        Type::S8 => each::<S, i16>(double, |value| value as i8 as i16, || -1 << 7),
        Type::U16 => each::<S, u16>(double, |value| value as u16, || 1 << 15),
        Type::S16 => each::<S, i16>(double, |value| value as i16, || i16::MIN),
        Type::U32 => each::<S, u32>(double, |value| value as u32, || 1 << 31),
        Type::S32 => each::<S, i32>(double, |value| value as i32, || i32::MIN),
        Type::U64 => each::<S, u64>(true, |value| value as u64, || 1 << 63),
        Type::S64 => each::<S, i64>(true, |value| value as i64, || i64::MIN),
        _ => return None,
    })
}

/// Between floating-point types; `ops[1]`, `ops[2]` and `ops[3]` are all the operand.
pub(crate) fn float(to: Type, from: Type, how: Conversion) -> Option<Handler> {
    let plain = how.imm() == 0 && !how.integral;
    match (to, from) {
        // A NaN from f64 keeps its sign and payload.
        (Type::F32, Type::F64) if plain => return Some(map1(|a: f64| a as f32)),
        (Type::F32, Type::F64) if !how.integral => {
            return Some(each3_imm(|a: f64, _: f64, _: f64, imm| {
                if a.is_nan() && imm & SATURATE == 0 { a as f32 } else { single(a, imm) }
            }));
        }
        (Type::F16, Type::F64) if !how.integral => {
            return Some(each3_imm(|a: f64, _: f64, _: f64, imm| {
                if a.is_nan() && imm & SATURATE == 0 { shortened_nan(a) } else { half(a, imm) }
            }));
        }
        (Type::Bf16, Type::F64) if !how.integral => {
            return Some(each3_imm(|a: f64, _: f64, _: f64, imm| {
                let bits = a.to_bits();
                if a.is_nan() && imm & SATURATE == 0 {
                    (bits >> 48) as u16 & 0x8000 | 0x7fc0 | (bits >> 45) as u16 & 0x3f
                } else {
                    encode::<Bf16>(limit(a, imm), Rounding::from_bits(imm))
                }
            }));
        }
        (Type::F64, Type::F32) if plain => return Some(map1(|a: f32| f64::from(a))),
        (Type::F32, Type::F16) if plain => {
            return Some(map1(|a: u16| canonical(decode::<F16>(a) as f32)));
        }
        (Type::F32, Type::Bf16) if plain => {
            return Some(map1(|a: u16| u32::from(a) << 16));
        }
        _ => {}
    }
    match from {
        Type::F16 => float_from::<Half>(to, how.integral),
        Type::Bf16 => float_from::<Brain>(to, how.integral),
        Type::F32 => float_from::<f32>(to, how.integral),
        Type::F64 => float_from::<f64>(to, how.integral),
        _ => None,
    }
}

fn float_from<S: Source>(to: Type, integral: bool) -> Option<Handler> {
    if integral { integral_to::<S>(to) } else { float_to::<S>(to) }
}

/// Returns the f16 NaN with the sign and the first bits of the payload of a double.
fn shortened_nan(a: f64) -> u16 {
    let bits = a.to_bits();
    (bits >> 48) as u16 & 0x8000 | 0x7e00 | (bits >> 42) as u16 & 0x1ff
}

fn half(value: f64, imm: u64) -> u16 {
    encode::<F16>(limit(value, imm), Rounding::from_bits(imm))
}

#[inline(always)]
fn single(value: f64, imm: u64) -> f32 {
    let value = canonical(round::narrow64(value, Rounding::from_bits(imm)));
    let value = if imm & FLUSH != 0 { flush(value) } else { value };
    let value = if imm & RELU != 0 && value <= 0.0 { 0.0 } else { value };
    if imm & SATURATE != 0 { saturate(value) } else { value }
}

fn float_to<S: Source>(to: Type) -> Option<Handler> {
    Some(match to {
        Type::F32 => each3_imm(|a: S, _: S, _: S, imm| single(a.double(imm), imm)),
        Type::F64 => each3_imm(|a: S, _: S, _: S, imm| limit(a.double(imm), imm)),
        Type::F16 => each3_imm(|a: S, _: S, _: S, imm| {
            encode::<F16>(limit(a.double(imm), imm), Rounding::from_bits(imm))
        }),
        Type::Bf16 => each3_imm(|a: S, _: S, _: S, imm| {
            encode::<Bf16>(limit(a.double(imm), imm), Rounding::from_bits(imm))
        }),
        _ => return None,
    })
}

/// As [`float_to`], rounding to an integral value: the result is then exact.
fn integral_to<S: Source>(to: Type) -> Option<Handler> {
    Some(match to {
        Type::F32 => each3_imm(|a: S, _: S, _: S, imm| {
            single(round::integral(a.double(imm), Rounding::from_bits(imm)), imm)
        }),
        Type::F64 => each3_imm(|a: S, _: S, _: S, imm| {
            let value = a.double(imm);
            let whole = round::integral(value, Rounding::from_bits(imm));
            limit(if round::is_nan64(value) { round::quiet64(value) } else { whole }, imm)
        }),
        Type::F16 => each3_imm(|a: S, _: S, _: S, imm| {
            encode::<F16>(
                limit(round::integral(a.double(imm), Rounding::from_bits(imm)), imm),
                Rounding::Nearest,
            )
        }),
        Type::Bf16 => each3_imm(|a: S, _: S, _: S, imm| {
            encode::<Bf16>(
                limit(round::integral(a.double(imm), Rounding::from_bits(imm)), imm),
                Rounding::Nearest,
            )
        }),
        _ => return None,
    })
}

/// `cvt.rn.f16x2.f32 d, a, b`: `a` to the upper half, `b` to the lower one; `ops[3]` is ignored.
pub(crate) fn pack_halves(to: Type) -> Option<Handler> {
    fn pack<F: Format>(a: f32, b: f32, _: f32, imm: u64) -> u32 {
        let half = |value: f32| encode::<F>(limit(value.double(0), imm), Rounding::from_bits(imm));
        u32::from(half(a)) << 16 | u32::from(half(b))
    }
    Some(match to {
        Type::F16x2 => each3_imm(pack::<F16>),
        Type::Bf16x2 => each3_imm(pack::<Bf16>),
        _ => return None,
    })
}

/// cvt.pack.sat of two s32 to 16 bits.
pub(crate) fn pack_shorts(signed: bool) -> Handler {
    if signed {
        each2(|a: i32, b: i32| {
            let clamp = |value: i32| u32::from(value.clamp(-0x8000, 0x7fff) as u16);
            clamp(a) << 16 | clamp(b)
        })
    } else {
        each2(|a: i32, b: i32| {
            let clamp = |value: i32| value.clamp(0, 0xffff) as u32;
            clamp(a) << 16 | clamp(b)
        })
    }
}

/// cvt.pack.sat of two s32 to 8 bits, above the low half of a third operand.
pub(crate) fn pack_bytes(signed: bool) -> Handler {
    if signed {
        each3_imm(|a: i32, b: i32, c: u32, _| {
            let clamp = |value: i32| u32::from(value.clamp(-0x80, 0x7f) as u8);
            c << 16 | clamp(a) << 8 | clamp(b)
        })
    } else {
        each3_imm(|a: i32, b: i32, c: u32, _| {
            let clamp = |value: i32| value.clamp(0, 0xff) as u32;
            c << 16 | clamp(a) << 8 | clamp(b)
        })
    }
}
