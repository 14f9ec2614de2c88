// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function to instructions of this machine, block by block.
//!
//! Between blocks a register lies where its kind at the start of the following block requires: in the frame, or as
//! scalars in variables of the code generator. All lanes that enter stay together. Where they would diverge,
//! translated code ends, and the interpreter continues.

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    Block as Label, InstBuilder, InstructionData, MemFlagsData, Opcode, SigRef, Type, Value,
};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::flow::{Flow, Register, Set};
use super::kinds::{self, State};
use super::lanes::Lanes;
use super::meaning::Meaning;
use super::memory::Checked;
use super::nodes::{self, CHUNKS, Node, NodeId};
use crate::code::{CONSTANT, LANES, Next};
use crate::native::compiled::Variant;
use crate::native::entry::{Entry, Exit, Item};
use crate::native::shape::{Kind, Shape};
use crate::native::view::{SCRATCH, View};

/// The signatures of the functions in `view` that translated code calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signatures {
    pub(super) handler: SigRef,
    pub(super) words: SigRef,
    pub(super) long_words: SigRef,
}

/// Something that the translator does not do; the function stays with the interpreter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Untranslatable(pub(super) &'static str);

/// The value of a register in the current block.
#[derive(Debug, Clone)]
pub(super) enum Held {
    /// One scalar, or one for each group of lanes.
    Scalars(Kind, Vec<Value>),
    Node(NodeId),
    /// A predicate as a condition node.
    Condition(NodeId),
    /// A predicate as a bit mask; uniform: 0 or all ones.
    Bits(Value),
}

impl Held {
    pub(super) fn is_node(&self, id: NodeId) -> bool {
        matches!(self, Held::Node(node) | Held::Condition(node) if *node == id)
    }
}

/// The translation of one function.
pub(super) struct Translator<'t, 'f, 'c> {
    pub(super) builder: &'t mut FunctionBuilder<'f>,
    pub(super) flow: &'t Flow<'c>,
    pub(super) variant: Variant,
    pub(super) kinds: &'t [Option<State>],
    /// The kinds before the current instruction.
    pub(super) state: State,
    labels: Vec<Label>,
    /// Scalars of registers between blocks.
    variables: Vec<Vec<Variable>>,
    pub(super) view: Value,
    pub(super) frame: Value,
    /// The lanes that are here.
    pub(super) everyone: Value,
    /// The lanes that execute the current block: in a region perhaps not all.
    pub(super) active: Value,
    /// The lanes that have reached each block of the current region so far.
    pub(super) arrived: Vec<Option<Variable>>,
    /// The current block, if it belongs to a region.
    pub(super) region: Option<usize>,
    /// The values of registers at the start of the current block of a region, for the lanes that skip it.
    pub(super) skipped: Vec<(usize, Held)>,
    pub(super) merge_pc: Value,
    pub(super) signatures: Signatures,
    pub(super) exits: Vec<Exit>,
    // The nodes of the current block so far.
    pub(super) nodes: Vec<nodes::Entry>,
    pub(super) log: Vec<(NodeId, usize)>,
    pub(super) values: Vec<Option<Held>>,
    /// The frame holds the register's value.
    pub(super) clean: Vec<bool>,
    /// Nodes that read a register's place in the frame.
    pub(super) readers: Vec<Vec<NodeId>>,
    /// Nodes that read memory and may not have done so yet.
    pub(super) pending: Vec<NodeId>,
    /// Scalars that were loaded from memory that has not changed since, and from where: a vector of them is as quick to load
    /// again as to keep.
    pub(super) loaded: Vec<(Value, (Value, i32))>,
    /// The lanes that are here, as a condition.
    lane_masks: Option<NodeId>,
    /// Addresses that have been checked.
    pub(super) checked: Vec<Checked>,
    /// Loads that have wanted room on the stack.
    pub(super) slots: usize,
}

pub(super) type Done = Result<(), Untranslatable>;

