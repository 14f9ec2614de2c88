// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations on lanes of 16 bits, which lie in lanes of 32 with zeros above, and on f16.
//!
//! f16 is computed in f32, rounded twice. That is as good as once: 24 bits are enough for two times 11 and two more, and the sum
//! of fma, where they are not, is rounded to odd first.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::lanes::Lanes;
use super::meaning::{Field, HalfOp, Op};

/// Returns whether `Lanes::short` generates it.
pub(super) fn is_short(op: Op) -> bool {
    op.bytes() == 2
        || matches!(op, Op::JoinShorts | Op::Table(_) | Op::FromHalf | Op::FromBrain | Op::Half(..))
}

impl Lanes<'_, '_> {
    pub(super) fn low_half(&mut self, value: Value) -> Value {
        self.masked(value, 0xffff)
    }

    fn masked(&mut self, value: Value, mask: i64) -> Value {
        let mask = self.constant(4, mask);
        self.builder.ins().band(value, mask)
    }

    fn by(&mut self, value: Value, amount: i64, left: bool) -> Value {
        let amount = self.builder.ins().iconst(I32, amount);
        if left { self.builder.ins().ishl(value, amount) } else { self.builder.ins().ushr(value, amount) }
    }

    fn sign_extended(&mut self, value: Value, bits: u8) -> Value {
        let amount = self.builder.ins().iconst(I32, 32 - i64::from(bits));
        let high = self.builder.ins().ishl(value, amount);
        self.builder.ins().sshr(high, amount)
    }

    /// Lanes of 16 bits as signed numbers of 32.
    pub(super) fn short_signed(&mut self, value: Value) -> Value {
        self.sign_extended(value, 16)
    }

    /// Extracts or inserts a field in lanes of 32 bits.
    pub(super) fn field(&mut self, field: Field, value: Value) -> Value {
        let mut value = value;
        if field.shift != 0 {
            value = self.by(value, field.shift.into(), false);
        }
        let known = if field.from == 2 { 16 - field.shift } else { 32 - field.shift };
        if field.bits < 32 && field.signed {
            value = self.sign_extended(value, field.bits);
        } else if field.bits < known {
            value = self.masked(value, (1 << field.bits) - 1);
        }
        let narrow = field.to == 2 && (field.signed && field.bits < 32 || field.bits == 32);
        if narrow { self.low_half(value) } else { value }
    }

    /// The same of one scalar, of 64 bits perhaps.
    pub(super) fn scalar_field(&mut self, mut field: Field, value: Value) -> Value {
        use cranelift_codegen::ir::types::I64;
        let mut value = value;
        if field.from == 8 {
            if field.shift >= 32 {
                value = self.builder.ins().ushr_imm_s(value, 32);
                field.shift -= 32;
            }
            value = self.builder.ins().ireduce(I32, value);
        }
        let word = self.field(field, value);
        match (field.to, field.signed) {
            (8, true) => self.builder.ins().sextend(I64, word),
            (8, false) => self.builder.ins().uextend(I64, word),
            _ => word,
        }
    }

    /// shf.wrap of scalars.
    pub(super) fn scalar_funnel(&mut self, left: bool, args: &[Value]) -> Value {
        use cranelift_codegen::ir::types::I64;
        let low = self.builder.ins().uextend(I64, args[0]);
        let high = self.builder.ins().uextend(I64, args[1]);
        let high = self.builder.ins().ishl_imm_s(high, 32);
        let both = self.builder.ins().bor(low, high);
        let amount = self.builder.ins().band_imm_s(args[2], 31);
        let shifted = if left {
            let shifted = self.builder.ins().ishl(both, amount);
            self.builder.ins().ushr_imm_s(shifted, 32)
        } else {
            self.builder.ins().ushr(both, amount)
        };
        self.builder.ins().ireduce(I32, shifted)
    }

