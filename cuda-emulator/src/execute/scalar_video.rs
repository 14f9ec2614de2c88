// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scalar video instructions: one operation on bytes, halves or words of two registers, then perhaps a second one with
//! a third register, or a merge into it. Intermediate values are wider than 32 bits, as in the PTX manual.

use super::arithmetic::compare::orders;
use super::lanes::each3_imm;
use crate::code::Handler;

/// The layout of the parameter of [`select`].
pub(crate) mod imm {
    /// `a`, `b` and the result are signed.
    pub(crate) const A_SIGNED: u64 = 1;
    pub(crate) const B_SIGNED: u64 = 2;
    pub(crate) const SIGNED: u64 = 4;
    pub(crate) const SATURATE: u64 = 8;
    /// Shifts take the amount modulo 32.
    pub(crate) const WRAP: u64 = 16;
    /// vmad: the product and the addend are negated, or one more is added.
    pub(crate) const NEGATE_PRODUCT: u64 = 32;
    pub(crate) const NEGATE_ADDEND: u64 = 64;
    pub(crate) const PLUS_ONE: u64 = 128;
    /// The comparison of vset, as [`crate::execute::arithmetic::compare::operator_imm`] has it.
    pub(crate) const TEST_SHIFT: u32 = 8;
    /// The second operation: 0 none, 1 add, 2 min, 3 max.
    pub(crate) const SECOND_SHIFT: u32 = 12;
    /// vmad: how far the result is shifted to the right.
    pub(crate) const SCALE_SHIFT: u32 = 16;
    /// The parts of `a`, `b` and the result: `PARTS`.
    pub(crate) const A_SHIFT: u32 = 24;
    pub(crate) const B_SHIFT: u32 = 28;
    pub(crate) const D_SHIFT: u32 = 32;
}

/// The parts of a register that an operand can refer to, followed by the whole register.
pub(crate) const PARTS: [&str; 6] = ["b0", "b1", "b2", "b3", "h0", "h1"];

/// First bit and bits of a part.
fn part(number: u64) -> (u32, u32) {
    match number & 15 {
        number @ 0..4 => (8 * number as u32, 8),
        number @ (4 | 5) => (16 * (number as u32 - 4), 16),
        _ => (0, 32),
    }
}

fn extract(word: u32, number: u64, signed: bool) -> i64 {
    let (shift, bits) = part(number);
    let top = word << (32 - bits - shift);
    if signed { i64::from(top.cast_signed() >> (32 - bits)) } else { i64::from(top >> (32 - bits)) }
}

fn clamp(value: i128, bits: u32, signed: bool) -> i128 {
    if signed {
        value.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

/// A register read as a number of the given sign.
fn number(word: u32, signed: bool) -> i128 {
    if signed { i128::from(word.cast_signed()) } else { i128::from(word) }
}

fn apply(a: u32, b: u32, c: u32, flags: u64, operation: impl Fn(i64, i64) -> i128) -> u32 {
    let first = extract(a, flags >> imm::A_SHIFT, flags & imm::A_SIGNED != 0);
    let second = extract(b, flags >> imm::B_SHIFT, flags & imm::B_SIGNED != 0);
    let signed = flags & imm::SIGNED != 0;
    let (shift, bits) = part(flags >> imm::D_SHIFT);
    let mut value = operation(first, second);
    if flags & imm::SATURATE != 0 {
        value = clamp(value, bits, signed);
    }
    let addend = number(c, signed);
    let value = match flags >> imm::SECOND_SHIFT & 3 {
        0 => value,
        1 => value + addend,
        2 => value.min(addend),
        _ => value.max(addend),
    };
    let ones = u32::MAX >> (32 - bits) << shift;
    c & !ones | (value as u32) << shift & ones
}

fn shift_amount(amount: i64, flags: u64) -> u32 {
    if flags & imm::WRAP != 0 { amount as u32 & 31 } else { amount.clamp(0, 32) as u32 }
}

/// `(a * b) + c` with negations, scaled.
fn multiply_add(a: u32, b: u32, c: u32, flags: u64) -> u32 {
    let (a_signed, b_signed) = (flags & imm::A_SIGNED != 0, flags & imm::B_SIGNED != 0);
    let first = extract(a, flags >> imm::A_SHIFT, a_signed);
    let second = extract(b, flags >> imm::B_SHIFT, b_signed);
    let mut product = i128::from(first) * i128::from(second);
    let (negate, negate_addend) = (flags & imm::NEGATE_PRODUCT != 0, flags & imm::NEGATE_ADDEND != 0);
    let signed = a_signed || b_signed || negate || negate_addend;
    let mut addend = c;
    let mut more = 0;
    if flags & imm::PLUS_ONE != 0 {
        more = 1;
    } else if negate {
        product = !product;
        more = 1;
    } else if negate_addend {
        addend = !addend;
        more = 1;
    }
    let sum = product + number(addend, signed) + more;
    let result = sum >> (flags >> imm::SCALE_SHIFT & 63);
    (if flags & imm::SATURATE != 0 { clamp(result, 32, signed) } else { result }) as u32
}

/// Computes `ops[0]` from `ops[1]`, `ops[2]` and `ops[3]`. The parameter selects the operation.
pub(crate) fn select(name: &str) -> Option<Handler> {
    Some(match name {
        "vadd" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| (a + b).into())),
        "vsub" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| (a - b).into())),
        "vabsdiff" => {
            each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| (a - b).abs().into()))
        }
        "vmin" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| a.min(b).into())),
        "vmax" => each3_imm(|a: u32, b: u32, c: u32, imm| apply(a, b, c, imm, |a, b| a.max(b).into())),
        "vshl" => each3_imm(|a: u32, b: u32, c: u32, imm| {
            apply(a, b, c, imm, |a, b| i128::from(a) << shift_amount(b, imm))
        }),
        "vshr" => each3_imm(|a: u32, b: u32, c: u32, imm| {
            apply(a, b, c, imm, |a, b| i128::from(a) >> shift_amount(b, imm))
        }),
        "vset" => each3_imm(|a: u32, b: u32, c: u32, imm| {
            apply(a, b, c, imm, |a, b| i128::from(orders(imm >> imm::TEST_SHIFT, a.cmp(&b))))
        }),
        "vmad" => each3_imm(multiply_add),
        _ => return None,
    })
}