/// Returns the instructions at which translated code can be entered: those at which the interpreter may choose the
/// lanes that continue.
fn entries(flow: &Flow<'_>, kinds: &[Option<State>]) -> Vec<usize> {
    let mut wanted = vec![false; flow.blocks.len()];
    wanted[0] = true;
    for (index, block) in flow.blocks.iter().enumerate() {
        let last = block.end - 1;
        let parts = match flow.guard(last) {
            Some(_) if block.region.is_some() || flow.heads_region(index) => false,
            Some((guard, _)) => {
                let mut state = kinds[index].clone().unwrap_or_default();
                !state.is_empty() && {
                    for pc in block.start..last {
                        kinds::step(flow, SOME_SHAPE, pc, &mut state);
                    }
                    state[guard] != Kind::Uniform
                }
            }
            None => false,
        };
        for successor in &block.successors {
            let back = flow.next(last) == Next::Jump && flow.blocks[*successor].start <= last;
            wanted[*successor] |= back || parts || flow.leaves(last);
        }
    }
    (0..wanted.len()).filter(|index| wanted[*index] && kinds[*index].is_some()).collect()
}

/// The shape does not affect whether lanes can diverge, only the steps of threadIdx.
const SOME_SHAPE: Shape = Shape { groups: 1, regular: false };

impl<'t, 'f, 'c> Translator<'t, 'f, 'c> {
    pub(super) fn new(
        builder: &'t mut FunctionBuilder<'f>,
        flow: &'t Flow<'c>,
        kinds: &'t [Option<State>],
        variant: Variant,
        signatures: Signatures,
    ) -> Self {
        let start = builder.create_block();
        builder.append_block_params_for_function_params(start);
        builder.switch_to_block(start);
        let view = builder.block_params(start)[0];
        let flags = MemFlagsData::new().with_notrap();
        let mut field = |kind: Type, offset: usize| builder.ins().load(kind, flags, view, offset as i32);
        let frame = field(I64, std::mem::offset_of!(View, frame));
        let active = field(I32, std::mem::offset_of!(View, active));
        let merge_pc = field(I32, std::mem::offset_of!(View, merge_pc));
        let labels = flow.blocks.iter().map(|_| builder.create_block()).collect();
        let variables = flow.registers.iter().map(|register| {
            let (kind, count) = match register.bytes {
                0 => (I32, 1),
                4 => (I32, variant.shape.groups),
                8 => (I64, variant.shape.groups),
                _ => (I32, 0),
            };
            (0..count).map(|_| builder.declare_var(kind)).collect()
        });
        let variables = variables.collect();
        let count = flow.registers.len();
        Translator {
            builder,
            flow,
            variant,
            kinds,
            state: Vec::new(),
            labels,
            variables,
            view,
            frame,
            everyone: active,
            active,
            arrived: vec![None; flow.blocks.len()],
            region: None,
            skipped: Vec::new(),
            merge_pc,
            signatures,
            exits: Vec::new(),
            nodes: Vec::new(),
            log: Vec::new(),
            values: vec![None; count],
            clean: vec![false; count],
            readers: vec![Vec::new(); count],
            pending: Vec::new(),
            loaded: Vec::new(),
            lane_masks: None,
            checked: Vec::new(),
            slots: 0,
        }
    }

    /// Translates everything; the entries, and the exits in `self.exits`.
    pub(super) fn function(&mut self) -> Result<Vec<Entry>, Untranslatable> {
        let flow = self.flow;
        let start = self.builder.current_block().ok_or(Untranslatable("no start"))?;
        let number = self.builder.block_params(start)[1];
        let blocks = entries(flow, self.kinds);
        let targets: Vec<Label> = blocks.iter().map(|_| self.builder.create_block()).collect();
        let calls: Vec<_> =
            targets.iter().map(|label| self.builder.func.dfg.block_call(*label, &[])).collect();
        let default = self.builder.func.dfg.block_call(targets[0], &[]);
        let table = cranelift_codegen::ir::JumpTableData::new(default, &calls);
        let table = self.builder.create_jump_table(table);
        self.builder.ins().br_table(number, table);
        let mut entries_made = Vec::new();
        for (block, label) in blocks.into_iter().zip(targets) {
            self.builder.switch_to_block(label);
            let entry = self.entry(block)?;
            entries_made.push(entry);
        }
        for index in 0..flow.blocks.len() {
            self.builder.switch_to_block(self.labels[index]);
            if self.kinds[index].is_none() {
                // Only there so that the label exists; nothing jumps to it.
                self.builder.ins().trap(cranelift_codegen::ir::TrapCode::unwrap_user(1));
                continue;
            }
            self.block(index)?;
        }
        self.builder.seal_all_blocks();
        Ok(entries_made)
    }

