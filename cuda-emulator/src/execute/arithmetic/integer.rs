// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Integer arithmetic. Each function returns the handler for a type, or `None` when the instruction has no such form.

use super::half::pair2;
use crate::code::Handler;
use crate::execute::by_type::{by_sign, by_width};
use crate::execute::lanes::{each2, map1, map2, map3, map3_imm};
use crate::ptx::types::Type;

/// add, sub, mul.lo, mul.hi, div, rem, min, max: `ops[0] = ops[1] op ops[2]`.
pub(crate) fn binary(name: &str, kind: Type) -> Option<Handler> {
    match name {
        "add" => by_width!(kind, T => map2(|a: T, b: T| a.wrapping_add(b))),
        "sub" => by_width!(kind, T => map2(|a: T, b: T| a.wrapping_sub(b))),
        "mul.lo" => by_width!(kind, T => map2(|a: T, b: T| a.wrapping_mul(b))),
        "mul.hi" => multiply_high(kind),
        // PTX leaves division by zero open; hardware gives all ones.
        "div" => by_sign!(kind, T => each2(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) })),
        "rem" => by_sign!(kind, T => each2(|a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) })),
        "min" => by_sign!(kind, T => map2(|a: T, b: T| a.min(b))),
        "max" => by_sign!(kind, T => map2(|a: T, b: T| a.max(b))),
        "add.sat" => (kind == Type::S32).then(|| map2(|a: i32, b: i32| a.saturating_add(b))),
        "sub.sat" => (kind == Type::S32).then(|| map2(|a: i32, b: i32| a.saturating_sub(b))),
        "mul24.lo" => match kind {
            Type::U32 => Some(map2(|a: u32, b: u32| low24(u64::from(a), u64::from(b)) as u32)),
            Type::S32 => Some(map2(|a: i32, b: i32| signed24(a, b) as u32)),
            _ => None,
        },
        "mul24.hi" => match kind {
            Type::U32 => Some(map2(|a: u32, b: u32| (low24(u64::from(a), u64::from(b)) >> 16) as u32)),
            Type::S32 => Some(map2(|a: i32, b: i32| (signed24(a, b) >> 16) as u32)),
            _ => None,
        },
        _ => None,
    }
}

fn low24(a: u64, b: u64) -> u64 {
    (a & 0xff_ffff) * (b & 0xff_ffff)
}

fn signed24(a: i32, b: i32) -> i64 {
    i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)
}

