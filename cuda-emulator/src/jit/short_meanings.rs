// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the list of `meaning` that has to do with registers of 16 bits.

use super::meaning::{Field, HalfOp, List, Meaning, Op, Scalar, Test};
use crate::execute::compare::{compare, select};
use crate::execute::half::{self, HalfModifiers};
use crate::execute::round::Rounding;
use crate::execute::{bits, convert, integer, moves};
use crate::ptx::types::Type;

impl List {
    pub(super) fn shorts(&mut self) {
        for (kind, signed) in [(Type::U16, false), (Type::S16, true)] {
            self.lane(integer::binary("add", kind), Op::Add(2));
            self.lane(integer::binary("sub", kind), Op::Sub(2));
            self.lane(integer::binary("mul.lo", kind), Op::Mul(2));
            self.lane(integer::ternary("mad.lo", kind), Op::MulAdd(2));
            self.lane(integer::binary("min", kind), Op::Min(2, signed));
            self.lane(integer::binary("max", kind), Op::Max(2, signed));
            self.lane(integer::unary("neg", kind), Op::Neg(2));
            self.lane(integer::unary("abs", kind), Op::Abs(2));
            self.lane(bits::shift("shr", kind), Op::Shr(2, signed));
            let names = ["lt", "eq", "le", "gt", "ne", "ge"];
            for (name, test) in names.iter().zip(1..) {
                self.add(compare(name, kind, false), Meaning::Compare(Test(test), Scalar::Int(2, signed)));
            }
        }
        let kind = Type::B16;
        self.lane(bits::logic("and", kind), Op::And(2));
        self.lane(bits::logic("or", kind), Op::Or(2));
        self.lane(bits::logic("xor", kind), Op::Xor(2));
        self.lane(bits::negation("not", kind), Op::Not(2));
        self.lane(bits::shift("shl", kind), Op::Shl(2));
        self.lane(moves::copy(2), Op::Copy(2));
        self.lane(moves::join(2), Op::JoinShorts);
        self.add(select(2), Meaning::Select(2));
        for left in [true, false] {
            self.lane(Some(bits::funnel_shift(left, true)), Op::Funnel(left));
        }
        self.lane(Some(integer::lop3()), Op::Table(0));
        self.fields();
    }

    fn field(&mut self, handler: Option<crate::code::Handler>, field: Field) {
        self.lane(handler, Op::Field(field));
    }

    fn fields(&mut self) {
        for (from, to) in [(2, 2), (2, 4), (2, 8), (4, 2), (4, 4), (8, 2), (8, 4), (4, 8)] {
            for bits in [8, 16, 32] {
                for signed in [false, true] {
                    let handler = convert::extend(from.into(), bits.into(), signed, to.into());
                    self.field(handler, Field { from, to, shift: 0, bits, signed });
                }
            }
        }
        for (from, bytes) in [(8_u8, 2_u8), (4, 2), (4, 1), (2, 1)] {
            for index in 0..from / bytes {
                let handler = moves::extract(from.into(), bytes.into(), index.into());
                let (shift, bits) = (8 * bytes * index, 8 * bytes);
                self.field(handler, Field { from, to: 2, shift, bits, signed: false });
            }
        }
        let kinds = [
            (Type::U8, 8),
            (Type::S8, 8),
            (Type::U16, 16),
            (Type::S16, 16),
            (Type::U32, 32),
            (Type::S32, 32),
            (Type::U64, 64),
            (Type::S64, 64),
        ];
        for (to, to_bits) in kinds {
            for (from, from_bits) in kinds {
                // Sources of 8 bits come extended to 16.
                let held = from_bits.max(16);
                let (bits, signed) =
                    if to_bits > held { (held, from.is_signed()) } else { (to_bits, to.is_signed()) };
                if bits == 64 || (from_bits.max(16), to_bits.max(16)) == (32, 32) {
                    continue;
                }
                let field = Field { from: held / 8, to: to_bits.max(16) / 8, shift: 0, bits, signed };
                self.field(convert::integer(to, from, false), field);
            }
        }
    }

    pub(super) fn halves(&mut self) {
        let plain = convert::Conversion {
            rounding: Rounding::Nearest,
            integral: false,
            flush: false,
            saturate: false,
            relu: false,
        };
        self.lane(convert::float(Type::F32, Type::F16, plain), Op::FromHalf);
        self.lane(convert::float(Type::F16, Type::F32, plain), Op::ToHalf);
        self.lane(convert::float(Type::F32, Type::Bf16, plain), Op::FromBrain);
        self.add(compare("lt", Type::F16, false), Meaning::Compare(Test(1), Scalar::F16));
        for (kind, pair) in [(Type::F16, false), (Type::F16x2, true)] {
            let none = HalfModifiers::default();
            for (name, op) in [("add", HalfOp::Add), ("sub", HalfOp::Sub), ("mul", HalfOp::Mul)] {
                self.lane(half::binary(name, kind, none), Op::Half(op, pair));
            }
            self.lane(half::multiply_add(kind, none), Op::Half(HalfOp::MulAdd, pair));
            self.lane(half::unary("neg", kind, false), Op::Half(HalfOp::Neg, pair));
            self.lane(half::unary("abs", kind, false), Op::Half(HalfOp::Abs, pair));
        }
    }
}