    /// Brings the scalars of a block from the scratch words to their variables.
    fn entry(&mut self, block: usize) -> Result<Entry, Untranslatable> {
        let flow = self.flow;
        let state = self.kinds[block].as_ref().ok_or(Untranslatable("entry without kinds"))?;
        let items = self.items(block, state);
        for (register, item) in &items {
            for group in 0..self.variables[*register].len() {
                let from = item.word + if item.count(self.variant.shape.groups) == 1 { 0 } else { group };
                let value = self.scratch(from, if item.bytes == 8 { I64 } else { I32 })?;
                self.builder.def_var(self.variables[*register][group], value);
            }
        }
        let items = items.into_iter().map(|(_, item)| item).collect();
        self.builder.ins().jump(self.labels[block], &[]);
        Ok(Entry { pc: flow.blocks[block].start, items })
    }

    /// The registers that are scalars at the start of a block.
    pub(super) fn items(&self, block: usize, state: &State) -> Vec<(usize, Item)> {
        let mut items = Vec::new();
        let mut word = 0;
        for register in self.flow.blocks[block].live_in.iter() {
            let Register { place, bytes } = self.flow.registers[register];
            let kind = state[register];
            if bytes == 0 || kind != Kind::Vector {
                let item = Item { place, bytes, kind, word };
                word += item.count(self.variant.shape.groups);
                items.push((register, item));
            }
        }
        items
    }

    fn scratch(&mut self, word: usize, kind: Type) -> Result<Value, Untranslatable> {
        if word >= SCRATCH {
            return Err(Untranslatable("too many scalars"));
        }
        let offset = std::mem::offset_of!(View, scratch) + word * 8;
        Ok(self.builder.ins().load(kind, MemFlagsData::trusted(), self.view, offset as i32))
    }

    fn block(&mut self, index: usize) -> Done {
        let flow = self.flow;
        self.state = self.kinds[index].clone().ok_or(Untranslatable("block without kinds"))?;
        self.nodes.clear();
        self.log.clear();
        self.pending.clear();
        self.loaded.clear();
        self.values.iter_mut().for_each(|value| *value = None);
        self.readers.iter_mut().for_each(Vec::clear);
        self.lane_masks = None;
        self.checked.clear();
        self.active = self.everyone;
        self.skipped.clear();
        self.region = None;
        for (register, clean) in self.clean.iter_mut().enumerate() {
            let bytes = flow.registers[register].bytes;
            *clean = bytes != 0 && self.state[register] == Kind::Vector;
        }
        let (live_in, live) = flow.live_behind(index);
        let block = &flow.blocks[index];
        if block.region.is_some() {
            self.start_conditional(index)?;
        } else if self.variant.partial && index > 0 {
            self.merge_check(block.start, &live_in)?;
        }
        let mut before = live_in;
        for (pc, behind) in (block.start..block.end).zip(live) {
            if flow.leaves(pc) {
                return self.leave_at(index, pc, &before);
            }
            match (flow.next(pc), flow.meaning(pc)) {
                (Next::Jump, _) if block.region.is_some() => return self.end_conditional(index),
                (Next::Jump, _) if flow.heads_region(index) => return self.part(index),
                (Next::Jump, _) => return self.branch(index, pc, &before),
                (_, Meaning::Exit) => return self.exit(index, pc, &before),
                _ => self.instruction(pc, &before)?,
            }
            kinds::step(flow, self.variant.shape, pc, &mut self.state);
            self.check(pc)?;
            before = behind;
        }
        if block.region.is_some() {
            return self.end_conditional(index);
        }
        let next = flow.block_at(block.end).ok_or(Untranslatable("code that runs over the end"))?;
        self.carry(&[next])?;
        self.builder.ins().jump(self.labels[next], &[]);
        Ok(())
    }

