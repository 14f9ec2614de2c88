// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways out of translated code, and blocks that are hardly ever executed.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block as Label, InstBuilder, MemFlagsData, Value};

use super::flow::Set;
use super::nodes::NodeId;
use super::translate::{Done, Held, Translator, Untranslatable};
use crate::native::entry::{Code, Exit, Item};
use crate::native::shape::Kind;
use crate::native::view::{SCRATCH, View};

/// The translator's knowledge at a point of the hot path, to return to after a cold block.
pub(super) struct Mark {
    log: usize,
    values: Vec<Option<Held>>,
    clean: Vec<bool>,
    readers: Vec<Vec<NodeId>>,
    pending: Vec<NodeId>,
}

impl Translator<'_, '_, '_> {
    /// Continues in a block of its own outside of the hot path. Its predecessors already exist.
    pub(super) fn enter_cold(&mut self, label: Label) -> Mark {
        self.builder.set_cold_block(label);
        self.enter_aside(label)
    }

    /// As [`Self::enter_cold`], of a block that is executed more often.
    pub(super) fn enter_aside(&mut self, label: Label) -> Mark {
        let mark = Mark {
            log: self.log.len(),
            values: self.values.clone(),
            clean: self.clean.clone(),
            readers: self.readers.clone(),
            pending: self.pending.clone(),
        };
        self.builder.switch_to_block(label);
        self.builder.seal_block(label);
        mark
    }

    /// Ends the cold block, which has its last instruction.
    pub(super) fn leave_cold(&mut self, mark: Mark) {
        self.forget(mark.log);
        self.values = mark.values;
        self.clean = mark.clean;
        self.readers = mark.readers;
        self.pending = mark.pending;
    }

    /// Continues in a block that has all its predecessors.
    pub(super) fn go_on_in(&mut self, label: Label) {
        self.builder.switch_to_block(label);
        self.builder.seal_block(label);
    }

    /// Leaves where `ok` does not hold: the interpreter continues at `pc`.
    pub(super) fn unless(&mut self, ok: Value, pc: u32, live: &Set) -> Done {
        let (cold, label) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(ok, label, &[], cold, &[]);
        let mark = self.enter_cold(cold);
        self.interpret(pc, live)?;
        self.leave_cold(mark);
        self.go_on_in(label);
        Ok(())
    }

    /// Ends translated code: the interpreter continues at `pc`.
    pub(super) fn interpret(&mut self, pc: u32, live: &Set) -> Done {
        self.leave(Code::Interpret, pc, live, None)
    }

    /// Ends translated code. The frame and the scratch words get the registers in `live`; `result` is a handler's
    /// result.
    pub(super) fn leave(&mut self, code: Code, pc: u32, live: &Set, result: Option<Value>) -> Done {
        let mut items = Vec::new();
        let mut writes = Vec::new();
        let mut word = 0;
        let mut live = live.clone();
        let region = self.region.filter(|_| code == Code::Interpret);
        if let Some(index) = region {
            live.unite(&self.flow.blocks[index + 1].live_in);
            self.merge_skipped();
        }
        let live = &live;
        for register in self.missing(live) {
            let super::flow::Register { place, bytes } = self.flow.registers[register];
            let kind = match self.held(register) {
                // Only registers of 32 and 64 bits go by the scratch words.
                Held::Scalars(..) if bytes == 2 => {
                    writes.push(register);
                    continue;
                }
                Held::Scalars(kind, values) => {
                    for (index, value) in values.iter().enumerate() {
                        self.store_scratch(word + index, *value)?;
                    }
                    items.push(Item { place, bytes, kind, word });
                    word += values.len();
                    continue;
                }
                Held::Node(_) if bytes != 0 => {
                    writes.push(register);
                    continue;
                }
                _ => Kind::Vector,
            };
            let bits = self.bits(register);
            self.store_scratch(word, bits)?;
            items.push(Item { place, bytes, kind, word });
            word += 1;
        }
        self.write_registers(&writes);
        let mut parts = Vec::new();
        for (pc, lanes) in region.map(|index| self.others(index)).unwrap_or_default() {
            self.store_scratch(word, lanes)?;
            parts.push((pc, word));
            word += 1;
        }
        self.finish(Exit { code, pc, items, parts }, result);
        Ok(())
    }

    fn finish(&mut self, exit: Exit, result: Option<Value>) {
        let number = self.exits.len() as i64;
        self.exits.push(exit);
        let number = self.builder.ins().iconst(I64, number);
        let value = match result {
            None => number,
            Some(result) => {
                let wide = self.builder.ins().uextend(I64, result);
                let high = self.builder.ins().ishl_imm_s(wide, 32);
                self.builder.ins().bor(number, high)
            }
        };
        self.builder.ins().return_(&[value]);
    }

    /// The end of a block with an instruction that the interpreter executes.
    pub(super) fn leave_at(&mut self, index: usize, pc: u32, live: &Set) -> Done {
        let flow = self.flow;
        let barrier = crate::execute::barrier::barrier() as usize;
        let next = flow.block_at(flow.blocks[index].end);
        let Some(next) = next.filter(|_| flow.instr(pc).run as usize == barrier && flow.guard(pc).is_none())
        else {
            return self.interpret(pc, live);
        };
        let kinds = self.kinds;
        let state = kinds[next].as_ref().ok_or(Untranslatable("edge without kinds"))?;
        let items = self.items(next, state);
        if items.iter().any(|(register, _)| flow.mentions(pc).any(|mention| mention.0 == *register)) {
            return self.interpret(pc, live);
        }
        for (register, _) in flow.mentions(pc) {
            self.flush(register)?;
        }
        let groups = self.variant.shape.groups;
        for (register, item) in &items {
            let values = if item.bytes == 0 {
                vec![self.bits(*register)]
            } else {
                let Held::Scalars(_, values) = self.held(*register) else {
                    return Err(Untranslatable("a vector where scalars are expected"));
                };
                values
            };
            for word in 0..item.count(groups) {
                self.store_scratch(item.word + word, values[word.min(values.len() - 1)])?;
            }
            self.clean[*register] = true;
        }
        let items = items.into_iter().map(|(_, item)| item).collect();
        let others = self.missing(&flow.blocks[next].live_in);
        for register in &others {
            if !matches!(self.held(*register), Held::Node(_)) {
                self.flush(*register)?;
            }
        }
        let others = self.missing(&flow.blocks[next].live_in);
        self.write_registers(&others);
        self.finish(Exit { code: Code::Barrier, pc, items, parts: Vec::new() }, None);
        Ok(())
    }

    fn store_scratch(&mut self, word: usize, value: Value) -> Done {
        if word >= SCRATCH {
            return Err(Untranslatable("too many scalars"));
        }
        let offset = std::mem::offset_of!(View, scratch) + word * 8;
        self.builder.ins().store(MemFlagsData::trusted(), value, self.view, offset as i32);
        Ok(())
    }

    /// At the start of a block: lanes that wait here come along first.
    pub(super) fn merge_check(&mut self, pc: u32, live: &Set) -> Done {
        let waits = self.builder.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, self.merge_pc, i64::from(pc));
        let (cold, label) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(waits, label, &[], cold, &[]);
        let mark = self.enter_cold(cold);
        self.leave(Code::Merge, pc, live, None)?;
        self.leave_cold(mark);
        self.go_on_in(label);
        Ok(())
    }

    /// The branch at the end of a block.
    pub(super) fn branch(&mut self, index: usize, pc: u32, live: &Set) -> Done {
        let flow = self.flow;
        let target_pc = flow.instr(pc).imm as u32;
        let target = flow.block_at(target_pc).ok_or(Untranslatable("jump into a block"))?;
        let Some((guard, negated)) = flow.guard(pc) else {
            self.carry(&[target])?;
            return self.edge(pc, target);
        };
        let next = flow.block_at(flow.blocks[index].end).ok_or(Untranslatable("no block behind a branch"))?;
        let next_label = self.label(next);
        let mut bits = self.bits(guard);
        if negated {
            bits = self.builder.ins().bnot(bits);
        }
        let uniform = self.state[guard] == Kind::Uniform;
        self.carry(&[target, next])?;
        let taken = self.builder.create_block();
        if uniform {
            self.builder.ins().brif(bits, taken, &[], next_label, &[]);
            self.go_on_in(taken);
            return self.edge(pc, target);
        }
        let lanes = self.builder.ins().band(bits, self.active);
        let other = self.builder.create_block();
        let all = self.builder.ins().icmp(IntCC::Equal, lanes, self.active);
        self.builder.ins().brif(all, taken, &[], other, &[]);
        self.go_on_in(taken);
        self.edge(pc, target)?;
        self.go_on_in(other);
        let cold = self.builder.create_block();
        self.builder.ins().brif(lanes, cold, &[], next_label, &[]);
        let mark = self.enter_cold(cold);
        self.interpret(pc, live)?;
        self.leave_cold(mark);
        Ok(())
    }

    /// Jumps to a block. A jump backwards counts, so that no loop keeps a worker for ever: between turns a launch is stopped
    /// when it is cancelled.
    fn edge(&mut self, pc: u32, target: usize) -> Done {
        let flow = self.flow;
        let target_pc = flow.blocks[target].start;
        let label = self.label(target);
        if target_pc > pc {
            self.builder.ins().jump(label, &[]);
            return Ok(());
        }
        let flags = MemFlagsData::trusted();
        let place = std::mem::offset_of!(View, budget) as i32;
        let budget = self.builder.ins().load(I64, flags, self.view, place);
        let left = self.builder.ins().load(I32, flags, budget, 0);
        // At 0 it stays, as in the interpreter.
        let one = self.builder.ins().iconst(I32, 1);
        let floor = self.builder.ins().umax(left, one);
        let left = self.builder.ins().isub(floor, one);
        self.builder.ins().store(flags, left, budget, 0);
        let cold = self.builder.create_block();
        self.builder.ins().brif(left, label, &[], cold, &[]);
        let mark = self.enter_cold(cold);
        let live = flow.blocks[target].live_in.clone();
        self.leave(Code::Turn, target_pc, &live, None)?;
        self.leave_cold(mark);
        Ok(())
    }

    /// The end of the thread.
    pub(super) fn exit(&mut self, index: usize, pc: u32, live: &Set) -> Done {
        if self.variant.partial {
            return self.interpret(pc, live);
        }
        let flow = self.flow;
        let nothing = Set::default();
        let Some((guard, negated)) = flow.guard(pc) else {
            return self.leave(Code::Ended, pc, &nothing, None);
        };
        let next = flow.block_at(flow.blocks[index].end).ok_or(Untranslatable("no block behind an exit"))?;
        let next_label = self.label(next);
        let mut bits = self.bits(guard);
        if negated {
            bits = self.builder.ins().bnot(bits);
        }
        self.carry(&[next])?;
        let lanes = self.builder.ins().band(bits, self.active);
        let (some, all) = (self.builder.create_block(), self.builder.create_block());
        let part = self.builder.create_block();
        self.builder.ins().brif(lanes, some, &[], next_label, &[]);
        self.go_on_in(some);
        let whole = self.builder.ins().icmp(IntCC::Equal, lanes, self.active);
        self.builder.ins().brif(whole, all, &[], part, &[]);
        self.go_on_in(all);
        self.leave(Code::Ended, pc, &nothing, None)?;
        let mark = self.enter_cold(part);
        self.interpret(pc, live)?;
        self.leave_cold(mark);
        Ok(())
    }
}
