// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SIMD video instructions: two or four small integers in a register of 32 bits.

use super::arithmetic::compare::orders;
use super::lanes::each3_imm;
use crate::code::Handler;

/// The layout of the parameter of [`select`].
pub(crate) mod imm {
    /// Elements of `a`, `b` and the result are signed.
    pub(crate) const A_SIGNED: u64 = 1;
    pub(crate) const B_SIGNED: u64 = 2;
    pub(crate) const SIGNED: u64 = 4;
    pub(crate) const SATURATE: u64 = 8;
    /// The results are added up.
    pub(crate) const ADD: u64 = 16;
    /// Four elements instead of two.
    pub(crate) const FOUR: u64 = 32;
    /// The comparison of vset, as [`crate::execute::arithmetic::compare::orders`] has it.
    pub(crate) const TEST_SHIFT: u32 = 8;
    /// The elements that are written or added, a bit each.
    pub(crate) const MASK_SHIFT: u32 = 12;
    /// The sources of the elements of the two operands, four bits each: those of `a`, then those of `b`.
    pub(crate) const FIRST_SHIFT: u32 = 16;
    pub(crate) const SECOND_SHIFT: u32 = 32;
}

/// The elements of an operand, picked from those of `a` and `b`.
fn elements(words: [u32; 2], picks: u64, signed: bool, four: bool) -> [i32; 4] {
    let (bits, count) = if four { (8, 4) } else { (16, 2) };
    std::array::from_fn(|index| {
        if index >= count {
            return 0;
        }
        let pick = (picks >> (4 * index)) as usize & (2 * count - 1);
        let part = words[pick / count] << (32 - bits - bits * (pick % count) as u32);
        if signed { part.cast_signed() >> (32 - bits) } else { (part >> (32 - bits)).cast_signed() }
    })
}

fn apply(a: u32, b: u32, c: u32, flags: u64, operation: impl Fn(i32, i32) -> i32) -> u32 {
    let four = flags & imm::FOUR != 0;
    let (bits, count) = if four { (8, 4) } else { (16, 2) };
    let first = elements([a, b], flags >> imm::FIRST_SHIFT, flags & imm::A_SIGNED != 0, four);
    let second = elements([a, b], flags >> imm::SECOND_SHIFT, flags & imm::B_SIGNED != 0, four);
    let mut sum = c;
    let mut merged = c;
    for index in (0..count).filter(|index| flags >> imm::MASK_SHIFT >> index & 1 != 0) {
        let mut value = operation(first[index], second[index]);
        if flags & imm::SATURATE != 0 {
            let signed = flags & imm::SIGNED != 0;
            let (least, most) =
                if signed { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
            value = value.clamp(least, most);
        }
        sum = sum.wrapping_add(value.cast_unsigned());
        let (ones, shift) = ((1_u32 << bits) - 1, bits * index as u32);
        merged = merged & !(ones << shift) | (value.cast_unsigned() & ones) << shift;
    }
    if flags & imm::ADD != 0 { sum } else { merged }
}

/// Computes `ops[0]` from `ops[1]`, `ops[2]` and the addend or the rest `ops[3]`. The parameter selects the
/// operation.
pub(crate) fn select(name: &str) -> Option<Handler> {
    Some(match name {
        "vadd" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| a + b)),
        "vsub" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| a - b)),
        "vabsdiff" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| (a - b).abs())),
        "vmin" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, i32::min)),
        "vmax" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, i32::max)),
        "vavrg" => each3_imm(|a: u32, b: u32, c: u32, imm| {
            apply(a, b, c, imm, |a, b| if a + b >= 0 { (a + b + 1) >> 1 } else { (a + b) >> 1 })
        }),
        "vset" => each3_imm(|a: u32, b: u32, c: u32, imm| {
            apply(a, b, c, imm, |a, b| i32::from(orders(imm >> imm::TEST_SHIFT, a.cmp(&b))))
        }),
        _ => return None,
    })
}