    /// Checks that the result of an instruction is at least as simple as the analysis found.
    fn check(&self, pc: u32) -> Done {
        for (register, written) in self.flow.mentions(pc) {
            let fits = match (&self.values[register], self.state[register]) {
                (Some(Held::Scalars(kind, _)), wanted) => kind.join(wanted) == wanted,
                (Some(Held::Node(_)) | None, wanted) => wanted == Kind::Vector,
                _ => true,
            };
            if written && self.flow.registers[register].bytes != 0 && !fits {
                return Err(Untranslatable("a value is less simple than foreseen"));
            }
        }
        Ok(())
    }

    pub(super) fn label(&self, block: usize) -> Label {
        self.labels[block]
    }

    pub(super) fn lanes(&mut self, vector: bool) -> Lanes<'_, 'f> {
        Lanes { builder: self.builder, vector }
    }

    /// The value of a register.
    pub(super) fn held(&mut self, register: usize) -> Held {
        if let Some(held) = &self.values[register] {
            return held.clone();
        }
        let bytes = self.flow.registers[register].bytes;
        let kind = self.state[register];
        let held = match (bytes, kind) {
            (0, _) => Held::Bits(self.builder.use_var(self.variables[register][0])),
            (_, Kind::Vector) => {
                let node = self.node(Node::Frame(register), bytes);
                self.readers[register].push(node);
                Held::Node(node)
            }
            (_, kind) => {
                let count = if kind == Kind::Uniform { 1 } else { self.variant.shape.groups };
                let variables: Vec<Variable> = self.variables[register][..count].to_vec();
                Held::Scalars(kind, variables.into_iter().map(|v| self.builder.use_var(v)).collect())
            }
        };
        self.values[register] = Some(held.clone());
        held
    }

    /// The value of an operand of `bytes` bytes, 0 for predicates.
    pub(super) fn operand(&mut self, operand: u32, bytes: u8) -> Result<Held, Untranslatable> {
        if operand & CONSTANT == 0 {
            return Ok(self.held(self.flow.register(operand)));
        }
        let value = kinds::constant(self.flow, operand, bytes).ok_or(Untranslatable("constant"))?;
        if bytes == 0 {
            let bits = self.builder.ins().iconst(I32, i64::from(value as u32));
            return Ok(Held::Bits(bits));
        }
        let value = self.lanes(false).constant(bytes, value as i64);
        Ok(Held::Scalars(Kind::Uniform, vec![value]))
    }

