// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logic, shifts and bit fields.

use crate::code::Handler;
use crate::execute::by_type::by_width;
use crate::execute::lanes::{each2, each3, logic2, map1, map2, map3};
use crate::ptx::types::Type;

/// and, or, xor of a type, including `.pred`.
pub(crate) fn logic(name: &str, kind: Type) -> Option<Handler> {
    match (name, kind) {
        ("and", Type::Pred) => Some(logic2(|a, b| a & b)),
        ("or", Type::Pred) => Some(logic2(|a, b| a | b)),
        ("xor", Type::Pred) => Some(logic2(|a, b| a ^ b)),
        ("and", _) => by_width!(kind, T => map2(|a: T, b: T| a & b)),
        ("or", _) => by_width!(kind, T => map2(|a: T, b: T| a | b)),
        ("xor", _) => by_width!(kind, T => map2(|a: T, b: T| a ^ b)),
        _ => None,
    }
}

/// not, cnot; not of predicates takes the operand twice.
pub(crate) fn negation(name: &str, kind: Type) -> Option<Handler> {
    match (name, kind) {
        ("not", Type::Pred) => Some(logic2(|a, _| !a)),
        ("not", _) => by_width!(kind, T => map1(|a: T| !a)),
        ("cnot", _) => by_width!(kind, T => map1(|a: T| T::from(a == 0))),
        _ => None,
    }
}

/// shl, shr: the shift amount is a u32 and saturates at the width.
pub(crate) fn shift(name: &str, kind: Type) -> Option<Handler> {
    match (name, kind) {
        ("shl", _) => by_width!(kind, T => map2(|a: T, b: u32| if b < T::BITS { a << b } else { 0 })),
        ("shr", Type::S16) => Some(map2(|a: i16, b: u32| a >> b.min(15))),
        ("shr", Type::S32) => Some(map2(|a: i32, b: u32| a >> b.min(31))),
        ("shr", Type::S64) => Some(map2(|a: i64, b: u32| a >> b.min(63))),
        ("shr", _) => by_width!(kind, T => map2(|a: T, b: u32| if b < T::BITS { a >> b } else { 0 })),
        _ => None,
    }
}

/// shf: a 32-bit window of the 64 bits `ops[2]:ops[1]`.
pub(crate) fn funnel_shift(left: bool, wrap: bool) -> Handler {
    fn join(low: u32, high: u32) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }
    match (left, wrap) {
        (true, true) => map3(|a: u32, b: u32, c: u32| (join(a, b) << (c & 31) >> 32) as u32),
        (true, false) => map3(|a: u32, b: u32, c: u32| (join(a, b) << c.min(32) >> 32) as u32),
        (false, true) => map3(|a: u32, b: u32, c: u32| (join(a, b) >> (c & 31)) as u32),
        (false, false) => map3(|a: u32, b: u32, c: u32| (join(a, b) >> c.min(32)) as u32),
    }
}

/// popc, clz (to u32), brev (to the same type).
pub(crate) fn count(name: &str, kind: Type) -> Option<Handler> {
    match (name, kind) {
        ("popc", Type::B32) => Some(map1(|a: u32| a.count_ones())),
        ("popc", Type::B64) => Some(map1(|a: u64| a.count_ones())),
        ("clz", Type::B32) => Some(map1(|a: u32| a.leading_zeros())),
        ("clz", Type::B64) => Some(map1(|a: u64| a.leading_zeros())),
        ("brev", Type::B32) => Some(map1(|a: u32| a.reverse_bits())),
        ("brev", Type::B64) => Some(map1(|a: u64| a.reverse_bits())),
        _ => None,
    }
}

