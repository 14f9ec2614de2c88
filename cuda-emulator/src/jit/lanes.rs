// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lane-wise operations as instructions, both for one scalar and for a vector of 128 bits. Integers are the common
//! type: floats are cast on input and output, which costs nothing.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F32X4, F64, F64X2, I8X16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{ConstantData, InstBuilder, MemFlagsData, Type, Value};
use cranelift_frontend::FunctionBuilder;

use super::meaning::{Op, Scalar, Test};
use super::short_lanes::is_short;

/// Builds operations.
pub(super) struct Lanes<'b, 'f> {
    pub(super) builder: &'b mut FunctionBuilder<'f>,
    /// On vectors rather than scalars.
    pub(super) vector: bool,
}

/// The canonical NaN of f32.
const NAN: i64 = 0x7fff_ffff;

impl Lanes<'_, '_> {
    pub(super) fn int(&self, bytes: u8) -> Type {
        match (bytes, self.vector) {
            (8, false) => I64,
            (8, true) => I64X2,
            (_, false) => I32,
            (_, true) => I32X4,
        }
    }

    pub(super) fn float(&self, bytes: u8) -> Type {
        match (bytes, self.vector) {
            (8, false) => F64,
            (8, true) => F64X2,
            (_, false) => F32,
            (_, true) => F32X4,
        }
    }

    pub(super) fn cast(&mut self, to: Type, value: Value) -> Value {
        if self.builder.func.dfg.value_type(value) == to {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little);
        self.builder.ins().bitcast(to, flags, value)
    }

    /// The same constant in all lanes.
    pub(super) fn constant(&mut self, bytes: u8, value: i64) -> Value {
        let bytes = bytes.max(4);
        let value = if bytes == 4 { i64::from(value as u32) } else { value };
        if !self.vector {
            let kind = self.int(bytes);
            return self.builder.ins().iconst(kind, value);
        }
        let lane = value.to_le_bytes();
        let data: Vec<u8> = lane[..usize::from(bytes)].iter().copied().cycle().take(16).collect();
        self.vector_constant(bytes, data)
    }