    /// Emits an operation that [`is_short`] accepts.
    pub(super) fn short(&mut self, op: Op, args: &[Value]) -> Value {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        match op {
            Op::Copy(_) => return a,
            Op::And(_) => return self.builder.ins().band(a, b),
            Op::Or(_) => return self.builder.ins().bor(a, b),
            Op::Xor(_) => return self.builder.ins().bxor(a, b),
            Op::Min(_, false) => return self.builder.ins().umin(a, b),
            Op::Max(_, false) => return self.builder.ins().umax(a, b),
            Op::Field(field) => return self.field(field, a),
            Op::JoinShorts => {
                let high = self.by(b, 16, true);
                return self.builder.ins().bor(a, high);
            }
            Op::Table(table) => return self.table(table, [a, b, args[2]]),
            Op::FromHalf => return self.half_to_single(a),
            Op::ToHalf => return self.single_to_half(a),
            Op::FromBrain => return self.by(a, 16, true),
            Op::Half(op, false) => return self.half(op, args),
            Op::Half(op, true) => {
                let parts = [false, true].map(|upper| {
                    let args: Vec<Value> = args
                        .iter()
                        .map(|arg| if upper { self.by(*arg, 16, false) } else { self.low_half(*arg) })
                        .collect();
                    self.half(op, &args)
                });
                let high = self.by(parts[1], 16, true);
                return self.builder.ins().bor(parts[0], high);
            }
            _ => {}
        }
        let value = match op {
            Op::Add(_) => self.builder.ins().iadd(a, b),
            Op::Sub(_) => self.builder.ins().isub(a, b),
            Op::Mul(_) => self.builder.ins().imul(a, b),
            Op::MulAdd(_) => {
                let product = self.builder.ins().imul(a, b);
                self.builder.ins().iadd(product, args[2])
            }
            Op::Not(_) => self.builder.ins().bnot(a),
            Op::Neg(_) => self.builder.ins().ineg(a),
            Op::Abs(_) => {
                let a = self.short_signed(a);
                self.builder.ins().iabs(a)
            }
            // Signed: min and max.
            op => {
                let (a, b) = (self.short_signed(a), self.short_signed(b));
                if let Op::Min(..) = op {
                    self.builder.ins().smin(a, b)
                } else {
                    self.builder.ins().smax(a, b)
                }
            }
        };
        self.low_half(value)
    }

    /// Any function of three bits, bit by bit.
    fn table(&mut self, table: u8, [a, b, c]: [Value; 3]) -> Value {
        let (no, yes) = (table & 15, table >> 4);
        let no = self.table_of_two(no, b, c);
        let yes = self.table_of_two(yes, b, c);
        match table {
            // The operation that nvcc generates most, without a choice.
            0x80 => {
                let both = self.builder.ins().band(b, c);
                self.builder.ins().band(a, both)
            }
            0xfe => {
                let any = self.builder.ins().bor(b, c);
                self.builder.ins().bor(a, any)
            }
            0x96 => {
                let odd = self.builder.ins().bxor(b, c);
                self.builder.ins().bxor(a, odd)
            }
            _ if self.vector => self.builder.ins().bitselect(a, yes, no),
            _ => {
                let yes = self.builder.ins().band(a, yes);
                let no = self.builder.ins().band_not(no, a);
                self.builder.ins().bor(yes, no)
            }
        }
    }

    /// Bit `2 * b + c` of the table.
    fn table_of_two(&mut self, table: u8, b: Value, c: Value) -> Value {
        match table {
            0 => self.constant(4, 0),
            15 => self.constant(4, -1),
            12 => b,
            10 => c,
            8 => self.builder.ins().band(b, c),
            14 => self.builder.ins().bor(b, c),
            6 => self.builder.ins().bxor(b, c),
            4 => self.builder.ins().band_not(b, c),
            2 => self.builder.ins().band_not(c, b),
            table => {
                let opposite = self.table_of_two(15 - table, b, c);
                self.builder.ins().bnot(opposite)
            }
        }
    }

    /// f16 to f32, NaN to the canonical one.
    pub(super) fn half_to_single(&mut self, value: Value) -> Value {
        let sign = self.masked(value, 0x8000);
        let sign = self.by(sign, 16, true);
        let magnitude = self.masked(value, 0x7fff);
        let shifted = self.by(magnitude, 13, true);
        // Times 2 to the 112th: the difference of the exponents; subnormal numbers become normal ones by it.
        let scale = self.constant(4, 0x7780_0000);
        let (kind, int) = (self.float(4), self.int(4));
        let (factor, number) = (self.cast(kind, scale), self.cast(kind, shifted));
        let scaled = self.builder.ins().fmul(number, factor);
        let scaled = self.cast(int, scaled);
        let infinity = self.constant(4, 0x7c00);
        let nan = self.constant(4, 0x7fff_ffff);
        let infinite = self.constant(4, 0x7f80_0000);
        let is_infinite = self.builder.ins().icmp(IntCC::Equal, magnitude, infinity);
        let is_nan = self.builder.ins().icmp(IntCC::SignedGreaterThan, magnitude, infinity);
        let scaled = self.choose(is_infinite, infinite, scaled);
        let signed = self.builder.ins().bor(scaled, sign);
        self.choose(is_nan, nan, signed)
    }