/// bfind: the position of the highest bit that differs from the sign, all ones if there is none.
pub(crate) fn find_highest(kind: Type, shift_amount: bool) -> Option<Handler> {
    fn position(value: u64, bits: u32, shift_amount: bool) -> u32 {
        match 63_u32.checked_sub(value.leading_zeros()) {
            Some(position) if shift_amount => bits - 1 - position,
            Some(position) => position,
            None => u32::MAX,
        }
    }
    fn magnitude(value: i64) -> u64 {
        (if value < 0 { !value } else { value }) as u64
    }
    Some(match (kind, shift_amount) {
        (Type::U32, false) => map1(|a: u32| position(u64::from(a), 32, false)),
        (Type::U32, true) => map1(|a: u32| position(u64::from(a), 32, true)),
        (Type::U64, false) => map1(|a: u64| position(a, 64, false)),
        (Type::U64, true) => map1(|a: u64| position(a, 64, true)),
        (Type::S32, false) => map1(|a: i32| position(magnitude(i64::from(a)), 32, false)),
        (Type::S32, true) => map1(|a: i32| position(magnitude(i64::from(a)), 32, true)),
        (Type::S64, false) => map1(|a: i64| position(magnitude(a), 64, false)),
        (Type::S64, true) => map1(|a: i64| position(magnitude(a), 64, true)),
        _ => return None,
    })
}

/// bfe: `c` bits of `a` from bit `b` on. The manual does not define positions above 255. Hardware uses 8 bits of a
/// position for 32-bit fields, and the maximum for 64-bit ones.
pub(crate) fn extract_field(kind: Type) -> Option<Handler> {
    fn field(value: i64, bits: u32, start: u32, length: u32, signed: bool) -> u64 {
        let (start, length) = (start & 0xff, length & 0xff);
        if length == 0 {
            return 0;
        }
        // `value` is sign- or zero-extended, so a shift beyond its end leaves the manual's fill bits.
        let shifted = value >> start.min(63);
        let shifted = if !signed && start >= bits { 0 } else { shifted };
        let length = length.min(bits.saturating_sub(start).max(1));
        if length >= 64 {
            return shifted as u64;
        }
        let up = 64 - length;
        if signed { (shifted << up >> up) as u64 } else { (shifted as u64) << up >> up }
    }
    Some(match kind {
        Type::U32 => map3(|a: u32, b: u32, c: u32| field(i64::from(a), 32, b, c, false) as u32),
        Type::S32 => map3(|a: i32, b: u32, c: u32| field(i64::from(a), 32, b, c, true) as u32),
        Type::U64 => map3(|a: u64, b: u32, c: u32| {
            let (start, length) = (b.min(255), c.min(255));
            let shifted = a.checked_shr(start).unwrap_or(0);
            if length >= 64 { shifted } else { shifted & ((1 << length) - 1) }
        }),
        Type::S64 => map3(|a: i64, b: u32, c: u32| field(a, 64, b.min(255), c.min(255), true)),
        _ => return None,
    })
}

/// bfi: inserts the low `d & 255` bits of `a` into `b` at bit `c & 255`. Handlers vectorise with at most three
/// sources, so `ops[3]` holds `c` in its low half and `d` in its high half (see [`pack_field`]).
pub(crate) fn insert_field(kind: Type) -> Option<Handler> {
    fn mask(start: u32, length: u32) -> u64 {
        let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
        ones.checked_shl(start).unwrap_or(0)
    }
    Some(match kind {
        Type::B32 => map3(|a: u32, b: u32, cd: u32| {
            let (start, length) = (cd & 0xff, cd >> 16 & 0xff);
            let mask = mask(start, length);
            let value = u64::from(a).checked_shl(start).unwrap_or(0);
            ((u64::from(b) & !mask) | (value & mask)) as u32
        }),
        Type::B64 => map3(|a: u64, b: u64, cd: u32| {
            let (start, length) = (cd & 0xff, cd >> 16 & 0xff);
            let mask = mask(start, length);
            (b & !mask) | (a.checked_shl(start).unwrap_or(0) & mask)
        }),
        _ => return None,
    })
}

/// Prepares `ops[3]` of [`insert_field`] from start `ops[1]` and length `ops[2]`.
pub(crate) fn pack_field(kind: Type) -> Handler {
    if kind == Type::B64 {
        map2(|start: u32, length: u32| start.min(255) | length.min(255) << 16)
    } else {
        map2(|start: u32, length: u32| (start & 0xff) | (length & 0xff) << 16)
    }
}

