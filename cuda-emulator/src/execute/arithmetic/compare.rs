// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setp, set, selp, slct, testp.

use std::cmp::Ordering;
use std::num::FpCategory;

use super::float::flush;
use super::half::to_f32;
use crate::code::Handler;
use crate::execute::lanes::{choose, logic2, map3, test1, test2, test2_imm};
use crate::ptx::types::Type;

/// The predicate `ops[0] = ops[1] cmp ops[2]`; `imm` must be [`operator_imm`] where there is one.
pub(crate) fn compare(operator: &str, kind: Type, flushed: bool) -> Option<Handler> {
    match kind {
        Type::U16 | Type::B16 => integers::<u16>(operator),
        Type::U32 | Type::B32 => integers::<u32>(operator),
        Type::U64 | Type::B64 => integers::<u64>(operator),
        Type::S16 => integers::<i16>(operator),
        Type::S32 => integers::<i32>(operator),
        Type::S64 => integers::<i64>(operator),
        Type::F32 if !flushed => floats::<f32>(operator),
        Type::F64 => floats::<f64>(operator),
        _ => rare(kind, flushed),
    }
}

fn integers<T: Copy + Ord + 'static>(operator: &str) -> Option<Handler> {
    Some(match operator {
        "eq" => test2(|a: T, b: T| a == b),
        "ne" => test2(|a: T, b: T| a != b),
        "lt" | "lo" => test2(|a: T, b: T| a < b),
        "le" | "ls" => test2(|a: T, b: T| a <= b),
        "gt" | "hi" => test2(|a: T, b: T| a > b),
        "ge" | "hs" => test2(|a: T, b: T| a >= b),
        _ => return None,
    })
}

/// Returns a test for every floating-point operator; `u` forms hold for NaN.
#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    clippy::eq_op,
    reason = "unordered comparisons are meant"
)]
fn floats<T: Copy + PartialOrd + 'static>(operator: &str) -> Option<Handler> {
    Some(match operator {
        "eq" => test2(|a: T, b: T| a == b),
        "ne" => test2(|a: T, b: T| a < b || a > b),
        "lt" => test2(|a: T, b: T| a < b),
        "le" => test2(|a: T, b: T| a <= b),
        "gt" => test2(|a: T, b: T| a > b),
        "ge" => test2(|a: T, b: T| a >= b),
        "equ" => test2(|a: T, b: T| !(a < b || a > b)),
        "neu" => test2(|a: T, b: T| a != b),
        "ltu" => test2(|a: T, b: T| !(a >= b)),
        "leu" => test2(|a: T, b: T| !(a > b)),
        "gtu" => test2(|a: T, b: T| !(a <= b)),
        "geu" => test2(|a: T, b: T| !(a < b)),
        "num" => test2(|a: T, b: T| a == a && b == b),
        "nan" => test2(|a: T, b: T| a != a || b != b),
        _ => return None,
    })
}

/// Returns the parameter of the handlers that test their operator at run time: one bit each for less, equal, greater,
/// unordered.
pub(crate) fn operator_imm(operator: &str) -> Option<u64> {
    Some(match operator {
        "lt" => 1,
        "eq" => 2,
        "le" => 3,
        "gt" => 4,
        "ne" => 5,
        "ge" => 6,
        "num" => 7,
        "nan" => 8,
        "ltu" => 9,
        "equ" => 10,
        "leu" => 11,
        "gtu" => 12,
        "neu" => 13,
        "geu" => 14,
        _ => return None,
    })
}

/// Returns whether a comparison ([`operator_imm`]) holds for integers in this order.
pub(crate) fn orders(imm: u64, order: Ordering) -> bool {
    imm >> (order as i8 + 1) & 1 != 0
}

fn holds(a: f32, b: f32, imm: u64) -> bool {
    let bit = match a.partial_cmp(&b) {
        Some(Ordering::Less) => 0,
        Some(Ordering::Equal) => 1,
        Some(Ordering::Greater) => 2,
        None => 3,
    };
    imm >> bit & 1 != 0
}

fn flushed_half(a: u16) -> u16 {
    if a & 0x7c00 == 0 { a & 0x8000 } else { a }
}

/// The rare comparisons: flushed f32 and halves. [`operator_imm`] selects the operator.
fn rare(kind: Type, flushed: bool) -> Option<Handler> {
    Some(match (kind, flushed) {
        (Type::F32, true) => test2_imm(|a: f32, b: f32, imm| holds(flush(a), flush(b), imm)),
        (Type::F16, false) => {
            test2_imm(|a: u16, b: u16, imm| holds(to_f32(Type::F16, a), to_f32(Type::F16, b), imm))
        }
        (Type::F16, true) => test2_imm(|a: u16, b: u16, imm| {
            holds(to_f32(Type::F16, flushed_half(a)), to_f32(Type::F16, flushed_half(b)), imm)
        }),
        (Type::Bf16, _) => {
            test2_imm(|a: u16, b: u16, imm| holds(to_f32(Type::Bf16, a), to_f32(Type::Bf16, b), imm))
        }
        _ => return None,
    })
}

