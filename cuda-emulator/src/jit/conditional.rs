// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks of regions (`regions`): executed for the lanes that have come to them.

use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;

use super::nodes::Node;
use super::translate::{Done, Held, Translator, Untranslatable};
use crate::code::Next;

impl Translator<'_, '_, '_> {
    fn arrivals(&mut self, block: usize) -> Variable {
        match self.arrived[block] {
            Some(variable) => variable,
            None => {
                let variable = self.builder.declare_var(I32);
                self.arrived[block] = Some(variable);
                variable
            }
        }
    }

    fn add_arrivals(&mut self, block: usize, lanes: Value) {
        let variable = self.arrivals(block);
        let before = self.builder.use_var(variable);
        let after = self.builder.ins().bor(before, lanes);
        self.builder.def_var(variable, after);
    }

    /// Sends the lanes of the current block, which ends at `last`, to where they go in the region that ends at `end`.
    fn send(&mut self, index: usize, end: usize) -> Done {
        let flow = self.flow;
        let last = flow.blocks[index].end - 1;
        let mut rest = Some(self.active);
        if flow.next(last) == Next::Jump {
            let target =
                flow.block_at(flow.instr(last).imm as u32).ok_or(Untranslatable("jump into a block"))?;
            let taken = self.mask(last);
            if target < end {
                self.add_arrivals(target, taken);
            }
            rest = flow.guard(last).map(|_| self.builder.ins().band_not(self.active, taken));
        }
        if let Some(rest) = rest.filter(|_| index + 1 < end) {
            self.add_arrivals(index + 1, rest);
        }
        Ok(())
    }

    /// Ends the block after which the lanes diverge.
    pub(super) fn part(&mut self, index: usize) -> Done {
        let flow = self.flow;
        let end = flow.blocks[index + 1].region.ok_or(Untranslatable("no region"))?;
        for block in index + 1..end {
            let variable = self.arrivals(block);
            let none = self.builder.ins().iconst(I32, 0);
            self.builder.def_var(variable, none);
        }
        self.send(index, end)?;
        self.carry(&[index + 1])?;
        let label = self.label(index + 1);
        self.builder.ins().jump(label, &[]);
        Ok(())
    }

    /// The start of a block of a region: skips it when no lane has come.
    pub(super) fn start_conditional(&mut self, index: usize) -> Done {
        let flow = self.flow;
        let variable = self.arrivals(index);
        let lanes = self.builder.use_var(variable);
        let (skip, body) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(lanes, body, &[], skip, &[]);
        let mark = self.enter_aside(skip);
        self.carry(&[index + 1])?;
        let label = self.label(index + 1);
        self.builder.ins().jump(label, &[]);
        self.leave_cold(mark);
        self.go_on_in(body);
        self.active = lanes;
        self.region = Some(index);
        let mut written: Vec<usize> = Vec::new();
        for pc in flow.blocks[index].start..flow.blocks[index].end {
            for (register, _) in flow.mentions(pc).filter(|mention| mention.1) {
                if !written.contains(&register) && flow.blocks[index + 1].live_in.has(register) {
                    written.push(register);
                }
            }
        }
        for register in written {
            let bytes = flow.registers[register].bytes;
            if matches!(bytes, 0 | 2 | 4 | 8) {
                let held = self.held(register);
                self.skipped.push((register, held));
            }
        }
        Ok(())
    }

    /// The end of a block of a region.
    pub(super) fn end_conditional(&mut self, index: usize) -> Done {
        let flow = self.flow;
        let end = flow.blocks[index].region.ok_or(Untranslatable("no region"))?;
        self.send(index, end)?;
        self.merge_skipped();
        self.skipped.clear();
        self.carry(&[index + 1])?;
        let label = self.label(index + 1);
        self.builder.ins().jump(label, &[]);
        Ok(())
    }

    /// Returns the positions of the lanes that do not execute the current block: those that have left the region, and
    /// those that have branched to later blocks of it.
    pub(super) fn others(&mut self, index: usize) -> Vec<(u32, Value)> {
        let flow = self.flow;
        let Some(end) = flow.blocks[index].region else { return Vec::new() };
        let outside = self.builder.ins().band_not(self.everyone, self.active);
        let mut parts = vec![(flow.blocks[end].start, outside)];
        for block in index + 1..end {
            let variable = self.arrivals(block);
            parts.push((flow.blocks[block].start, self.builder.use_var(variable)));
        }
        parts
    }

    /// Restores the old values of the registers that the current block writes in the lanes that skip it.
    pub(super) fn merge_skipped(&mut self) {
        let flow = self.flow;
        let mut condition = None;
        for (register, old) in self.skipped.clone() {
            let new = self.held(register);
            let bytes = flow.registers[register].bytes;
            if bytes == 0 {
                let (old, new) = (self.condition_bits(&old), self.condition_bits(&new));
                let kept = self.builder.ins().band_not(old, self.active);
                let added = self.builder.ins().band(new, self.active);
                let bits = self.builder.ins().bor(kept, added);
                self.set(register, Held::Bits(bits));
                continue;
            }
            let (old, new) = (self.as_node(&old, bytes), self.as_node(&new, bytes));
            let condition = *condition.get_or_insert_with(|| self.node(Node::Bits(self.active), 4));
            let node = self.node(Node::Select(condition, new, old), bytes);
            self.set(register, Held::Node(node));
        }
    }
}