    /// The 32 bits of an operand that is a constant, or a register that got one in this block.
    pub(super) fn literal(&mut self, operand: u32) -> Option<u32> {
        if operand & CONSTANT != 0 {
            return kinds::constant(self.flow, operand, 4).map(|value| value as u32);
        }
        let Held::Scalars(Kind::Uniform, values) = self.held(self.flow.register(operand)) else {
            return None;
        };
        let dfg = &self.builder.func.dfg;
        match dfg.insts[dfg.value_def(values[0]).inst()?] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits() as u32),
            _ => None,
        }
    }

    /// The value as a node.
    pub(super) fn as_node(&mut self, held: &Held, bytes: u8) -> NodeId {
        match held {
            Held::Node(node) | Held::Condition(node) => *node,
            Held::Bits(bits) => self.node(Node::Bits(*bits), 4),
            Held::Scalars(kind, values) => {
                if kind.stride() == Some(0)
                    && let Some(places) = self.places_of(values)
                {
                    let node = self.node(Node::Broadcast(places), bytes);
                    self.pending.push(node);
                    return node;
                }
                let node = match kind {
                    Kind::Affine(stride) => Node::Affine(values.clone(), *stride),
                    _ => Node::Splat(values[0]),
                };
                self.node(node, bytes)
            }
        }
    }

    /// Returns the places that the values were loaded from, if all of them were and are still there.
    fn places_of(&self, values: &[Value]) -> Option<Vec<(Value, i32)>> {
        let place =
            |value: &Value| self.loaded.iter().find(|loaded| loaded.0 == *value).map(|loaded| loaded.1);
        values.iter().map(place).collect()
    }

    /// The bit mask of a predicate.
    pub(super) fn bits(&mut self, register: usize) -> Value {
        match self.held(register) {
            Held::Condition(node) => {
                let bits = self.pack(node);
                self.values[register] = Some(Held::Bits(bits));
                bits
            }
            Held::Bits(bits) => bits,
            Held::Node(_) | Held::Scalars(..) => self.builder.ins().iconst(I32, 0),
        }
    }

    /// Sets the value of a register.
    pub(super) fn set(&mut self, register: usize, held: Held) {
        self.values[register] = Some(held);
        self.clean[register] = false;
    }

    /// Sets the register's value to the present contents of the frame.
    pub(super) fn set_from_frame(&mut self, register: usize) {
        let Register { place, bytes } = self.flow.registers[register];
        if bytes == 0 {
            let flags = MemFlagsData::new().with_notrap();
            let bits = self.builder.ins().load(I32, flags, self.frame, place as i32);
            self.values[register] = Some(Held::Bits(bits));
        } else if !matches!(bytes, 2 | 4 | 8) {
            // Only handlers work on those.
            self.values[register] = None;
        } else {
            let node = self.node(Node::Frame(register), bytes);
            self.readers[register].push(node);
            self.values[register] = Some(Held::Node(node));
        }
        self.clean[register] = true;
    }

    /// Before an edge: registers go to where the blocks that follow expect them.
    pub(super) fn carry(&mut self, successors: &[usize]) -> Done {
        let flow = self.flow;
        let mut writes: Vec<usize> = Vec::new();
        let groups = self.variant.shape.groups;
        for successor in successors {
            let state = self.kinds[*successor].as_ref().ok_or(Untranslatable("edge without kinds"))?;
            for register in flow.blocks[*successor].live_in.iter() {
                let bytes = flow.registers[register].bytes;
                if bytes == 0 {
                    if self.values[register].is_some() {
                        let bits = self.bits(register);
                        self.builder.def_var(self.variables[register][0], bits);
                    }
                    continue;
                }
                if state[register] == Kind::Vector {
                    if !self.clean[register] && !writes.contains(&register) {
                        writes.push(register);
                    }
                    continue;
                }
                if self.values[register].is_none() && self.state[register] == state[register] {
                    continue;
                }
                let Held::Scalars(_, values) = self.held(register) else {
                    return Err(Untranslatable("a vector where scalars are expected"));
                };
                for group in 0..groups {
                    let value = if values.len() == 1 { values[0] } else { values[group] };
                    self.builder.def_var(self.variables[register][group], value);
                }
            }
        }
        self.write_registers(&writes);
        writes.iter().for_each(|register| self.clean[*register] = true);
        Ok(())
    }

    /// Writes registers to the frame, chunk by chunk. Chunk `n` of one depends on nothing but chunks `n` of others, so that all
    /// are read before any is written.
    pub(super) fn write_registers(&mut self, registers: &[usize]) {
        let mut nodes = Vec::new();
        for register in registers {
            let held = self.held(*register);
            let bytes = self.flow.registers[*register].bytes;
            let node = self.as_node(&held, bytes);
            nodes.push((self.flow.registers[*register].place as usize, bytes, node));
        }
        for chunk in 0..CHUNKS {
            let values: Vec<_> = nodes.iter().map(|(_, _, node)| self.chunk(*node, chunk)).collect();
            for ((place, bytes, _), value) in nodes.iter().zip(values) {
                let offset = place + chunk * LANES / CHUNKS * usize::from(*bytes);
                self.write_chunk(value, offset, *bytes, chunk);
            }
        }
    }

    /// Writes a chunk to the frame; of lanes that are not here, only if there can be none that still live.
    pub(super) fn write_chunk(&mut self, value: nodes::Chunk, offset: usize, bytes: u8, chunk: usize) {
        let mut value = value;
        if self.variant.partial {
            let mask = match self.lane_masks {
                Some(mask) => mask,
                None => {
                    let mask = self.node(Node::Bits(self.everyone), 4);
                    self.lane_masks = Some(mask);
                    mask
                }
            };
            let mask = self.chunk(mask, chunk)[0];
            let old = self.load_chunk(self.frame, offset, bytes);
            value = self.select_chunk(mask, value, old, bytes);
        }
        let frame = self.frame;
        self.store_chunk(value, frame, offset, bytes);
    }

    /// The registers of a set that the frame does not hold.
    pub(super) fn missing(&self, live: &Set) -> Vec<usize> {
        live.iter().filter(|register| !self.clean[*register]).collect()
    }
}