    /// A vector of these bytes.
    pub(super) fn vector_constant(&mut self, bytes: u8, data: Vec<u8>) -> Value {
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(data));
        let kind = if bytes == 8 { I64X2 } else { I32X4 };
        self.builder.ins().vconst(kind, constant)
    }

    /// `yes` where `condition` holds: a truth value, or in vectors lanes of ones.
    pub(super) fn choose(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        if self.vector {
            self.builder.ins().bitselect(condition, yes, no)
        } else {
            self.builder.ins().select(condition, yes, no)
        }
    }

    pub(super) fn compare_floats(&mut self, condition: FloatCC, bytes: u8, a: Value, b: Value) -> Value {
        let kind = self.float(bytes);
        let (a, b) = (self.cast(kind, a), self.cast(kind, b));
        self.builder.ins().fcmp(condition, a, b)
    }

    /// A comparison: a truth value, or in vectors lanes of ones, as wide as the operands.
    pub(super) fn compare(&mut self, test: Test, scalar: Scalar, a: Value, b: Value) -> Value {
        let bytes = scalar.bytes();
        let (mut a, mut b) = (a, b);
        if scalar == Scalar::F16 {
            (a, b) = (self.half_to_single(a), self.half_to_single(b));
            return self.compare(test, Scalar::F32, a, b);
        }
        if let Scalar::Int(2, true) = scalar {
            (a, b) = (self.short_signed(a), self.short_signed(b));
        }
        if let Scalar::Int(_, signed) = scalar {
            let condition = match (test.0, signed) {
                (1, true) => IntCC::SignedLessThan,
                (1, false) => IntCC::UnsignedLessThan,
                (2, _) => IntCC::Equal,
                (3, true) => IntCC::SignedLessThanOrEqual,
                (3, false) => IntCC::UnsignedLessThanOrEqual,
                (4, true) => IntCC::SignedGreaterThan,
                (4, false) => IntCC::UnsignedGreaterThan,
                (5, _) => IntCC::NotEqual,
                (_, true) => IntCC::SignedGreaterThanOrEqual,
                (_, false) => IntCC::UnsignedGreaterThanOrEqual,
            };
            return self.builder.ins().icmp(condition, a, b);
        }
        let simple = match test.0 {
            1 => FloatCC::LessThan,
            2 => FloatCC::Equal,
            3 => FloatCC::LessThanOrEqual,
            4 => FloatCC::GreaterThan,
            6 => FloatCC::GreaterThanOrEqual,
            7 => FloatCC::Ordered,
            8 => FloatCC::Unordered,
            13 => FloatCC::NotEqual,
            9 | 10 | 11 | 12 | 14 => {
                // The negation holds for NaN.
                let opposite = self.compare(Test(15 - test.0), scalar, a, b);
                return self.negate_truth(opposite);
            }
            _ => {
                let less = self.compare_floats(FloatCC::LessThan, bytes, a, b);
                let greater = self.compare_floats(FloatCC::GreaterThan, bytes, a, b);
                return self.builder.ins().bor(less, greater);
            }
        };
        self.compare_floats(simple, bytes, a, b)
    }

    fn negate_truth(&mut self, truth: Value) -> Value {
        if self.vector { self.builder.ins().bnot(truth) } else { self.builder.ins().bxor_imm_s(truth, 1) }
    }

    /// Any NaN becomes the one of PTX.
    pub(super) fn canonical(&mut self, value: Value) -> Value {
        let value = self.cast(self.int(4), value);
        let is_nan = self.compare_floats(FloatCC::Unordered, 4, value, value);
        let nan = self.constant(4, NAN);
        self.choose(is_nan, nan, value)
    }

    /// An operation whose operands and result have the same width. Floats are left with whatever NaN comes out.
    pub(super) fn apply(&mut self, op: Op, args: &[Value]) -> Value {
        let a = args[0];
        let b = args.get(1).copied().unwrap_or(a);
        if is_short(op) {
            return self.short(op, args);
        }
        match op {
            Op::Copy(_) => a,
            Op::Add(_) | Op::AddImm => self.builder.ins().iadd(a, b),
            Op::Sub(_) => self.builder.ins().isub(a, b),
            Op::Mul(_) => self.builder.ins().imul(a, b),
            Op::MulAdd(_) => {
                let product = self.builder.ins().imul(a, b);
                self.builder.ins().iadd(product, args[2])
            }
            Op::And(_) => self.builder.ins().band(a, b),
            Op::Or(_) => self.builder.ins().bor(a, b),
            Op::Xor(_) => self.builder.ins().bxor(a, b),
            Op::Not(_) => self.builder.ins().bnot(a),
            Op::Neg(_) => self.builder.ins().ineg(a),
            Op::Abs(_) => self.builder.ins().iabs(a),
            Op::Min(_, true) => self.builder.ins().smin(a, b),
            Op::Min(_, false) => self.builder.ins().umin(a, b),
            Op::Max(_, true) => self.builder.ins().smax(a, b),
            Op::Max(_, false) => self.builder.ins().umax(a, b),
            Op::FromInt(signed) => {
                let kind = self.float(4);
                let value = if signed {
                    self.builder.ins().fcvt_from_sint(kind, a)
                } else {
                    self.builder.ins().fcvt_from_uint(kind, a)
                };
                self.cast(self.int(4), value)
            }
            Op::ToInt(signed) => {
                let (from, to) = (self.float(4), self.int(4));
                let value = self.cast(from, a);
                if signed {
                    self.builder.ins().fcvt_to_sint_sat(to, value)
                } else {
                    self.builder.ins().fcvt_to_uint_sat(to, value)
                }
            }
            Op::FNeg => {
                let sign = self.constant(4, 1 << 31);
                self.builder.ins().bxor(a, sign)
            }
            Op::FAbs => {
                let rest = self.constant(4, NAN);
                self.builder.ins().band(a, rest)
            }
            Op::DAdd | Op::DSub | Op::DMul | Op::DDiv | Op::DMulAdd | Op::DSqrt | Op::DNeg | Op::DAbs => {
                self.double(op, args)
            }
            Op::FMin | Op::FMax => self.extremum(op == Op::FMax, a, b),
            _ => self.arithmetic(op, args),
        }
    }

    fn arithmetic(&mut self, op: Op, args: &[Value]) -> Value {
        let kind = self.float(4);
        let floats: Vec<Value> = args.iter().map(|arg| self.cast(kind, *arg)).collect();
        let a = floats[0];
        let b = floats.get(1).copied().unwrap_or(a);
        let value = match op {
            Op::FAdd => self.builder.ins().fadd(a, b),
            Op::FSub => self.builder.ins().fsub(a, b),
            Op::FMul => self.builder.ins().fmul(a, b),
            Op::FDiv => self.builder.ins().fdiv(a, b),
            Op::FMulAdd => self.builder.ins().fma(a, b, floats[2]),
            Op::FSqrt => self.builder.ins().sqrt(a),
            Op::FRsqrt => self.inverse_root(a),
            _ => {
                let one = self.constant(4, i64::from(1.0_f32.to_bits()));
                let one = self.cast(kind, one);
                self.builder.ins().fdiv(one, a)
            }
        };
        self.cast(self.int(4), value)
    }

    /// Double precision. Of several NaN operands hardware's result is a certain one, as is that of x86: the first operand's,
    /// made quiet, if that is NaN, else the second one's; and both have the same one for invalid operations.
    fn double(&mut self, op: Op, args: &[Value]) -> Value {
        let kind = self.float(8);
        let floats: Vec<Value> = args.iter().map(|arg| self.cast(kind, *arg)).collect();
        let a = floats[0];
        let b = floats.get(1).copied().unwrap_or(a);
        let value = match op {
            Op::DAdd => self.builder.ins().fadd(b, a),
            Op::DMul => self.builder.ins().fmul(b, a),
            Op::DDiv => self.builder.ins().fdiv(a, b),
            Op::DSqrt => self.builder.ins().sqrt(a),
            Op::DSub => {
                let value = self.builder.ins().fsub(a, b);
                return self.with_nan(value, b);
            }
            Op::DNeg | Op::DAbs => {
                let sign = self.constant(8, i64::MIN);
                let rest = self.constant(8, i64::MAX);
                let word = args[0];
                let value = if op == Op::DNeg {
                    self.builder.ins().bxor(word, sign)
                } else {
                    self.builder.ins().band(word, rest)
                };
                return self.with_nan(value, a);
            }
            _ => {
                // The second operand's, the third one's, the first one's.
                let value = self.builder.ins().fma(a, b, floats[2]);
                let other = self.builder.ins().fadd(floats[2], a);
                let nan = self.with_nan(other, b);
                let invalid = self.constant(8, 0xfff8_0000_0000_0000_u64.cast_signed());
                let is_nan = self.compare_floats(FloatCC::Unordered, 8, nan, nan);
                let nan = self.choose(is_nan, nan, invalid);
                let is_nan = self.compare_floats(FloatCC::Unordered, 8, value, value);
                let value = self.cast(self.int(8), value);
                return self.choose(is_nan, nan, value);
            }
        };
        self.cast(self.int(8), value)
    }

    /// `value`, but where `operand` is NaN that one, made quiet.
    fn with_nan(&mut self, value: Value, operand: Value) -> Value {
        let is_nan = self.compare_floats(FloatCC::Unordered, 8, operand, operand);
        let kind = self.int(8);
        let (value, word) = (self.cast(kind, value), self.cast(kind, operand));
        let quiet = self.constant(8, 1 << 51);
        let word = self.builder.ins().bor(word, quiet);
        self.choose(is_nan, word, value)
    }

    /// The upper half of a scalar's or the upper halves of two vectors' 64-bit products.
    pub(super) fn upper(&mut self, low: Value, high: Value) -> Value {
        if self.vector {
            return self.shuffle(low, high, &[1, 3, 5, 7]);
        }
        let value = self.builder.ins().ushr_imm_s(low, 32);
        self.builder.ins().ireduce(I32, value)
    }

    /// From 32 to 64 bits or back: of vectors, both halves.
    pub(super) fn resized(&mut self, op: Op, value: [Value; 2]) -> [Value; 2] {
        let halves = |lanes: &mut Self, value: Value| [value, lanes.shuffle(value, value, &[2, 3, 2, 3])];
        match op {
            Op::Promote if self.vector => halves(self, value[0]).map(|half| {
                let half = self.cast(F32X4, half);
                let wide = self.builder.ins().fvpromote_low(half);
                self.cast(I64X2, wide)
            }),
            Op::Promote => {
                let single = self.cast(F32, value[0]);
                let wide = self.builder.ins().fpromote(F64, single);
                [self.cast(I64, wide); 2]
            }
            Op::DFromInt if self.vector => halves(self, value[0]).map(|half| {
                let wide = self.builder.ins().swiden_low(half);
                let wide = self.builder.ins().fcvt_from_sint(F64X2, wide);
                self.cast(I64X2, wide)
            }),
            Op::DFromInt => {
                let wide = self.builder.ins().fcvt_from_sint(F64, value[0]);
                [self.cast(I64, wide); 2]
            }
            _ if self.vector => {
                let [low, high] = value.map(|half| {
                    let half = self.cast(F64X2, half);
                    self.builder.ins().fvdemote(half)
                });
                [self.shuffle(low, high, &[0, 1, 4, 5]); 2]
            }
            _ => {
                let double = self.cast(F64, value[0]);
                let narrow = self.builder.ins().fdemote(F32, double);
                [self.cast(I32, narrow); 2]
            }
        }
    }

    /// `1 / sqrt(a)` in double precision, rounded once.
    fn inverse_root(&mut self, a: Value) -> Value {
        let one = self.constant(8, 1.0_f64.to_bits() as i64);
        let one = self.cast(self.float(8), one);
        let inverse = |lanes: &mut Self, double: Value| {
            let root = lanes.builder.ins().sqrt(double);
            lanes.builder.ins().fdiv(one, root)
        };
        if !self.vector {
            let double = self.builder.ins().fpromote(F64, a);
            let value = inverse(self, double);
            return self.builder.ins().fdemote(F32, value);
        }
        let upper = self.shuffle(a, a, &[2, 3, 2, 3]);
        let upper = self.cast(F32X4, upper);
        let halves = [a, upper].map(|half| {
            let double = self.builder.ins().fvpromote_low(half);
            let value = inverse(self, double);
            self.builder.ins().fvdemote(value)
        });
        let joined = self.shuffle(halves[0], halves[1], &[0, 1, 4, 5]);
        self.cast(F32X4, joined)
    }

    /// min and max: of two zeros by sign, of a NaN and a number the number.
    fn extremum(&mut self, max: bool, a: Value, b: Value) -> Value {
        let condition = if max { FloatCC::GreaterThan } else { FloatCC::LessThan };
        let first = self.compare_floats(condition, 4, a, b);
        let mut result = self.choose(first, a, b);
        let same = self.compare_floats(FloatCC::Equal, 4, a, b);
        let signs = if max { self.builder.ins().band(a, b) } else { self.builder.ins().bor(a, b) };
        result = self.choose(same, signs, result);
        let b_is_nan = self.compare_floats(FloatCC::Unordered, 4, b, b);
        result = self.choose(b_is_nan, a, result);
        let a_is_nan = self.compare_floats(FloatCC::Unordered, 4, a, a);
        self.choose(a_is_nan, b, result)
    }

    /// Picks four of the eight 32-bit lanes of `a` and `b`.
    pub(super) fn shuffle(&mut self, a: Value, b: Value, picks: &[u8; 4]) -> Value {
        let bytes: Vec<u8> = picks.iter().flat_map(|lane| (0..4).map(move |byte| lane * 4 + byte)).collect();
        let mask = self.builder.func.dfg.immediates.push(ConstantData::from(bytes));
        let (a, b) = (self.cast(I8X16, a), self.cast(I8X16, b));
        let value = self.builder.ins().shuffle(a, b, mask);
        self.cast(I32X4, value)
    }

    /// Shifts by the same amount in all lanes, which saturates at the width.
    pub(super) fn shift(&mut self, op: Op, value: Value, amount: Value) -> Value {
        let bits = i64::from(op.bytes()) * 8;
        if let Op::Shr(bytes, true) = op {
            let value = if bytes == 2 { self.short_signed(value) } else { value };
            let most = self.builder.ins().iconst(I32, bits - 1);
            let amount = self.builder.ins().umin(amount, most);
            let value = self.builder.ins().sshr(value, amount);
            return if bytes == 2 { self.low_half(value) } else { value };
        }
        let shifted = if let Op::Shl(_) = op {
            self.builder.ins().ishl(value, amount)
        } else {
            self.builder.ins().ushr(value, amount)
        };
        let fits = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThan, amount, bits);
        let ones = self.builder.ins().bmask(if op.bytes() == 8 { I64 } else { I32 }, fits);
        let kind = self.int(op.bytes());
        let keep = if self.vector { self.builder.ins().splat(kind, ones) } else { ones };
        let value = self.builder.ins().band(shifted, keep);
        if op == Op::Shl(2) { self.low_half(value) } else { value }
    }

    /// Shifts by a constant amount below the width.
    pub(super) fn shift_by(&mut self, op: Op, value: Value, amount: i64) -> Value {
        let amount = self.builder.ins().iconst(I32, amount);
        let value = if op == Op::Shr(2, true) { self.short_signed(value) } else { value };
        let shifted = match op {
            Op::Shl(_) => self.builder.ins().ishl(value, amount),
            Op::Shr(_, true) => self.builder.ins().sshr(value, amount),
            _ => self.builder.ins().ushr(value, amount),
        };
        if matches!(op, Op::Shl(2) | Op::Shr(2, true)) { self.low_half(shifted) } else { shifted }
    }
}
