// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cvt. Integers of 8 bits live in 16-bit registers. Lowering first moves a source into the register of its own type
//! and afterwards widens the result to the destination register. So here every type has one width.

use super::float::{canonical, flush, saturate};
use super::half::{Bf16, F16, decode, encode};
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
    macro_rules! table {
        ($($from:literal $bits:literal $to:literal: $r:ty, $u:ty, $s:ty, $d:ty;)*) => {
            match (from, bits, to, signed) {
                $(
                    ($from, $bits, $to, false) => Some(map1(|a: $r| a as $u as $d)),
                    ($from, $bits, $to, true) => Some(map1(|a: $r| a as $s as $d)),
                )*
                _ => None,
            }
        };
    }
    table! {
        2 8 2: u16, u8, i8, u16; 4 8 2: u32, u8, i8, u16; 8 8 2: u64, u8, i8, u16;
        4 16 2: u32, u16, i16, u16; 8 16 2: u64, u16, i16, u16;
        8 32 4: u64, u32, i32, u32;
        2 8 4: u16, u8, i8, u32; 2 8 8: u16, u8, i8, u64;
        2 16 4: u16, u16, i16, u32; 2 16 8: u16, u16, i16, u64;
        4 32 8: u32, u32, i32, u64;
    }
}

/// Between integer types; with `saturate`, to the nearest value of the destination. `ops[1]`, `ops[2]` and `ops[3]` are
/// all the operand.
pub(crate) fn integer(to: Type, from: Type, saturate: bool) -> Option<Handler> {
    macro_rules! to {
        ($s:ty, $($d:ident $t:ty, $w:ty;)*) => {
            match (to, saturate) {
                $(
                    (Type::$d, false) => Some(map1(|a: $s| a as $t as $w)),
                    (Type::$d, true) => Some(each1(|a: $s| {
                        i128::from(a).clamp(i128::from(<$t>::MIN), i128::from(<$t>::MAX)) as $t as $w
                    })),
                )*
                _ => None,
            }
        };
    }
    macro_rules! from {
        ($($kind:pat => $s:ty;)*) => {
            match from {
                $($kind => to! { $s,
                    U8 u8, u16; S8 i8, i16; U16 u16, u16; S16 i16, i16;
                    U32 u32, u32; S32 i32, i32; U64 u64, u64; S64 i64, i64;
                },)*
                _ => None,
            }
        };
    }
    from! {
        Type::U8 | Type::U16 => u16; Type::S8 | Type::S16 => i16;
        Type::U32 => u32; Type::S32 => i32; Type::U64 => u64; Type::S64 => i64;
    }
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
    let plain = how.imm() == 0;
    macro_rules! each {
        ($s:ty) => {
            match to {
                Type::F32 if plain => map1(|a: $s| a as f32),
                Type::F64 if plain => map1(|a: $s| a as f64),
                Type::F32 => each3_imm(|a: $s, _: $s, _: $s, imm| {
                    let value = to_single(i128::from(a), Rounding::from_bits(imm));
                    if imm & SATURATE != 0 { saturate(value) } else { value }
                }),
                Type::F64 => each3_imm(|a: $s, _: $s, _: $s, imm| {
                    let value = to_double(i128::from(a), Rounding::from_bits(imm));
                    if imm & SATURATE != 0 { value.clamp(0.0, 1.0) } else { value }
                }),
                Type::F16 => each3_imm(|a: $s, _: $s, _: $s, imm| {
                    let (sum, error) = split(i128::from(a));
                    encode::<F16>(limit(round_to_odd(sum, error), imm), Rounding::from_bits(imm))
                }),
                Type::Bf16 => each3_imm(|a: $s, _: $s, _: $s, imm| {
                    let (sum, error) = split(i128::from(a));
                    encode::<Bf16>(limit(round_to_odd(sum, error), imm), Rounding::from_bits(imm))
                }),
                _ => return None,
            }
        };
    }
    Some(match from {
        Type::U8 | Type::U16 => each!(u16),
        Type::S8 | Type::S16 => each!(i16),
        Type::U32 => each!(u32),
        Type::S32 => each!(i32),
        Type::U64 => each!(u64),
        Type::S64 => each!(i64),
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
    macro_rules! to {
        ($t:ty, $w:ty) => {
            if double || size_of::<$t>() == 8 {
                each3_imm(|a: S, _: S, _: S, imm| {
                    let value = round::integral(a.double(imm), Rounding::from_bits(imm));
                    (if value.is_nan() { (1 as $t) << (<$t>::BITS - 1) } else { value as $t }) as $w
                })
            } else {
                each3_imm(|a: S, _: S, _: S, imm| {
                    round::integral(a.double(imm), Rounding::from_bits(imm)) as $t as $w
                })
            }
        };
    }
    Some(match to {
        Type::U8 => to!(u8, u16),
        Type::S8 => to!(i8, i16),
        Type::U16 => to!(u16, u16),
        Type::S16 => to!(i16, i16),
        Type::U32 => to!(u32, u32),
        Type::S32 => to!(i32, i32),
        Type::U64 => to!(u64, u64),
        Type::S64 => to!(i64, i64),
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
    macro_rules! from {
        ($s:ty) => {
            if how.integral { integral_to::<$s>(to) } else { float_to::<$s>(to) }
        };
    }
    match from {
        Type::F16 => from!(Half),
        Type::Bf16 => from!(Brain),
        Type::F32 => from!(f32),
        Type::F64 => from!(f64),
        _ => None,
    }
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
    macro_rules! pack {
        ($format:ident) => {
            each3_imm(|a: f32, b: f32, _: f32, imm| {
                let half =
                    |value: f32| encode::<$format>(limit(value.double(0), imm), Rounding::from_bits(imm));
                u32::from(half(a)) << 16 | u32::from(half(b))
            })
        };
    }
    Some(match to {
        Type::F16x2 => pack!(F16),
        Type::Bf16x2 => pack!(Bf16),
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