fn multiply_high(kind: Type) -> Option<Handler> {
    Some(match kind {
        Type::U16 => map2(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        Type::S16 => map2(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
        Type::U32 => map2(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        Type::S32 => map2(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
        Type::U64 => map2(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        Type::S64 => map2(|a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64),
        _ => return None,
    })
}

/// mul.wide: twice as wide as its operands, whose type is `kind`.
pub(crate) fn multiply_wide(kind: Type) -> Option<Handler> {
    Some(match kind {
        Type::U16 => map2(|a: u16, b: u16| u32::from(a) * u32::from(b)),
        Type::S16 => map2(|a: i16, b: i16| i32::from(a) * i32::from(b)),
        Type::U32 => map2(|a: u32, b: u32| u64::from(a) * u64::from(b)),
        Type::S32 => map2(|a: i32, b: i32| i64::from(a) * i64::from(b)),
        _ => return None,
    })
}

/// mad.lo, mad.hi, mad24.lo, mad24.hi, sad, with `.sat` where there is one: `ops[0]` from `ops[1..=3]`.
pub(crate) fn ternary(name: &str, kind: Type) -> Option<Handler> {
    match name {
        "mad.lo" => by_width!(kind, T => map3(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c))),
        "mad.hi" => Some(match kind {
            Type::U16 => {
                map3(|a: u16, b: u16, c: u16| (((u32::from(a) * u32::from(b)) >> 16) as u16).wrapping_add(c))
            }
            Type::S16 => {
                map3(|a: i16, b: i16, c: i16| (((i32::from(a) * i32::from(b)) >> 16) as i16).wrapping_add(c))
            }
            Type::U32 => map3(|a: u32, b: u32, c: u32| high32(a, b).wrapping_add(c)),
            Type::S32 => map3(|a: i32, b: i32, c: i32| signed_high32(a, b).wrapping_add(c)),
            Type::U64 => map3(|a: u64, b: u64, c: u64| {
                (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
            }),
            Type::S64 => map3(|a: i64, b: i64, c: i64| {
                (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
            }),
            _ => return None,
        }),
        "mad.hi.sat" => {
            (kind == Type::S32).then(|| map3(|a: i32, b: i32, c: i32| signed_high32(a, b).saturating_add(c)))
        }
        "mad24.lo" => match kind {
            Type::U32 => Some(map3(|a: u32, b: u32, c: u32| {
                (low24(u64::from(a), u64::from(b)) as u32).wrapping_add(c)
            })),
            Type::S32 => Some(map3(|a: i32, b: i32, c: i32| (signed24(a, b) as i32).wrapping_add(c))),
            _ => None,
        },
        "mad24.hi" => match kind {
            Type::U32 => Some(map3(|a: u32, b: u32, c: u32| {
                ((low24(u64::from(a), u64::from(b)) >> 16) as u32).wrapping_add(c)
            })),
            Type::S32 => Some(map3(|a: i32, b: i32, c: i32| ((signed24(a, b) >> 16) as i32).wrapping_add(c))),
            _ => None,
        },
        "mad24.hi.sat" => (kind == Type::S32)
            .then(|| map3(|a: i32, b: i32, c: i32| ((signed24(a, b) >> 16) as i32).saturating_add(c))),
        "sad" => by_sign!(kind, T => map3(|a: T, b: T, c: T| c.wrapping_add(a.abs_diff(b) as T))),
        _ => None,
    }
}

fn high32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

fn signed_high32(a: i32, b: i32) -> i32 {
    ((i64::from(a) * i64::from(b)) >> 32) as i32
}

/// mad.wide: `ops[1]` and `ops[2]` of type `kind`, `ops[3]` and `ops[0]` twice as wide.
pub(crate) fn multiply_add_wide(kind: Type) -> Option<Handler> {
    Some(match kind {
        Type::U16 => map3(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        Type::S16 => map3(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        Type::U32 => map3(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        Type::S32 => map3(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        _ => return None,
    })
}

/// abs, neg.
pub(crate) fn unary(name: &str, kind: Type) -> Option<Handler> {
    match (name, kind) {
        ("abs", Type::S16) => Some(map1(|a: i16| a.wrapping_abs())),
        ("abs", Type::S32) => Some(map1(|a: i32| a.wrapping_abs())),
        ("abs", Type::S64) => Some(map1(|a: i64| a.wrapping_abs())),
        ("neg", _) => by_width!(kind, T => map1(|a: T| a.wrapping_neg())),
        _ => None,
    }
}

/// Dot products of bytes and halves: `ops[0] = ops[3] + ops[1] . ops[2]`; the types are those of `ops[1]` and `ops[2]`.
pub(crate) fn dot_product(name: &str, first: Type, second: Type) -> Option<Handler> {
    fn byte(word: u32, index: u32, signed: bool) -> i32 {
        let byte = (word >> (8 * index)) as u8;
        if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
    }
    fn half(word: u32, index: u32, signed: bool) -> i32 {
        let half = (word >> (16 * index)) as u16;
        if signed { i32::from(half.cast_signed()) } else { i32::from(half) }
    }
    fn four(a: u32, b: u32, c: u32, [first, second]: [bool; 2]) -> u32 {
        let products = (0..4).map(|i| byte(a, i, first).wrapping_mul(byte(b, i, second)));
        products.fold(c, |sum, product| sum.wrapping_add(product as u32))
    }
    fn two(a: u32, b: u32, c: u32, [first, second]: [bool; 2], high: bool) -> u32 {
        let at = if high { 2 } else { 0 };
        let products = (0..2).map(|i| half(a, i, first).wrapping_mul(byte(b, at + i, second)));
        products.fold(c, |sum, product| sum.wrapping_add(product as u32))
    }
    /// One handler for each pair of signs.
    fn signs(
        first: Type,
        second: Type,
        f: impl Fn(u32, u32, u32, [bool; 2]) -> u32 + Copy + 'static,
    ) -> Option<Handler> {
        Some(match (first, second) {
            (Type::U32, Type::U32) => map3(move |a, b, c| f(a, b, c, [false, false])),
            (Type::U32, Type::S32) => map3(move |a, b, c| f(a, b, c, [false, true])),
            (Type::S32, Type::U32) => map3(move |a, b, c| f(a, b, c, [true, false])),
            (Type::S32, Type::S32) => map3(move |a, b, c| f(a, b, c, [true, true])),
            _ => return None,
        })
    }
    match name {
        "dp4a" => signs(first, second, four),
        "dp2a.lo" => signs(first, second, |a, b, c, signs| two(a, b, c, signs, false)),
        "dp2a.hi" => signs(first, second, |a, b, c, signs| two(a, b, c, signs, true)),
        _ => None,
    }
}

/// add, min and max of two 16-bit halves in a 32-bit register.
pub(crate) fn binary_pair(name: &str, kind: Type) -> Option<Handler> {
    fn halves(f: impl Fn(u16, u16) -> u16 + Copy + 'static) -> Handler {
        map2(move |a: u32, b: u32| pair2(a, b, f))
    }
    fn signed(f: impl Fn(i16, i16) -> i16 + Copy + 'static) -> Handler {
        halves(move |a, b| f(a.cast_signed(), b.cast_signed()).cast_unsigned())
    }
    Some(match (name, kind) {
        ("add", Type::U16x2 | Type::S16x2) => halves(u16::wrapping_add),
        ("min", Type::U16x2) => halves(u16::min),
        ("max", Type::U16x2) => halves(u16::max),
        ("min", Type::S16x2) => signed(i16::min),
        ("max", Type::S16x2) => signed(i16::max),
        ("min.relu", Type::S16x2) => signed(|a, b| a.min(b).max(0)),
        ("max.relu", Type::S16x2) => signed(|a, b| a.max(b).max(0)),
        _ => return None,
    })
}

/// min.relu.s32 and max.relu.s32.
pub(crate) fn binary_relu(name: &str) -> Option<Handler> {
    match name {
        "min" => Some(map2(|a: i32, b: i32| a.min(b).max(0))),
        "max" => Some(map2(|a: i32, b: i32| a.max(b).max(0))),
        _ => None,
    }
}

/// lop3: `imm` is the truth table.
pub(crate) fn lop3() -> Handler {
    map3_imm(|a: u32, b: u32, c: u32, table: u64| {
        let term = |bit: u32, x: u32, y: u32, z: u32| if table >> bit & 1 != 0 { x & y & z } else { 0 };
        term(0, !a, !b, !c)
            | term(1, !a, !b, c)
            | term(2, !a, b, !c)
            | term(3, !a, b, c)
            | term(4, a, !b, !c)
            | term(5, a, !b, c)
            | term(6, a, b, !c)
            | term(7, a, b, c)
    })
}
