// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setp: predicates from two numbers.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::meaning::{Scalar, Test};
use super::nodes::Node;
use super::translate::{Done, Held, Translator, Untranslatable};
use crate::code::LANES;
use crate::native::shape::Kind;

impl Translator<'_, '_, '_> {
    /// A comparison.
    pub(super) fn compare(&mut self, pc: u32, test: Test, scalar: Scalar) -> Done {
        let instr = self.flow.instr(pc);
        let bytes = scalar.bytes();
        let a = self.operand(instr.ops[1], bytes)?;
        let b = self.operand(instr.ops[2], bytes)?;
        let target = self.flow.register(instr.ops[0]);
        let new = match (&a, &b) {
            (Held::Scalars(Kind::Uniform, a), Held::Scalars(Kind::Uniform, b)) => {
                let truth = self.lanes(false).compare(test, scalar, a[0], b[0]);
                Held::Bits(self.builder.ins().bmask(I32, truth))
            }
            (Held::Scalars(Kind::Affine(1), bases), Held::Scalars(Kind::Uniform, limit))
                if matches!(scalar, Scalar::Int(4, _)) =>
            {
                Held::Bits(self.compare_steps(test, scalar, bases, limit[0])?)
            }
            (Held::Scalars(Kind::Uniform, limit), Held::Scalars(Kind::Affine(1), bases))
                if matches!(scalar, Scalar::Int(4, _)) =>
            {
                Held::Bits(self.compare_steps(test.swapped(), scalar, bases, limit[0])?)
            }
            _ => {
                let (mut a, mut b) = (self.as_node(&a, bytes), self.as_node(&b, bytes));
                if scalar == Scalar::F32 {
                    (a, b) = (self.any_nan(a), self.any_nan(b));
                }
                Held::Condition(self.node(Node::Compare(test, scalar, a, b), 4))
            }
        };
        self.define(pc, target, new);
        Ok(())
    }

    /// Compares integers that go up by one from lane to lane with one number: how many are below it decides.
    fn compare_steps(
        &mut self,
        test: Test,
        scalar: Scalar,
        bases: &[Value],
        limit: Value,
    ) -> Result<Value, Untranslatable> {
        let signed = matches!(scalar, Scalar::Int(_, true));
        let lanes = (LANES / bases.len()) as i64;
        let wide_limit = self.extended(limit, signed);
        let mut all = None;
        let mut fine = None;
        for (group, base) in (0..).zip(bases) {
            let last = self.builder.ins().iadd_imm_s(*base, lanes - 1);
            let (first, last) = (self.extended(*base, signed), self.extended(last, signed));
            let expected = self.builder.ins().iadd_imm_s(first, lanes - 1);
            let ok = self.builder.ins().icmp(IntCC::Equal, last, expected);
            let distance = self.builder.ins().isub(wide_limit, first);
            let one = self.builder.ins().iconst(I64, 1);
            let zero = self.builder.ins().iconst(I64, 0);
            // `<=` is `<` of the next number, `>=` and `>` are their opposites, as is `!=` of `==`.
            let mask = if let Test(2 | 5) = test {
                let inside = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThan, distance, lanes);
                let bit = self.builder.ins().ishl(one, distance);
                self.builder.ins().select(inside, bit, zero)
            } else {
                let next = if let Test(3 | 4) = test { 1 } else { 0 };
                let count = self.builder.ins().iadd_imm_s(distance, next);
                let most = self.builder.ins().iconst(I64, lanes);
                let count = self.builder.ins().smin(count, most);
                let count = self.builder.ins().smax(count, zero);
                let bit = self.builder.ins().ishl(one, count);
                self.builder.ins().iadd_imm_s(bit, -1)
            };
            let mask = self.builder.ins().ireduce(I32, mask);
            let mask = self.builder.ins().ishl_imm_s(mask, group * lanes);
            all = Some(all.map_or(mask, |all| self.builder.ins().bor(all, mask)));
            fine = Some(fine.map_or(ok, |fine| self.builder.ins().band(fine, ok)));
        }
        let (Some(mut bits), Some(fine)) = (all, fine) else { return Err(Untranslatable("no groups")) };
        if let Test(4..=6) = test {
            bits = self.builder.ins().bnot(bits);
        }
        let (cold, label) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(label, I32);
        self.builder.ins().brif(fine, label, &[bits.into()], cold, &[]);
        let mark = self.enter_cold(cold);
        // Some lane wraps around.
        let a = self.as_node(&Held::Scalars(Kind::Affine(1), bases.to_vec()), 4);
        let b = self.as_node(&Held::Scalars(Kind::Uniform, vec![limit]), 4);
        let node = self.node(Node::Compare(test, scalar, a, b), 4);
        let bits = self.pack(node);
        self.builder.ins().jump(label, &[bits.into()]);
        self.leave_cold(mark);
        self.go_on_in(label);
        Ok(result)
    }
}