    /// f32 to f16, to the nearest, ties to even; any NaN to the canonical one.
    pub(super) fn single_to_half(&mut self, value: Value) -> Value {
        let (kind, int) = (self.float(4), self.int(4));
        let value = self.cast(int, value);
        let sign = self.by(value, 16, false);
        let sign = self.masked(sign, 0x8000);
        let magnitude = self.masked(value, 0x7fff_ffff);
        // Subnormal results: a half has its last bit where they have theirs, and the addition rounds.
        let half = self.constant(4, 0x3f00_0000);
        let (number, magic) = (self.cast(kind, magnitude), self.cast(kind, half));
        let sum = self.builder.ins().fadd(number, magic);
        let sum = self.cast(int, sum);
        let small = self.builder.ins().isub(sum, half);
        // Normal ones: half a unit, or a little less in front of an even number, carries into the bits that stay.
        let odd = self.by(magnitude, 13, false);
        let odd = self.masked(odd, 1);
        let bias = self.constant(4, ((15 - 127) << 23) + 0xfff);
        let rounded = self.builder.ins().iadd(magnitude, bias);
        let rounded = self.builder.ins().iadd(rounded, odd);
        let normal = self.by(rounded, 13, false);
        let least = self.constant(4, 0x3880_0000);
        let is_small = self.builder.ins().icmp(IntCC::SignedLessThan, magnitude, least);
        let bits = self.choose(is_small, small, normal);
        let most = self.constant(4, 0x477f_ffff);
        let is_large = self.builder.ins().icmp(IntCC::SignedGreaterThan, magnitude, most);
        let infinity = self.constant(4, 0x7c00);
        let bits = self.choose(is_large, infinity, bits);
        let bits = self.builder.ins().bor(bits, sign);
        let infinite = self.constant(4, 0x7f80_0000);
        let is_nan = self.builder.ins().icmp(IntCC::SignedGreaterThan, magnitude, infinite);
        let nan = self.constant(4, 0x7fff);
        self.choose(is_nan, nan, bits)
    }

    fn half(&mut self, op: HalfOp, args: &[Value]) -> Value {
        if let HalfOp::Neg | HalfOp::Abs = op {
            let magnitude = self.masked(args[0], 0x7fff);
            let infinity = self.constant(4, 0x7c00);
            let is_nan = self.builder.ins().icmp(IntCC::SignedGreaterThan, magnitude, infinity);
            let value = if op == HalfOp::Abs {
                magnitude
            } else {
                let sign = self.constant(4, 0x8000);
                self.builder.ins().bxor(args[0], sign)
            };
            let nan = self.constant(4, 0x7fff);
            return self.choose(is_nan, nan, value);
        }
        let (kind, int) = (self.float(4), self.int(4));
        let numbers: Vec<Value> = args
            .iter()
            .map(|arg| {
                let single = self.half_to_single(*arg);
                self.cast(kind, single)
            })
            .collect();
        let (a, b) = (numbers[0], numbers[1]);
        let value = match op {
            HalfOp::Add => self.builder.ins().fadd(a, b),
            HalfOp::Sub => self.builder.ins().fsub(a, b),
            HalfOp::Mul => self.builder.ins().fmul(a, b),
            _ => {
                let product = self.builder.ins().fmul(a, b);
                return self.sum_to_half(product, numbers[2]);
            }
        };
        let value = self.cast(int, value);
        self.single_to_half(value)
    }

    /// The sum of two f32 as f16, rounded once.
    fn sum_to_half(&mut self, a: Value, b: Value) -> Value {
        let (kind, int) = (self.float(4), self.int(4));
        let sum = self.builder.ins().fadd(a, b);
        // The exact error of the rounding.
        let of_b = self.builder.ins().fsub(sum, a);
        let of_a = self.builder.ins().fsub(sum, of_b);
        let rest_a = self.builder.ins().fsub(a, of_a);
        let rest_b = self.builder.ins().fsub(b, of_b);
        let rest = self.builder.ins().fadd(rest_a, rest_b);
        let zero = self.constant(4, 0);
        let zero = self.cast(kind, zero);
        let above = self.compare_floats(FloatCC::GreaterThan, 4, rest, zero);
        let below = self.compare_floats(FloatCC::LessThan, 4, rest, zero);
        let negative = self.compare_floats(FloatCC::LessThan, 4, sum, zero);
        let bits = self.cast(int, sum);
        // For an even inexact number, the neighbour in the direction of the rest.
        let one = self.constant(4, 1);
        let minus = self.constant(4, -1);
        let outwards = self.choose(negative, minus, one);
        let inwards = self.choose(negative, one, minus);
        let nothing = self.constant(4, 0);
        let step = self.choose(below, inwards, nothing);
        let step = self.choose(above, outwards, step);
        let moved = self.builder.ins().iadd(bits, step);
        let last = self.builder.ins().band(bits, one);
        let is_even = self.builder.ins().icmp(IntCC::Equal, last, nothing);
        let bits = self.choose(is_even, moved, bits);
        self.single_to_half(bits)
    }
}
