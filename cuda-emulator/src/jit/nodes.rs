// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of whole warps, as graphs. They are built in program order and turned into instructions when they are
//! needed, four lanes (a *chunk*) after the other, so that few vectors are live at the same time.

use cranelift_codegen::ir::types::{I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};

use super::meaning::{Field, Op, Scalar, Test};
use super::translate::Translator;
use crate::code::LANES;

/// Lanes of a chunk: a vector of 128 bits has so many of 32.
pub(super) const CHUNK_LANES: usize = 4;
/// Chunks of a warp.
pub(super) const CHUNKS: usize = LANES / CHUNK_LANES;
/// The maximum depth of nested operations. A deeper node is computed immediately, which bounds recursion.
const MAX_DEPTH: u32 = 100;

/// A node of the graph of the current block.
pub(super) type NodeId = usize;
/// Four lanes: one vector, or two when lanes have 64 bits. Lanes of 16 bits lie in 32, with zeros above.
pub(super) type Chunk = [Value; 2];

#[derive(Debug, Clone)]
pub(super) enum Node {
    /// The value of a register in the frame.
    Frame(usize),
    /// Elements in memory, from a pointer for each group of lanes.
    Memory(Vec<Value>),
    Splat(Value),
    /// The same in all lanes of a group, in memory at a pointer.
    Broadcast(Vec<(Value, i32)>),
    /// A base for each group of lanes, and the step.
    Affine(Vec<Value>, i64),
    Lane(Op, Vec<NodeId>),
    /// A shift by a scalar amount, or a constant one.
    Shift(Op, NodeId, Result<i64, Value>),
    /// The first where the condition holds.
    Select(NodeId, NodeId, NodeId),
    /// f32 with NaN made the canonical one.
    Canonical(NodeId),
    /// Lanes of ones where it holds, always of 32 bits.
    Compare(Test, Scalar, NodeId, NodeId),
    /// The same from a bit mask.
    Bits(Value),
}

/// A node and its known properties.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    node: Node,
    /// Bytes of a lane.
    pub(super) bytes: u8,
    depth: u32,
    /// Another node needs it.
    used: bool,
    done: [Option<Chunk>; CHUNKS],
}

