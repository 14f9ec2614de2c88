// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setp, set, selp, slct, testp.

use super::float::flush;
use super::half::to_f32;
use super::lanes::{choose, logic2, map3, test1, test2};
use crate::lower::code::Handler;
use crate::ptx::types::Type;

/// The predicate `ops[0] = ops[1] cmp ops[2]`.
pub(crate) fn compare(operator: &str, kind: Type, flushed: bool) -> Option<Handler> {
    match kind {
        Type::U16 | Type::B16 => integers::<u16>(operator),
        Type::U32 | Type::B32 => integers::<u32>(operator),
        Type::U64 | Type::B64 => integers::<u64>(operator),
        Type::S16 => integers::<i16>(operator),
        Type::S32 => integers::<i32>(operator),
        Type::S64 => integers::<i64>(operator),
        Type::F32 => singles(operator, flushed),
        Type::F64 => doubles(operator),
        Type::F16 | Type::Bf16 => halves(operator, kind == Type::Bf16, flushed),
        _ => None,
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

/// Expands a test for every floating-point operator; `u` forms hold for NaN.
macro_rules! floats {
    ($operator:expr, |$a:ident: $t:ty, $b:ident| $from:expr) => {{
        macro_rules! test {
            ($condition:expr) => {
                test2(|$a: $t, $b: $t| {
                    let ($a, $b) = $from;
                    let condition: fn(_, _) -> bool = $condition;
                    condition($a, $b)
                })
            };
        }
        Some(match $operator {
            "eq" => test!(|a, b| a == b),
            "ne" => test!(|a, b| a < b || a > b),
            "lt" => test!(|a, b| a < b),
            "le" => test!(|a, b| a <= b),
            "gt" => test!(|a, b| a > b),
            "ge" => test!(|a, b| a >= b),
            "equ" => test!(|a, b| !(a < b || a > b)),
            "neu" => test!(|a, b| a != b),
            "ltu" => test!(|a, b| !(a >= b)),
            "leu" => test!(|a, b| !(a > b)),
            "gtu" => test!(|a, b| !(a <= b)),
            "geu" => test!(|a, b| !(a < b)),
            "num" => test!(|a, b| a == a && b == b),
            "nan" => test!(|a, b| a != a || b != b),
            _ => return None,
        })
    }};
}

#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op, reason = "unordered comparisons are meant")]
fn singles(operator: &str, flushed: bool) -> Option<Handler> {
    if flushed {
        floats!(operator, |a: f32, b| (flush(a), flush(b)))
    } else {
        floats!(operator, |a: f32, b| (a, b))
    }
}

#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op, reason = "unordered comparisons are meant")]
fn doubles(operator: &str) -> Option<Handler> {
    floats!(operator, |a: f64, b| (a, b))
}

#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op, reason = "unordered comparisons are meant")]
fn halves(operator: &str, brain: bool, flushed: bool) -> Option<Handler> {
    fn flushed_half(a: u16) -> u16 {
        if a & 0x7c00 == 0 { a & 0x8000 } else { a }
    }
    if brain {
        floats!(operator, |a: u16, b| (to_f32(Type::Bf16, a), to_f32(Type::Bf16, b)))
    } else if flushed {
        floats!(operator, |a: u16, b| (
            to_f32(Type::F16, flushed_half(a)),
            to_f32(Type::F16, flushed_half(b))
        ))
    } else {
        floats!(operator, |a: u16, b| (to_f32(Type::F16, a), to_f32(Type::F16, b)))
    }
}

/// Of a pair of halves: one predicate each. The operands are 32-bit registers; `high` takes the upper halves.
pub(crate) fn compare_pair(operator: &str, kind: Type, high: bool) -> Option<Handler> {
    #[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op, reason = "unordered comparisons are meant")]
    fn half<const BRAIN: bool, const SHIFT: u32>(operator: &str) -> Option<Handler> {
        floats!(operator, |a: u32, b| {
            let kind = if BRAIN { Type::Bf16 } else { Type::F16 };
            (to_f32(kind, (a >> SHIFT) as u16), to_f32(kind, (b >> SHIFT) as u16))
        })
    }
    match (kind, high) {
        (Type::F16x2, false) => half::<false, 0>(operator),
        (Type::F16x2, true) => half::<false, 16>(operator),
        (Type::Bf16x2, false) => half::<true, 0>(operator),
        (Type::Bf16x2, true) => half::<true, 16>(operator),
        _ => None,
    }
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

/// testp: the predicate `ops[0]` says of what class `ops[1]` is.
pub(crate) fn test_class(class: &str, kind: Type) -> Option<Handler> {
    macro_rules! class {
        ($t:ty) => {
            match class {
                "finite" => test1(|a: $t| a.is_finite()),
                "infinite" => test1(|a: $t| a.is_infinite()),
                "number" => test1(|a: $t| !a.is_nan()),
                "notanumber" => test1(|a: $t| a.is_nan()),
                "normal" => test1(|a: $t| a.is_normal()),
                "subnormal" => test1(|a: $t| a.is_subnormal()),
                _ => return None,
            }
        };
    }
    Some(match kind {
        Type::F32 => class!(f32),
        Type::F64 => class!(f64),
        _ => return None,
    })
}
