// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions other than branches and memory accesses.

use std::ops::Range;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};

use super::calls;
use super::flow::{Register, Set};
use super::kinds;
use super::meaning::{Logic, Meaning, Op, Special};
use super::nodes::{Node, NodeId};
use super::translate::{Done, Held, Translator, Untranslatable};
use crate::code::LANES;
use crate::execute::moves::Symbol;
use crate::native::entry::Code;
use crate::native::shape::Kind;
use crate::native::view::View;

impl Translator<'_, '_, '_> {
    /// One instruction; `before` are the registers that are alive then.
    pub(super) fn instruction(&mut self, pc: u32, before: &Set) -> Done {
        match self.flow.meaning(pc) {
            Meaning::Nothing => Ok(()),
            Meaning::Lane(op) => self.lane(pc, op, before),
            Meaning::Compare(test, scalar) => self.compare(pc, test, scalar),
            Meaning::Select(bytes) => self.select(pc, bytes),
            Meaning::Logic(logic) => self.logic(pc, logic),
            Meaning::Special(special) => self.special(pc, special),
            Meaning::Address(symbol, bytes) => self.address(pc, symbol, bytes),
            Meaning::LoadParam(element) => self.load_params(pc, element),
            Meaning::Load(element) => self.load(pc, element, before),
            Meaning::Store(element) => self.store(pc, element, before),
            Meaning::Shuffle(mode) => self.shuffle(pc, mode, before),
            Meaning::Call | Meaning::Exit => self.call(pc, before),
        }
    }

    /// The lanes that execute an instruction.
    pub(super) fn mask(&mut self, pc: u32) -> Value {
        let Some((guard, negated)) = self.flow.guard(pc) else { return self.active };
        let bits = self.bits(guard);
        if negated {
            return self.builder.ins().band_not(self.active, bits);
        }
        self.builder.ins().band(bits, self.active)
    }

    /// Gives a register the value that an instruction computes, in the lanes that its guard lets execute it.
    pub(super) fn define(&mut self, pc: u32, register: usize, new: Held) {
        let Some((guard, negated)) = self.flow.guard(pc) else {
            self.set(register, new);
            return;
        };
        let bytes = self.flow.registers[register].bytes;
        let uniform = self.state[guard] == Kind::Uniform;
        let mut bits = self.bits(guard);
        if negated {
            bits = self.builder.ins().bnot(bits);
        }
        let old = self.held(register);
        let merged = match (&old, &new) {
            _ if bytes == 0 => {
                let (old, new) = (self.bits(register), self.condition_bits(&new));
                let kept = self.builder.ins().band_not(old, bits);
                let added = self.builder.ins().band(new, bits);
                Held::Bits(self.builder.ins().bor(kept, added))
            }
            (Held::Scalars(a, old), Held::Scalars(b, new)) if uniform && a.join(*b) != Kind::Vector => {
                let pick = |values: &[Value], index: usize| values[index.min(values.len() - 1)];
                let count = old.len().max(new.len());
                let values = (0..count)
                    .map(|index| self.builder.ins().select(bits, pick(new, index), pick(old, index)))
                    .collect();
                Held::Scalars(a.join(*b), values)
            }
            _ => {
                let (old, new) = (self.as_node(&old, bytes), self.as_node(&new, bytes));
                let condition = self.node(Node::Bits(bits), 4);
                Held::Node(self.node(Node::Select(condition, new, old), bytes))
            }
        };
        self.set(register, merged);
    }

    pub(super) fn condition_bits(&mut self, held: &Held) -> Value {
        match held {
            Held::Bits(bits) => *bits,
            Held::Condition(node) => self.pack(*node),
            Held::Node(_) | Held::Scalars(..) => self.builder.ins().iconst(I32, 0),
        }
    }

    fn lane(&mut self, pc: u32, op: Op, before: &Set) -> Done {
        let flow = self.flow;
        let instr = flow.instr(pc);
        let mut args = Vec::new();
        for index in 0..op.sources() {
            args.push(self.operand(instr.ops[index + 1], op.source_bytes(index))?);
        }
        if op == Op::AddImm {
            let value = self.builder.ins().iconst(I64, instr.imm as i64);
            args.push(Held::Scalars(Kind::Uniform, vec![value]));
        }
        let target = flow.register(instr.ops[0]);
        let kind = kinds::result(flow, self.variant.shape, pc, &self.state);
        if self.scalar_groups(kind).is_some() {
            let new = self.lane_scalars(pc, op, &args, kind, before)?;
            self.define(pc, target, new);
            return Ok(());
        }
        if let Op::Shl(_) | Op::Shr(..) = op {
            let literal = self.literal(instr.ops[2]);
            let Held::Scalars(Kind::Uniform, amount) = &args[1] else { return self.call(pc, before) };
            let amount = match literal {
                Some(amount) if u64::from(amount) < u64::from(op.bytes()) * 8 => Ok(i64::from(amount)),
                _ => Err(amount[0]),
            };
            let value = self.as_node(&args[0], op.bytes());
            let node = self.node(Node::Shift(op, value, amount), op.bytes());
            self.define(pc, target, Held::Node(node));
            return Ok(());
        }
        if let Op::Funnel(_) = op {
            return self.funnel(pc, op, &args, before);
        }
        let nodes: Vec<NodeId> = args
            .iter()
            .enumerate()
            .map(|(index, arg)| {
                let node = self.as_node(arg, op.source_bytes(index.min(op.sources() - 1)));
                if op.takes_floats() { self.any_nan(node) } else { node }
            })
            .collect();
        let mut node = match op {
            Op::Copy(_) => nodes[0],
            _ => self.node(Node::Lane(op, nodes), op.bytes()),
        };
        if op.gives_float() {
            node = self.node(Node::Canonical(node), 4);
        }
        self.define(pc, target, Held::Node(node));
        Ok(())
    }

    /// shf.wrap: by a constant amount, or by its handler.
    fn funnel(&mut self, pc: u32, op: Op, args: &[Held], before: &Set) -> Done {
        let instr = self.flow.instr(pc);
        let Some(amount) = self.literal(instr.ops[3]) else { return self.call(pc, before) };
        let amount = amount % 32;
        let (low, high) = (self.as_node(&args[0], 4), self.as_node(&args[1], 4));
        let left = op == Op::Funnel(true);
        let node = if amount == 0 {
            if left { high } else { low }
        } else {
            // The bits that the upper register keeps, and the bits that the lower one adds.
            let (up, down) = if left { (amount, 32 - amount) } else { (32 - amount, amount) };
            let high = self.node(Node::Shift(Op::Shl(4), high, Ok(i64::from(up))), 4);
            let low = self.node(Node::Shift(Op::Shr(4, false), low, Ok(i64::from(down))), 4);
            self.node(Node::Lane(Op::Or(4), vec![high, low]), 4)
        };
        let target = self.flow.register(instr.ops[0]);
        self.define(pc, target, Held::Node(node));
        Ok(())
    }

    /// Returns the number of scalars of a kind; `None` for vectors.
    fn scalar_groups(&self, kind: Kind) -> Option<usize> {
        match kind {
            Kind::Vector => None,
            Kind::Uniform => Some(1),
            Kind::Affine(_) => Some(self.variant.shape.groups),
        }
    }

    fn lane_scalars(
        &mut self,
        pc: u32,
        op: Op,
        args: &[Held],
        kind: Kind,
        before: &Set,
    ) -> Result<Held, Untranslatable> {
        let mut results = Vec::new();
        for group in 0..self.scalar_groups(kind).unwrap_or(0) {
            let mut values = Vec::new();
            for arg in args {
                let Held::Scalars(_, bases) = arg else { return Err(Untranslatable("scalars expected")) };
                values.push(bases[group.min(bases.len() - 1)]);
            }
            // Widening does not distribute over the steps if a lane of 32 bits wraps around.
            if let Op::Widen(signed) | Op::MulWide(signed) | Op::MulAddWide(signed) = op {
                for (value, arg) in values.iter().zip(args).take(2) {
                    let Held::Scalars(Kind::Affine(stride), _) = arg else { continue };
                    if *stride != 0 && self.builder.func.dfg.value_type(*value) == I32 {
                        self.no_wrap(*value, *stride, signed, pc, before)?;
                    }
                }
            }
            results.push(self.scalar(op, &values));
        }
        Ok(Held::Scalars(kind, results))
    }

    /// Leaves to the interpreter when a lane of a group wraps around.
    fn no_wrap(&mut self, base: Value, stride: i64, signed: bool, pc: u32, before: &Set) -> Done {
        let distance = stride.wrapping_mul((LANES / self.variant.shape.groups) as i64 - 1);
        let last = self.builder.ins().iadd_imm_s(base, i64::from(distance as i32));
        let (base, last) = (self.extended(base, signed), self.extended(last, signed));
        let expected = self.builder.ins().iadd_imm_s(base, distance);
        let ok = self.builder.ins().icmp(IntCC::Equal, last, expected);
        self.unless(ok, pc, before)
    }

    pub(super) fn extended(&mut self, value: Value, signed: bool) -> Value {
        if signed { self.builder.ins().sextend(I64, value) } else { self.builder.ins().uextend(I64, value) }
    }

    fn scalar(&mut self, op: Op, args: &[Value]) -> Value {
        match op {
            Op::Copy(_) => args[0],
            Op::Widen(signed) => self.extended(args[0], signed),
            Op::Low => self.builder.ins().ireduce(I32, args[0]),
            Op::High => {
                let high = self.builder.ins().ushr_imm_s(args[0], 32);
                self.builder.ins().ireduce(I32, high)
            }
            Op::Join => {
                let (low, high) = (self.extended(args[0], false), self.extended(args[1], false));
                let high = self.builder.ins().ishl_imm_s(high, 32);
                self.builder.ins().bor(low, high)
            }
            Op::MulWide(signed) | Op::MulAddWide(signed) => {
                let (a, b) = (self.extended(args[0], signed), self.extended(args[1], signed));
                let product = self.builder.ins().imul(a, b);
                match args.get(2) {
                    Some(sum) => self.builder.ins().iadd(product, *sum),
                    None => product,
                }
            }
            Op::MulHigh(signed) => {
                let (a, b) = (self.extended(args[0], signed), self.extended(args[1], signed));
                let product = self.builder.ins().imul(a, b);
                self.lanes(false).upper(product, product)
            }
            Op::Promote | Op::Demote | Op::DFromInt => self.lanes(false).resized(op, [args[0]; 2])[0],
            Op::Shl(_) | Op::Shr(..) => self.lanes(false).shift(op, args[0], args[1]),
            Op::Field(field) => self.lanes(false).scalar_field(field, args[0]),
            Op::Funnel(left) => self.lanes(false).scalar_funnel(left, args),
            op => {
                let value = self.lanes(false).apply(op, args);
                if op.gives_float() { self.lanes(false).canonical(value) } else { value }
            }
        }
    }

    fn select(&mut self, pc: u32, bytes: u8) -> Done {
        let instr = self.flow.instr(pc);
        let yes = self.operand(instr.ops[1], bytes)?;
        let no = self.operand(instr.ops[2], bytes)?;
        let condition = self.operand(instr.ops[3], 0)?;
        let target = self.flow.register(instr.ops[0]);
        let kind = kinds::result(self.flow, self.variant.shape, pc, &self.state);
        let new = match (&yes, &no) {
            (Held::Scalars(_, yes), Held::Scalars(_, no)) if kind != Kind::Vector => {
                let bits = self.condition_bits(&condition);
                let pick = |values: &[Value], index: usize| values[index.min(values.len() - 1)];
                let count = yes.len().max(no.len());
                let values = (0..count)
                    .map(|index| self.builder.ins().select(bits, pick(yes, index), pick(no, index)))
                    .collect();
                Held::Scalars(kind, values)
            }
            _ => {
                let condition = self.as_node(&condition, 0);
                let (yes, no) = (self.as_node(&yes, bytes), self.as_node(&no, bytes));
                Held::Node(self.node(Node::Select(condition, yes, no), bytes))
            }
        };
        self.define(pc, target, new);
        Ok(())
    }

    fn logic(&mut self, pc: u32, logic: Logic) -> Done {
        let instr = self.flow.instr(pc);
        let target = self.flow.register(instr.ops[0]);
        let a = self.operand(instr.ops[1], 0)?;
        if logic == Logic::Copy {
            self.define(pc, target, a);
            return Ok(());
        }
        let a = self.condition_bits(&a);
        let b = self.operand(instr.ops[2], 0)?;
        let b = self.condition_bits(&b);
        let bits = match logic {
            Logic::And => self.builder.ins().band(a, b),
            Logic::Or => self.builder.ins().bor(a, b),
            Logic::Xor => self.builder.ins().bxor(a, b),
            _ => self.builder.ins().bnot(a),
        };
        self.define(pc, target, Held::Bits(bits));
        Ok(())
    }

    fn special(&mut self, pc: u32, special: Special) -> Done {
        let target = self.flow.register(self.flow.instr(pc).ops[0]);
        let groups = self.variant.shape.groups;
        let kind = kinds::result(self.flow, self.variant.shape, pc, &self.state);
        let axis = |offset: usize, axis: u8| offset + 4 * usize::from(axis);
        let uniform = match special {
            Special::Block(n) => axis(std::mem::offset_of!(View, block), n),
            Special::BlockSize(n) => axis(std::mem::offset_of!(View, block_size), n),
            Special::GridSize(n) => axis(std::mem::offset_of!(View, grid_size), n),
            Special::Lane => {
                let lanes = (LANES / groups) as i64;
                let bases = (0..groups as i64).map(|group| self.builder.ins().iconst(I32, group * lanes));
                let bases = bases.collect();
                self.define(pc, target, Held::Scalars(Kind::Affine(1), bases));
                return Ok(());
            }
            Special::Thread(n) => {
                let thread = self.view_field(I64, std::mem::offset_of!(View, thread));
                let start = usize::from(n) * LANES * 4;
                let new = if kind == Kind::Vector {
                    let pointer = self.builder.ins().iadd_imm_s(thread, start as i64);
                    Held::Node(self.node(Node::Memory(vec![pointer]), 4))
                } else {
                    let flags = MemFlagsData::trusted();
                    let count = if kind == Kind::Uniform { 1 } else { groups };
                    let bases = (0..count).map(|group| {
                        let offset = start + group * (LANES / groups) * 4;
                        self.builder.ins().load(I32, flags, thread, offset as i32)
                    });
                    Held::Scalars(kind, bases.collect())
                };
                self.define(pc, target, new);
                return Ok(());
            }
        };
        let value = self.view_field(I32, uniform);
        self.define(pc, target, Held::Scalars(Kind::Uniform, vec![value]));
        Ok(())
    }

    fn address(&mut self, pc: u32, symbol: Symbol, bytes: u8) -> Done {
        let instr = self.flow.instr(pc);
        let flags = MemFlagsData::trusted();
        let index = instr.aux as i32;
        let value = if symbol == Symbol::Shared {
            let known = |entry: &crate::code::Entry| entry.shared_offsets.len() > index as usize;
            if index < 0 || !self.flow.code.entries.values().all(known) {
                return Err(Untranslatable("shared variable"));
            }
            let offsets = self.view_field(I64, std::mem::offset_of!(View, shared_offsets));
            let offset = self.builder.ins().load(I32, flags, offsets, index * 4);
            self.builder.ins().uextend(I64, offset)
        } else {
            // The list is as long as the program's (`Machine::enter_native`).
            let globals = self.view_field(I64, std::mem::offset_of!(View, globals));
            self.builder.ins().load(I64, flags, globals, index * 8)
        };
        let mut value = self.builder.ins().iadd_imm_s(value, instr.imm as i64);
        if bytes == 4 {
            value = self.builder.ins().ireduce(I32, value);
        }
        let target = self.flow.register(instr.ops[0]);
        self.define(pc, target, Held::Scalars(Kind::Uniform, vec![value]));
        Ok(())
    }

    /// Writes a register to the frame.
    pub(super) fn flush(&mut self, register: usize) -> Done {
        if self.clean[register] {
            return Ok(());
        }
        self.force_register(register);
        let Register { place, bytes } = self.flow.registers[register];
        match self.held(register) {
            Held::Node(_) => self.write_registers(&[register]),
            Held::Scalars(..) if bytes == 2 => self.write_registers(&[register]),
            Held::Scalars(kind, bases) => {
                let stride = kind.stride().unwrap_or(0);
                let lanes = LANES / bases.len();
                for (group, base) in bases.iter().enumerate() {
                    let offset = place as usize + group * lanes * usize::from(bytes);
                    self.write_steps(offset, *base, stride, bytes, group * lanes..(group + 1) * lanes);
                }
            }
            Held::Condition(_) | Held::Bits(_) => {
                let mut bits = self.bits(register);
                let flags = MemFlagsData::new().with_notrap();
                if self.variant.partial {
                    let old = self.builder.ins().load(I32, flags, self.frame, place as i32);
                    let kept = self.builder.ins().band_not(old, self.everyone);
                    let new = self.builder.ins().band(bits, self.everyone);
                    bits = self.builder.ins().bor(kept, new);
                }
                self.builder.ins().store(flags, bits, self.frame, place as i32);
            }
        }
        self.clean[register] = true;
        Ok(())
    }

    fn write_steps(&mut self, offset: usize, base: Value, stride: i64, bytes: u8, lanes: Range<usize>) {
        let (function, signature, kind) = if bytes == 8 {
            (calls::write_long_words as *const () as i64, self.signatures.long_words, I64)
        } else {
            (calls::write_words as *const () as i64, self.signatures.words, I32)
        };
        let function = self.builder.ins().iconst(I64, function);
        let target = self.builder.ins().iadd_imm_s(self.frame, offset as i64);
        let count = self.builder.ins().iconst(I32, lanes.len() as i64);
        let stride = if bytes == 8 { stride } else { i64::from(stride as u32) };
        let stride = self.builder.ins().iconst(kind, stride);
        let mask = if self.variant.partial {
            self.builder.ins().ushr_imm_s(self.everyone, lanes.start as i64)
        } else {
            self.builder.ins().iconst(I32, i64::from(u32::MAX))
        };
        self.builder.ins().call_indirect(signature, function, &[target, count, base, stride, mask]);
    }

    /// Executes an instruction by its handler, for the lanes in `mask`.
    pub(super) fn call_handler(&mut self, pc: u32, mask: Value) -> Value {
        let function = self.builder.ins().iconst(I64, calls::call_handler as *const () as i64);
        let machine = self.view_field(I64, std::mem::offset_of!(View, machine));
        let pc = self.builder.ins().iconst(I32, i64::from(pc));
        let call = self.builder.ins().call_indirect(self.signatures.handler, function, &[machine, pc, mask]);
        self.builder.inst_results(call)[0]
    }

    /// An instruction that is not translated.
    pub(super) fn call(&mut self, pc: u32, before: &Set) -> Done {
        let flow = self.flow;
        let guarded = flow.guard(pc).is_some();
        let mask = self.mask(pc);
        self.force_memory();
        // It may free memory.
        self.checked.clear();
        let mentions: Vec<(usize, bool)> = flow.mentions(pc).collect();
        for (register, written) in &mentions {
            // A register that a guarded instruction writes keeps its old value in the other lanes.
            if !written || guarded {
                self.flush(*register)?;
            }
        }
        for (register, written) in &mentions {
            if *written {
                self.force_register(*register);
            }
        }
        let label = self.builder.create_block();
        if guarded {
            let call = self.builder.create_block();
            self.builder.ins().brif(mask, call, &[], label, &[]);
            self.go_on_in(call);
        }
        let result = self.call_handler(pc, mask);
        let cold = self.builder.create_block();
        self.builder.ins().brif(result, cold, &[], label, &[]);
        let mark = self.enter_cold(cold);
        let stays = flow.code.shapes[pc as usize].stays;
        let live = if stays { Set::default() } else { before.clone() };
        for (register, written) in &mentions {
            // The handler has written it.
            self.clean[*register] |= written;
        }
        self.leave(Code::Handler, pc + 1, &live, Some(result))?;
        self.leave_cold(mark);
        self.go_on_in(label);
        for (register, written) in mentions {
            if written {
                self.set_from_frame(register);
            }
        }
        Ok(())
    }
}