impl Translator<'_, '_, '_> {
    /// Adds a node with lanes of `bytes` bytes.
    pub(super) fn node(&mut self, node: Node, bytes: u8) -> NodeId {
        let mut depth = 0;
        let args: Vec<NodeId> = match &node {
            Node::Lane(_, args) => args.clone(),
            Node::Shift(_, arg, _) | Node::Canonical(arg) => vec![*arg],
            Node::Select(a, b, c) => vec![*a, *b, *c],
            Node::Compare(_, _, a, b) => vec![*a, *b],
            _ => Vec::new(),
        };
        for arg in args {
            self.nodes[arg].used = true;
            if self.nodes[arg].depth >= MAX_DEPTH {
                self.force(arg);
            }
            let inner = if self.is_done(arg) { 0 } else { self.nodes[arg].depth };
            depth = depth.max(inner + 1);
        }
        self.nodes.push(Entry { node, bytes, depth, used: false, done: [None; CHUNKS] });
        self.nodes.len() - 1
    }

    /// Returns the node without its canonical form, which suffices for operations that only test for NaN.
    pub(super) fn any_nan(&self, id: NodeId) -> NodeId {
        match self.nodes[id].node {
            Node::Canonical(inner) => inner,
            _ => id,
        }
    }

    fn is_done(&self, id: NodeId) -> bool {
        self.nodes[id].done.iter().all(Option::is_some)
    }

    /// Computes all chunks.
    pub(super) fn force(&mut self, id: NodeId) {
        for chunk in 0..CHUNKS {
            self.chunk(id, chunk);
        }
    }

    /// Reads all pending values from memory before it may change.
    pub(super) fn force_memory(&mut self) {
        self.loaded.clear();
        for id in std::mem::take(&mut self.pending) {
            if self.is_wanted(id) {
                self.force(id);
            }
        }
    }

    /// Reads all pending values from a register's place in the frame before it changes.
    pub(super) fn force_register(&mut self, register: usize) {
        for id in std::mem::take(&mut self.readers[register]) {
            if self.is_wanted(id) {
                self.force(id);
            }
        }
    }

    fn is_wanted(&self, id: NodeId) -> bool {
        let held = || {
            let kept = self.skipped.iter().map(|(_, held)| held);
            self.values.iter().flatten().chain(kept).any(|value| value.is_node(id))
        };
        !self.is_done(id) && (self.nodes[id].used || held())
    }

    /// One chunk of a node: computed now, or before.
    pub(super) fn chunk(&mut self, id: NodeId, chunk: usize) -> Chunk {
        if let Some(done) = self.nodes[id].done[chunk] {
            return done;
        }
        let node = self.nodes[id].node.clone();
        let bytes = self.nodes[id].bytes;
        let value = self.compute(&node, bytes, chunk);
        self.nodes[id].done[chunk] = Some(value);
        self.log.push((id, chunk));
        let same = match &node {
            Node::Splat(_) => 0..CHUNKS,
            Node::Affine(bases, 0) => {
                let chunks = CHUNKS / bases.len();
                chunk / chunks * chunks..(chunk / chunks + 1) * chunks
            }
            _ => 0..0,
        };
        for other in same {
            if self.nodes[id].done[other].is_none() {
                self.nodes[id].done[other] = Some(value);
                self.log.push((id, other));
            }
        }
        value
    }

    /// Forgets values that were computed since the log had length `length`, in a block that is not on the path of
    /// others.
    pub(super) fn forget(&mut self, length: usize) {
        for (id, chunk) in self.log.split_off(length) {
            self.nodes[id].done[chunk] = None;
        }
    }

    fn compute(&mut self, node: &Node, bytes: u8, chunk: usize) -> Chunk {
        match node {
            Node::Frame(register) => {
                let place = self.flow.registers[*register].place as usize;
                let frame = self.frame;
                self.load_chunk(frame, place + chunk * CHUNK_LANES * usize::from(bytes), bytes)
            }
            Node::Memory(pointers) => {
                let lanes = LANES / pointers.len();
                let (group, first) = (chunk * CHUNK_LANES / lanes, chunk * CHUNK_LANES % lanes);
                self.load_chunk(pointers[group], first * usize::from(bytes), bytes)
            }
            Node::Splat(value) => {
                let kind = if bytes == 8 { I64X2 } else { I32X4 };
                let value = self.builder.ins().splat(kind, *value);
                [value; 2]
            }
            Node::Broadcast(places) => {
                let (host, offset) = places[chunk * CHUNK_LANES * places.len() / LANES];
                let flags = MemFlagsData::new().with_notrap();
                let (word, vector) = if bytes == 8 { (I64, I64X2) } else { (I32, I32X4) };
                let value = self.builder.ins().load(word, flags, host, offset);
                [self.builder.ins().splat(vector, value); 2]
            }
            Node::Affine(bases, stride) => {
                let lanes = LANES / bases.len();
                let (group, first) = (chunk * CHUNK_LANES / lanes, chunk * CHUNK_LANES % lanes);
                let base = self.builder.ins().splat(if bytes == 8 { I64X2 } else { I32X4 }, bases[group]);
                if *stride == 0 {
                    return [base; 2];
                }
                self.steps(base, bytes, *stride, first)
            }
            Node::Lane(op, args) => {
                // The most expensive one first, so that the others need not be kept meanwhile.
                let mut order: Vec<NodeId> = args.clone();
                order.sort_by_key(|arg| std::cmp::Reverse(self.nodes[*arg].depth));
                for arg in order {
                    self.chunk(arg, chunk);
                }
                let args: Vec<Chunk> = args.iter().map(|arg| self.chunk(*arg, chunk)).collect();
                self.lane_chunk(*op, &args)
            }
            Node::Shift(op, arg, amount) => {
                let value = self.chunk(*arg, chunk);
                let count = if bytes == 8 { 2 } else { 1 };
                let mut result = value;
                for part in 0..count {
                    result[part] = match amount {
                        Ok(amount) => self.lanes(true).shift_by(*op, value[part], *amount),
                        Err(amount) => self.lanes(true).shift(*op, value[part], *amount),
                    };
                }
                if count == 1 {
                    result[1] = result[0];
                }
                result
            }
            Node::Select(condition, yes, no) => {
                let condition = self.chunk(*condition, chunk)[0];
                let (yes, no) = (self.chunk(*yes, chunk), self.chunk(*no, chunk));
                self.select_chunk(condition, yes, no, bytes)
            }
            Node::Canonical(arg) => {
                let value = self.chunk(*arg, chunk)[0];
                [self.lanes(true).canonical(value); 2]
            }
            Node::Compare(test, scalar, a, b) => {
                let (a, b) = (self.chunk(*a, chunk), self.chunk(*b, chunk));
                if scalar.bytes() != 8 {
                    return [self.lanes(true).compare(*test, *scalar, a[0], b[0]); 2];
                }
                let parts = [0, 1].map(|part| self.lanes(true).compare(*test, *scalar, a[part], b[part]));
                [self.lanes(true).shuffle(parts[0], parts[1], &[0, 2, 4, 6]); 2]
            }
            Node::Bits(mask) => {
                let bits: Vec<u8> = (0..CHUNK_LANES)
                    .flat_map(|lane| (1_u32 << (chunk * CHUNK_LANES + lane)).to_le_bytes())
                    .collect();
                let all = self.builder.ins().splat(I32X4, *mask);
                let bits = self.lanes(true).vector_constant(4, bits);
                let kept = self.builder.ins().band(all, bits);
                let equal = cranelift_codegen::ir::condcodes::IntCC::Equal;
                [self.builder.ins().icmp(equal, kept, bits); 2]
            }
        }
    }

    /// Lanes of `condition` (32 bits) choose between two chunks.
    pub(super) fn select_chunk(&mut self, condition: Value, yes: Chunk, no: Chunk, bytes: u8) -> Chunk {
        if bytes != 8 {
            return [self.builder.ins().bitselect(condition, yes[0], no[0]); 2];
        }
        let low = self.builder.ins().swiden_low(condition);
        let high = self.builder.ins().swiden_high(condition);
        [self.builder.ins().bitselect(low, yes[0], no[0]), self.builder.ins().bitselect(high, yes[1], no[1])]
    }

    fn steps(&mut self, base: Value, bytes: u8, stride: i64, first: usize) -> Chunk {
        let count = 16 / usize::from(bytes);
        let mut part = |from: usize| {
            let data: Vec<u8> = (from..from + count)
                .flat_map(|lane| {
                    let word = stride.wrapping_mul(lane as i64).to_le_bytes();
                    word.into_iter().take(usize::from(bytes))
                })
                .collect();
            let steps = self.lanes(true).vector_constant(bytes, data);
            self.builder.ins().iadd(base, steps)
        };
        if bytes == 8 { [part(first), part(first + 2)] } else { [part(first); 2] }
    }

    pub(super) fn load_chunk(&mut self, pointer: Value, offset: usize, bytes: u8) -> Chunk {
        let flags = MemFlagsData::new().with_notrap();
        let offset = offset as i32;
        if bytes == 2 {
            return [self.builder.ins().uload16x4(flags, pointer, offset); 2];
        }
        if bytes == 8 {
            return [0, 16].map(|part| self.builder.ins().load(I64X2, flags, pointer, offset + part));
        }
        [self.builder.ins().load(I32X4, flags, pointer, offset); 2]
    }

    /// Writes a chunk to a pointer.
    pub(super) fn store_chunk(&mut self, value: Chunk, pointer: Value, offset: usize, bytes: u8) {
        let flags = MemFlagsData::new().with_notrap();
        let offset = offset as i32;
        if bytes == 2 {
            let narrow = self.builder.ins().unarrow(value[0], value[0]);
            let halves = self.lanes(true).cast(I64X2, narrow);
            let low = self.builder.ins().extractlane(halves, 0);
            self.builder.ins().store(flags, low, pointer, offset);
            return;
        }
        self.builder.ins().store(flags, value[0], pointer, offset);
        if bytes == 8 {
            self.builder.ins().store(flags, value[1], pointer, offset + 16);
        }
    }

    fn lane_chunk(&mut self, op: Op, args: &[Chunk]) -> Chunk {
        let (a, b) = (args[0], args.get(1).copied().unwrap_or(args[0]));
        match op {
            Op::Widen(signed) => self.widened(a[0], signed),
            Op::Low => [self.lanes(true).shuffle(a[0], a[1], &[0, 2, 4, 6]); 2],
            Op::High => [self.lanes(true).shuffle(a[0], a[1], &[1, 3, 5, 7]); 2],
            Op::Join => [[0, 4, 1, 5], [2, 6, 3, 7]].map(|picks| {
                let joined = self.lanes(true).shuffle(a[0], b[0], &picks);
                self.lanes(true).cast(I64X2, joined)
            }),
            Op::MulWide(signed) | Op::MulAddWide(signed) => {
                let (a, b) = (self.widened(a[0], signed), self.widened(b[0], signed));
                let mut parts = [0, 1].map(|part| self.builder.ins().imul(a[part], b[part]));
                if let Some(sum) = args.get(2) {
                    parts = [0, 1].map(|part| self.builder.ins().iadd(parts[part], sum[part]));
                }
                parts
            }
            Op::MulHigh(signed) => {
                let (a, b) = (self.widened(a[0], signed), self.widened(b[0], signed));
                let [low, high] = [0, 1].map(|part| self.builder.ins().imul(a[part], b[part]));
                [self.lanes(true).upper(low, high); 2]
            }
            Op::Promote | Op::Demote | Op::DFromInt => self.lanes(true).resized(op, a),
            Op::Field(field) => self.field_chunk(field, a),
            op if op.bytes() == 8 => [0, 1].map(|part| {
                let args: Vec<Value> = args.iter().map(|arg| arg[part]).collect();
                self.lanes(true).apply(op, &args)
            }),
            op => {
                let args: Vec<Value> = args.iter().map(|arg| arg[0]).collect();
                [self.lanes(true).apply(op, &args); 2]
            }
        }
    }

    fn field_chunk(&mut self, mut field: Field, value: Chunk) -> Chunk {
        let mut word = value[0];
        if field.from == 8 {
            let picks = if field.shift < 32 { [0, 2, 4, 6] } else { [1, 3, 5, 7] };
            word = self.lanes(true).shuffle(value[0], value[1], &picks);
            field.shift %= 32;
        }
        let word = self.lanes(true).field(field, word);
        if field.to == 8 { self.widened(word, field.signed) } else { [word; 2] }
    }

    fn widened(&mut self, value: Value, signed: bool) -> Chunk {
        if signed {
            [self.builder.ins().swiden_low(value), self.builder.ins().swiden_high(value)]
        } else {
            [self.builder.ins().uwiden_low(value), self.builder.ins().uwiden_high(value)]
        }
    }

    /// The bit mask of a condition.
    pub(super) fn pack(&mut self, condition: NodeId) -> Value {
        let mut halves = [0, 1].map(|half| {
            let first = half * CHUNKS / 2;
            let pairs = [first, first + 2].map(|index| {
                let (a, b) = (self.chunk(condition, index)[0], self.chunk(condition, index + 1)[0]);
                self.builder.ins().snarrow(a, b)
            });
            let bytes = self.builder.ins().snarrow(pairs[0], pairs[1]);
            self.builder.ins().vhigh_bits(I32, bytes)
        });
        halves[1] = self.builder.ins().ishl_imm_s(halves[1], 16);
        self.builder.ins().bor(halves[0], halves[1])
    }
}
