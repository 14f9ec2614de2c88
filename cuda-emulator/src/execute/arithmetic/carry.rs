// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended-precision arithmetic through the carry flag of each lane.

use crate::code::{Handler, Instr, frame, lanes_of};
use crate::execute::lanes::handler;
use crate::execute::state::{Flow, Machine};
use crate::ptx::types::Type;

/// In [`Instr::aux`]: the instruction reads the flag.
pub(crate) const USES_CARRY: u32 = 1;
/// In [`Instr::aux`]: the instruction sets the flag.
pub(crate) const SETS_CARRY: u32 = 2;

handler! {
    /// `(ops[0], CC) = operation(ops[1], ops[2], ops[3], CC)`
    carry<T> (Fn(T, T, T, bool) -> (T, bool)) carry_body
}

#[inline(always)]
unsafe fn carry_body<T: Copy, Op: Fn(T, T, T, bool) -> (T, bool) + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = crate::execute::lanes::instance::<Op>();
    // SAFETY: three sources and a destination as wide as `T`; the carry flag is a predicate of every frame.
    unsafe {
        let carries = if instr.aux & USES_CARRY != 0 { machine.predicate(frame::CARRY) } else { 0 };
        let (a, b, c) = (
            machine.source::<T>(instr.ops[1]),
            machine.source::<T>(instr.ops[2]),
            machine.source::<T>(instr.ops[3]),
        );
        let target = machine.target::<T>(instr.ops[0]);
        let mut out = 0;
        for lane in lanes_of(machine.mask) {
            let carry = carries & (1 << lane) != 0;
            let (value, carry) = operation(*a.add(lane), *b.add(lane), *c.add(lane), carry);
            *target.add(lane) = value;
            out |= u32::from(carry) << lane;
        }
        if instr.aux & SETS_CARRY != 0 {
            machine.set_predicate(frame::CARRY, out);
        }
    }
    Flow::Next
}

/// add, sub (of `ops[1]` and `ops[2]`; `ops[3]` is ignored), mad.lo, mad.hi.
pub(crate) fn select(name: &str, kind: Type) -> Option<Handler> {
    fn add<T: Carrying>() -> Handler {
        carry(|a: T, b: T, _: T, carry| a.carrying(b, carry))
    }
    fn sub<T: Carrying>() -> Handler {
        carry(|a: T, b: T, _: T, borrow| a.borrowing(b, borrow))
    }
    Some(match (name, kind) {
        ("add", Type::U32 | Type::S32) => add::<u32>(),
        ("add", Type::U64 | Type::S64) => add::<u64>(),
        ("sub", Type::U32 | Type::S32) => sub::<u32>(),
        ("sub", Type::U64 | Type::S64) => sub::<u64>(),
        ("mad.lo", Type::U32 | Type::S32) => {
            carry(|a: u32, b: u32, c: u32, carry| a.wrapping_mul(b).carrying(c, carry))
        }
        ("mad.lo", Type::U64 | Type::S64) => {
            carry(|a: u64, b: u64, c: u64, carry| a.wrapping_mul(b).carrying(c, carry))
        }
        ("mad.hi", Type::U32) => carry(|a: u32, b: u32, c: u32, carry| {
            (((u64::from(a) * u64::from(b)) >> 32) as u32).carrying(c, carry)
        }),
        ("mad.hi", Type::S32) => carry(|a: u32, b: u32, c: u32, carry| {
            let product = i64::from(a.cast_signed()) * i64::from(b.cast_signed());
            ((product >> 32) as u32).carrying(c, carry)
        }),
        ("mad.hi", Type::U64) => carry(|a: u64, b: u64, c: u64, carry| {
            (((u128::from(a) * u128::from(b)) >> 64) as u64).carrying(c, carry)
        }),
        ("mad.hi", Type::S64) => carry(|a: u64, b: u64, c: u64, carry| {
            let product = i128::from(a.cast_signed()) * i128::from(b.cast_signed());
            ((product >> 64) as u64).carrying(c, carry)
        }),
        _ => return None,
    })
}

trait Carrying: Copy + 'static {
    fn carrying(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing(self, other: Self, borrow: bool) -> (Self, bool);
}

impl Carrying for u32 {
    fn carrying(self, other: u32, carry: bool) -> (u32, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(u32::from(carry));
        (sum, first | second)
    }

    fn borrowing(self, other: u32, borrow: bool) -> (u32, bool) {
        let (difference, first) = self.overflowing_sub(other);
        let (difference, second) = difference.overflowing_sub(u32::from(borrow));
        (difference, first | second)
    }
}

impl Carrying for u64 {
    fn carrying(self, other: u64, carry: bool) -> (u64, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        (sum, first | second)
    }

    fn borrowing(self, other: u64, borrow: bool) -> (u64, bool) {
        let (difference, first) = self.overflowing_sub(other);
        let (difference, second) = difference.overflowing_sub(u64::from(borrow));
        (difference, first | second)
    }
}