/// prmt: selects four bytes of `ops[2]:ops[1]` according to `ops[3]`.
pub(crate) fn permute(mode: Option<&str>) -> Option<Handler> {
    fn pick(a: u32, b: u32, selector: u32) -> u32 {
        let bytes = u64::from(b) << 32 | u64::from(a);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        u32::from(if selector & 8 != 0 { (byte.cast_signed() >> 7) as u8 } else { byte })
    }
    fn build(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
        (0..4).fold(0, |word, index| word | pick(a, b, selectors[index]) << (8 * index))
    }
    Some(match mode {
        None => map3(|a: u32, b: u32, c: u32| build(a, b, [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15])),
        Some("f4e") => each3(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            build(a, b, [c, c + 1, c + 2, c + 3])
        }),
        Some("b4e") => each3(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            build(a, b, [c, (c + 7) & 7, (c + 6) & 7, (c + 5) & 7])
        }),
        Some("rc8") => each3(|a: u32, b: u32, c: u32| build(a, b, [c & 3; 4])),
        Some("ecl") => each3(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            build(a, b, [c, c.max(1), c.max(2), 3])
        }),
        Some("ecr") => each3(|a: u32, b: u32, c: u32| {
            let c = c & 3;
            build(a, b, [0, c.min(1), c.min(2), c])
        }),
        Some("rc16") => each3(|a: u32, b: u32, c: u32| {
            let c = (c & 1) * 2;
            build(a, b, [c, c + 1, c, c + 1])
        }),
        Some(_) => return None,
    })
}

/// fns: the position of the `ops[3]`-th set bit of `ops[1]`, counted from bit `ops[2]`, all ones if there is none.
pub(crate) fn find_nth_set() -> Handler {
    each3(|mask: u32, base: u32, offset: i32| {
        let base = base & 31;
        let mut found = 0;
        let position = if offset < 0 {
            (0..=base).rev().find(|bit| {
                found += i32::from(mask >> bit & 1 != 0);
                mask >> bit & 1 != 0 && found == offset.wrapping_neg()
            })
        } else if offset > 0 {
            (base..32).find(|bit| {
                found += i32::from(mask >> bit & 1 != 0);
                mask >> bit & 1 != 0 && found == offset
            })
        } else {
            (mask >> base & 1 != 0).then_some(base)
        };
        position.unwrap_or(u32::MAX)
    })
}

/// szext: `ops[1]` extended from `ops[2]` bits.
pub(crate) fn extend(kind: Type, wrap: bool) -> Option<Handler> {
    fn unsigned(a: u32, bits: u32) -> u32 {
        if bits >= 32 { a } else { a & ((1 << bits) - 1) }
    }
    fn signed(a: u32, bits: u32) -> u32 {
        if bits == 0 {
            return 0;
        }
        let up = 32 - bits.min(32);
        ((a << up).cast_signed() >> up) as u32
    }
    Some(match (kind, wrap) {
        (Type::U32, true) => map2(|a: u32, b: u32| unsigned(a, b & 31)),
        (Type::U32, false) => map2(|a: u32, b: u32| unsigned(a, b)),
        (Type::S32, true) => map2(|a: u32, b: u32| signed(a, b & 31)),
        (Type::S32, false) => map2(|a: u32, b: u32| signed(a, b)),
        _ => return None,
    })
}

/// bmsk: `ops[2]` ones from bit `ops[1]` on.
pub(crate) fn bit_mask(wrap: bool) -> Handler {
    fn mask(start: u32, length: u32) -> u32 {
        let ones = if length >= 32 { u32::MAX } else { (1 << length) - 1 };
        ones.checked_shl(start).unwrap_or(0)
    }
    if wrap { each2(|a: u32, b: u32| mask(a & 31, b & 31)) } else { each2(|a: u32, b: u32| mask(a, b)) }
}