/// Compares a pair of halves: one predicate each. The operands are 32-bit registers; `high` takes the upper halves. The
/// operator is in the parameter ([`operator_imm`]).
pub(crate) fn compare_pair(kind: Type, high: bool) -> Option<Handler> {
    fn half(kind: Type, pair: u32, high: bool) -> f32 {
        to_f32(kind, if high { (pair >> 16) as u16 } else { pair as u16 })
    }
    fn pair(half: impl Fn(u32) -> f32 + Copy + 'static) -> Handler {
        test2_imm(move |a: u32, b: u32, imm| holds(half(a), half(b), imm))
    }
    Some(match (kind, high) {
        (Type::F16x2, false) => pair(|pair| half(Type::F16, pair, false)),
        (Type::F16x2, true) => pair(|pair| half(Type::F16, pair, true)),
        (Type::Bf16x2, false) => pair(|pair| half(Type::Bf16, pair, false)),
        (Type::Bf16x2, true) => pair(|pair| half(Type::Bf16, pair, true)),
        _ => return None,
    })
}

/// Combines a comparison with a predicate: `ops[0] = ops[1] op ops[2]`.
pub(crate) fn combine(operator: &str) -> Option<Handler> {
    Some(match operator {
        "and" => logic2(|a, b| a & b),
        "or" => logic2(|a, b| a | b),
        "xor" => logic2(|a, b| a ^ b),
        _ => return None,
    })
}

/// selp, for a register of `bytes` bytes: `ops[0] = ops[3] ? ops[1] : ops[2]`.
pub(crate) fn select(bytes: u32) -> Option<Handler> {
    Some(match bytes {
        2 => choose(|a: u16, b: u16, p| if p { a } else { b }),
        4 => choose(|a: u32, b: u32, p| if p { a } else { b }),
        8 => choose(|a: u64, b: u64, p| if p { a } else { b }),
        _ => return None,
    })
}

/// slct: `ops[0] = ops[3] >= 0 ? ops[1] : ops[2]`, with an s32 or f32 condition.
pub(crate) fn select_by_sign(bytes: u32, condition: Type, flushed: bool) -> Option<Handler> {
    Some(match (bytes, condition, flushed) {
        (2, Type::S32, false) => map3(|a: u16, b: u16, c: i32| if c >= 0 { a } else { b }),
        (4, Type::S32, false) => map3(|a: u32, b: u32, c: i32| if c >= 0 { a } else { b }),
        (8, Type::S32, false) => map3(|a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        (2, Type::F32, false) => map3(|a: u16, b: u16, c: f32| if c >= 0.0 { a } else { b }),
        (4, Type::F32, false) => map3(|a: u32, b: u32, c: f32| if c >= 0.0 { a } else { b }),
        (8, Type::F32, false) => map3(|a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b }),
        (2, Type::F32, true) => map3(|a: u16, b: u16, c: f32| if flush(c) >= 0.0 { a } else { b }),
        (4, Type::F32, true) => map3(|a: u32, b: u32, c: f32| if flush(c) >= 0.0 { a } else { b }),
        (8, Type::F32, true) => map3(|a: u64, b: u64, c: f32| if flush(c) >= 0.0 { a } else { b }),
        _ => return None,
    })
}

/// testp: sets the predicate `ops[0]` if `ops[1]` is of the class.
pub(crate) fn test_class(class: &str, kind: Type) -> Option<Handler> {
    fn of<T: Copy + 'static>(
        class: &str,
        category: impl Fn(T) -> FpCategory + Copy + 'static,
    ) -> Option<Handler> {
        use FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
        Some(match class {
            "finite" => test1(move |a: T| !matches!(category(a), Nan | Infinite)),
            "infinite" => test1(move |a: T| category(a) == Infinite),
            "number" => test1(move |a: T| category(a) != Nan),
            "notanumber" => test1(move |a: T| category(a) == Nan),
            // Zeros count as normal.
            "normal" => test1(move |a: T| matches!(category(a), Normal | Zero)),
            "subnormal" => test1(move |a: T| category(a) == Subnormal),
            _ => return None,
        })
    }
    match kind {
        Type::F32 => of(class, f32::classify),
        Type::F64 => of(class, f64::classify),
        _ => None,
    }
}
