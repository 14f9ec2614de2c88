// SPDX-License-Identifier: Apache-2.0 OR MIT
//! shfl.sync of all 32 lanes with constant operands: rebuilds vectors.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};

use super::flow::Set;
use super::nodes::{CHUNK_LANES, CHUNKS, NodeId};
use super::translate::{Done, Held, Translator};
use crate::code::{CONSTANT, LANES};
use crate::execute::warp_ops::shuffle_source;

impl Translator<'_, '_, '_> {
    /// A shuffle; `mode` as [`shuffle_source`] has it.
    pub(super) fn shuffle(&mut self, pc: u32, mode: u8, before: &Set) -> Done {
        let flow = self.flow;
        let instr = flow.instr(pc);
        let literals = [2, 3, 4].map(|index| self.literal(instr.ops[index]));
        let [Some(argument), Some(control), Some(u32::MAX)] = literals else {
            return self.call(pc, before);
        };
        if instr.ops[0] & CONSTANT != 0 {
            return self.call(pc, before);
        }
        let sources: [_; LANES] =
            std::array::from_fn(|lane| shuffle_source(mode, lane as u32, argument, control));
        let valid = (0..LANES).filter(|lane| sources[*lane].1).fold(0_u32, |bits, lane| bits | 1 << lane);
        let held = self.operand(instr.ops[1], 4)?;
        let values = self.as_node(&held, 4);
        self.force(values);
        let mask = self.mask(pc);
        let full = self.builder.ins().icmp_imm_s(IntCC::Equal, mask, -1);
        self.before_handler(pc);
        let (fast, cold, label) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let truth = self.builder.append_block_param(label, I32);
        self.builder.ins().brif(full, fast, &[], cold, &[]);
        self.go_on_in(fast);
        let target = flow.register(instr.ops[0]);
        let place = flow.registers[target].place as usize;
        for chunk in 0..CHUNKS {
            let first = chunk * CHUNK_LANES;
            let lanes = std::array::from_fn(|lane| sources[first + lane].0);
            let value = self.picked(values, lanes);
            let frame = self.frame;
            self.store_chunk([value; 2], frame, place + first * 4, 4);
        }
        let bits = self.builder.ins().iconst(I32, i64::from(valid));
        self.builder.ins().jump(label, &[bits.into()]);
        let mark = self.enter_cold(cold);
        self.call(pc, before)?;
        let predicate = (instr.ops[5] & CONSTANT == 0).then(|| flow.register(instr.ops[5]));
        let bits = match predicate {
            Some(register) => self.bits(register),
            None => self.builder.ins().iconst(I32, 0),
        };
        self.builder.ins().jump(label, &[bits.into()]);
        self.leave_cold(mark);
        self.go_on_in(label);
        self.set_from_frame(target);
        if let Some(register) = predicate {
            self.set(register, Held::Bits(truth));
        }
        Ok(())
    }

    /// Four lanes of a node, all of which has been computed.
    fn picked(&mut self, node: NodeId, lanes: [usize; CHUNK_LANES]) -> Value {
        let mut from: Vec<usize> = lanes.iter().map(|lane| lane / CHUNK_LANES).collect();
        from.sort_unstable();
        from.dedup();
        if let [first] | [first, _] = from[..] {
            let second = from.get(1).copied().unwrap_or(first);
            let picks = lanes.map(|lane| {
                let place = (lane % CHUNK_LANES) as u8;
                if lane / CHUNK_LANES == first { place } else { place + CHUNK_LANES as u8 }
            });
            let (a, b) = (self.chunk(node, first)[0], self.chunk(node, second)[0]);
            return if picks == [0, 1, 2, 3] { a } else { self.lanes(true).shuffle(a, b, &picks) };
        }
        let values = lanes.map(|lane| {
            let chunk = self.chunk(node, lane / CHUNK_LANES)[0];
            self.builder.ins().extractlane(chunk, (lane % CHUNK_LANES) as u8)
        });
        self.gathered(values, 4)[0]
    }
}
