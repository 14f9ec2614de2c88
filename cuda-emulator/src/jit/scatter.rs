// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores of elements that do not follow each other: an address for each lane, all checked before the first access.
//!
//! As in `memory`, the handler executes the instruction where a check fails. Lanes that do not execute it access
//! memory that no other code uses: in global memory `View::spare`, in shared memory the line after it.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Value};

use super::kinds::polls;
use super::meaning::Element;
use super::memory::{MAX_REACH, address_bytes};
use super::nodes::{CHUNK_LANES, CHUNKS, Chunk, Node, NodeId};
use super::translate::{Done, Held, Translator};
use crate::code::{Instr, LANES};
use crate::execute::access::{Place, aux};
use crate::native::shape::Kind;
use crate::native::view::View;

/// The addresses of the lanes' elements, all of them checked.
enum Places {
    /// A pointer for each group of lanes, and the step.
    Steps(Vec<Value>, i64),
    /// An address each; the node is in the instruction's own width.
    Each(NodeId),
}

/// The labels of an access: of the way for when a check fails, and of where both ways meet.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    cold: Block,
    label: Block,
}

/// An access whose addresses have been checked.
struct Prepared {
    /// The lanes that do it.
    mask: Value,
    /// The same as a node, if they may not be all.
    condition: Option<NodeId>,
    /// True if all elements can be accessed.
    ok: Value,
    places: Places,
}

impl Translator<'_, '_, '_> {
    /// Returns whether some lanes may not execute the instruction, although the warp has 32.
    pub(super) fn is_masked(&self, pc: u32) -> bool {
        self.flow.guard(pc).is_some() || self.region.is_some() || self.variant.partial
    }

    /// Returns whether all of `bytes` (the alignment, too) at each lane's address can be accessed, and the addresses.
    fn places(&mut self, pc: u32, held: &Held, bytes: u64, condition: Option<NodeId>) -> (Value, Places) {
        let instr = self.flow.instr(pc);
        if let Held::Scalars(Kind::Affine(stride), bases) = held
            && condition.is_none()
            && *stride > 0
            && stride % bytes as i64 == 0
            && *stride <= MAX_REACH / LANES as i64
        {
            let (ok, hosts) = self.groups(pc, bases, *stride, bytes);
            return (ok, Places::Steps(hosts, *stride));
        }
        let node = self.as_node(held, address_bytes(instr));
        let ok = if address_bytes(instr) == 8 {
            self.check_long(instr, node, bytes, condition)
        } else {
            self.check_short(instr, node, bytes, condition)
        };
        (ok, Places::Each(node))
    }

    /// Returns the bounds of the range of the instruction's last access: its start, and the last offset at which
    /// an access of `bytes` bytes lies within the range. That is a negative number if the range is shorter.
    fn range(&mut self, instr: &Instr, bytes: u64) -> (Value, Value) {
        if aux::place(instr.aux) == Place::Shared {
            let size = self.view_field(I64, std::mem::offset_of!(View, shared_bytes));
            let start = self.builder.ins().iconst(I64, 0);
            return (start, self.builder.ins().iadd_imm_s(size, -(bytes as i64)));
        }
        let (start, size, same) = self.known_range(instr);
        let last = self.builder.ins().iadd_imm_s(size, -(bytes as i64));
        let none = self.builder.ins().iconst(I64, -1);
        (start, self.builder.ins().select(same, last, none))
    }

    /// Addresses of 64 bits.
    fn check_long(&mut self, instr: &Instr, node: NodeId, bytes: u64, condition: Option<NodeId>) -> Value {
        let (start, last) = self.range(instr, bytes);
        let fits = self.builder.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, last, 0);
        let imm = self.builder.ins().iconst(I64, instr.imm as i64);
        let distance = self.builder.ins().isub(imm, start);
        let distance = self.builder.ins().splat(I64X2, distance);
        let last = self.builder.ins().splat(I64X2, last);
        // Mostly the register is aligned as the sum is.
        let skew = (!instr.imm.is_multiple_of(bytes)).then(|| self.lanes(true).constant(8, instr.imm as i64));
        let mut outside = None;
        let mut low = None;
        for chunk in 0..CHUNKS {
            let address = self.chunk(node, chunk);
            let lanes = condition.map(|condition| {
                let bits = self.chunk(condition, chunk)[0];
                [self.builder.ins().swiden_low(bits), self.builder.ins().swiden_high(bits)]
            });
            for part in 0..2 {
                let offset = self.builder.ins().iadd(address[part], distance);
                let mut bits = skew.map_or(address[part], |imm| self.builder.ins().iadd(address[part], imm));
                let rest = self.builder.ins().isub(last, offset);
                let mut bad = self.builder.ins().bor(offset, rest);
                if let Some(lanes) = lanes {
                    bad = self.builder.ins().band(bad, lanes[part]);
                    bits = self.builder.ins().band(bits, lanes[part]);
                }
                outside = Some(outside.map_or(bad, |all| self.builder.ins().bor(all, bad)));
                low = Some(low.map_or(bits, |all| self.builder.ins().bor(all, bits)));
            }
        }
        self.all_fine(instr, bytes, fits, outside, low)
    }

    /// Addresses of 32 bits, in shared memory.
    fn check_short(&mut self, instr: &Instr, node: NodeId, bytes: u64, condition: Option<NodeId>) -> Value {
        let (_, last) = self.range(instr, bytes);
        let fits = self.builder.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, last, 0);
        let distance = self.lanes(true).constant(4, i64::from(instr.imm as u32));
        let last = self.builder.ins().ireduce(I32, last);
        let last = self.builder.ins().splat(I32X4, last);
        let mut outside = None;
        let mut low = None;
        for chunk in 0..CHUNKS {
            let address = self.chunk(node, chunk)[0];
            let offset = self.builder.ins().iadd(address, distance);
            let rest = self.builder.ins().isub(last, offset);
            let mut bad = self.builder.ins().bor(offset, rest);
            let mut bits = offset;
            if let Some(condition) = condition {
                let lanes = self.chunk(condition, chunk)[0];
                bad = self.builder.ins().band(bad, lanes);
                bits = self.builder.ins().band(bits, lanes);
            }
            outside = Some(outside.map_or(bad, |all| self.builder.ins().bor(all, bad)));
            low = Some(low.map_or(bits, |all| self.builder.ins().bor(all, bits)));
        }
        self.all_fine(instr, bytes, fits, outside, low)
    }

    /// Returns whether `fits` holds, no lane of the first vector is negative, and all of the second are aligned. Where `fits`
    /// does not hold, the range is shorter than `bytes`, and the differences in the first vector may have wrapped around.
    fn all_fine(
        &mut self,
        instr: &Instr,
        bytes: u64,
        fits: Value,
        outside: Option<Value>,
        low: Option<Value>,
    ) -> Value {
        let (Some(outside), Some(low)) = (outside, low) else { return self.builder.ins().iconst(I8, 0) };
        let signs = self.builder.ins().vhigh_bits(I32, outside);
        let inside = self.builder.ins().icmp_imm_s(IntCC::Equal, signs, 0);
        let inside = self.builder.ins().band(inside, fits);
        if bytes == 1 {
            return inside;
        }
        let most = self.lanes(true).constant(address_bytes(instr), bytes as i64 - 1);
        let low = self.builder.ins().band(low, most);
        let some = self.builder.ins().vany_true(low);
        let aligned = self.builder.ins().icmp_imm_s(IntCC::Equal, some, 0);
        self.builder.ins().band(inside, aligned)
    }

    /// The host addresses of a chunk's lanes.
    fn pointers(&mut self, instr: &Instr, places: &Places, chunk: usize, mask: Option<NodeId>) -> [Value; 4] {
        let node = match places {
            Places::Steps(hosts, stride) => {
                let lanes = LANES / hosts.len();
                let first = chunk * CHUNK_LANES;
                let host = hosts[first / lanes];
                return [0, 1, 2, 3].map(|lane| {
                    let distance = ((first + lane) % lanes) as i64 * stride;
                    self.builder.ins().iadd_imm_s(host, distance)
                });
            }
            Places::Each(node) => *node,
        };
        let address = self.chunk(node, chunk);
        let condition = mask.map(|mask| self.chunk(mask, chunk)[0]);
        let shared = aux::place(instr.aux) == Place::Shared;
        if address_bytes(instr) == 8 {
            let imm = self.lanes(true).constant(8, instr.imm as i64);
            let mut at = [0, 1].map(|part| self.builder.ins().iadd(address[part], imm));
            if let Some(condition) = condition {
                let spare = if shared {
                    self.view_field(I64, std::mem::offset_of!(View, shared_spare))
                } else {
                    self.builder.ins().iadd_imm_s(self.view, std::mem::offset_of!(View, spare) as i64)
                };
                let spare = self.builder.ins().splat(I64X2, spare);
                at = self.select_chunk(condition, at, [spare; 2], 8);
            }
            let base = shared.then(|| self.view_field(I64, std::mem::offset_of!(View, shared)));
            return [0, 1, 2, 3].map(|lane: u8| {
                let at = self.builder.ins().extractlane(at[usize::from(lane / 2)], lane % 2);
                base.map_or(at, |base| self.builder.ins().iadd(base, at))
            });
        }
        let imm = self.lanes(true).constant(4, instr.imm as u32 as i64);
        let mut at = self.builder.ins().iadd(address[0], imm);
        if let Some(condition) = condition {
            let spare = self.view_field(I64, std::mem::offset_of!(View, shared_spare));
            let spare = self.builder.ins().ireduce(I32, spare);
            let spare = self.builder.ins().splat(I32X4, spare);
            at = self.builder.ins().bitselect(condition, at, spare);
        }
        let base = self.view_field(I64, std::mem::offset_of!(View, shared));
        [0, 1, 2, 3].map(|lane: u8| {
            let at = self.builder.ins().extractlane(at, lane);
            let at = self.builder.ins().uextend(I64, at);
            self.builder.ins().iadd(base, at)
        })
    }

    /// Emits the start of an access of `bytes` bytes from any addresses: the active lanes, and the checks.
    fn prepare(&mut self, pc: u32, held: &Held, bytes: u64) -> Prepared {
        let mask = self.mask(pc);
        let condition = self.is_masked(pc).then(|| self.node(Node::Bits(mask), 4));
        let (ok, places) = self.places(pc, held, bytes, condition);
        Prepared { mask, condition, ok, places }
    }

    /// Goes on in the code for when all checks hold; the labels of the other way, and of where both meet.
    pub(super) fn choose_way(&mut self, pc: u32, ok: Value) -> Ways {
        self.before_handler(pc);
        let (fast, cold, label) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(ok, fast, &[], cold, &[]);
        self.go_on_in(fast);
        Ways { cold, label }
    }

    /// Ends the code for when all checks hold, makes the other way, and goes on where both meet.
    pub(super) fn join_ways(&mut self, pc: u32, mask: Value, Ways { cold, label }: Ways) -> Done {
        self.builder.ins().jump(label, &[]);
        let mark = self.enter_cold(cold);
        self.handle(pc, mask)?;
        self.builder.ins().jump(label, &[]);
        self.leave_cold(mark);
        self.go_on_in(label);
        Ok(())
    }

    /// A load from any addresses.
    pub(super) fn load_each(&mut self, pc: u32, element: Element, held: &Held) -> Done {
        let instr = self.flow.instr(pc);
        let count = aux::count(instr.aux);
        let bytes = u64::from(element.bytes) * count as u64;
        let Prepared { mask, condition, ok, places } = self.prepare(pc, held, bytes);
        let registers: Vec<usize> = (0..count).map(|part| self.flow.register(instr.ops[part])).collect();
        if self.flow.guard(pc).is_some() {
            // The old values of other lanes are read before the frame changes.
            registers.iter().for_each(|register| drop(self.held(*register)));
        }
        let ways = self.choose_way(pc, ok);
        let mark = self.log.len();
        for chunk in 0..CHUNKS {
            let pointers = self.pointers(instr, &places, chunk, condition);
            let values = self.load_lanes(pointers, element, count);
            for (register, value) in registers.iter().zip(values) {
                let place = self.flow.registers[*register].place as usize;
                let offset = place + chunk * CHUNK_LANES * usize::from(element.register);
                self.write_chunk(value, offset, element.register, chunk);
            }
        }
        if polls(instr) {
            self.poll();
        }
        self.forget(mark);
        self.join_ways(pc, mask, ways)?;
        for register in registers {
            let node = self.node(Node::Frame(register), element.register);
            self.readers[register].push(node);
            self.define(pc, register, Held::Node(node));
            // With a guard, the register also contains older values.
            self.clean[register] = self.flow.guard(pc).is_none();
        }
        Ok(())
    }

    /// Four lanes of one element or more, by part.
    fn load_lanes(&mut self, pointers: [Value; 4], element: Element, count: usize) -> Vec<Chunk> {
        let flags = MemFlagsData::new().with_notrap();
        let wide = element.bytes == element.register;
        match (element.bytes, count) {
            (4, 4) if wide => {
                let rows = pointers.map(|pointer| self.builder.ins().load(I32X4, flags, pointer, 0));
                self.transpose(rows).map(|value| [value; 2]).to_vec()
            }
            (4, 2) if wide => {
                let [a, b] = [0, 2].map(|first| self.load_pair(pointers[first], pointers[first + 1], 0));
                [[0, 2, 4, 6], [1, 3, 5, 7]].map(|picks| [self.lanes(true).shuffle(a, b, &picks); 2]).to_vec()
            }
            (8, 2) if wide => {
                let rows = pointers.map(|pointer| self.builder.ins().load(I64X2, flags, pointer, 0));
                [[0, 1, 4, 5], [2, 3, 6, 7]]
                    .map(|picks| {
                        [0, 2].map(|first| {
                            let pair = self.lanes(true).shuffle(rows[first], rows[first + 1], &picks);
                            self.lanes(true).cast(I64X2, pair)
                        })
                    })
                    .to_vec()
            }
            _ => (0..count)
                .map(|part| {
                    let offset = part * usize::from(element.bytes);
                    if element.bytes == 8 {
                        let pair = |first: usize| (pointers[first], pointers[first + 1]);
                        return [pair(0), pair(2)].map(|(a, b)| self.load_pair(a, b, offset));
                    }
                    let values = pointers.map(|pointer| self.load_scalar(pointer, offset, element));
                    self.gathered(values, element.register)
                })
                .collect(),
        }
    }

    /// A vector of two words of 64 bits in memory.
    fn load_pair(&mut self, a: Value, b: Value, offset: usize) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        let [a, b] = [a, b].map(|pointer| self.builder.ins().load(I64, flags, pointer, offset as i32));
        let low = self.builder.ins().scalar_to_vector(I64X2, a);
        self.builder.ins().insertlane(low, b, 1)
    }

    /// A chunk of four scalars.
    pub(super) fn gathered(&mut self, values: [Value; 4], bytes: u8) -> Chunk {
        if bytes == 8 {
            return [[0, 1], [2, 3]].map(|[a, b]| {
                let low = self.builder.ins().scalar_to_vector(I64X2, values[a]);
                self.builder.ins().insertlane(low, values[b], 1)
            });
        }
        let mut vector = self.builder.ins().scalar_to_vector(I32X4, values[0]);
        for (lane, value) in (0..).zip(values).skip(1) {
            vector = self.builder.ins().insertlane(vector, value, lane);
        }
        [vector; 2]
    }

    /// Rows become columns.
    fn transpose(&mut self, rows: [Value; 4]) -> [Value; 4] {
        let mut lanes = self.lanes(true);
        let [a, b, c, d] = rows;
        let (low, high) = ([0, 4, 1, 5], [2, 6, 3, 7]);
        let halves = [(a, b, low), (c, d, low), (a, b, high), (c, d, high)];
        let [ab, cd, ef, gh] = halves.map(|(a, b, picks)| lanes.shuffle(a, b, &picks));
        let (first, second) = ([0, 1, 4, 5], [2, 3, 6, 7]);
        [(ab, cd, first), (ab, cd, second), (ef, gh, first), (ef, gh, second)]
            .map(|(a, b, picks)| lanes.shuffle(a, b, &picks))
    }

    /// A store to any addresses: lane after lane, as the interpreter does it.
    pub(super) fn store_each(&mut self, pc: u32, element: Element, held: &Held) -> Done {
        let instr = self.flow.instr(pc);
        let count = aux::count(instr.aux);
        let bytes = u64::from(element.bytes) * count as u64;
        self.force_memory();
        let mut data = Vec::new();
        for part in 0..count {
            let held = self.operand(instr.ops[part], element.register)?;
            let node = self.as_node(&held, element.register);
            self.force(node);
            data.push(node);
        }
        let Prepared { mask, condition, mut ok, places } = self.prepare(pc, held, bytes);
        if condition.is_none() {
            // Some lanes of a block's last warp may not exist.
            let full = self.builder.ins().icmp_imm_s(IntCC::Equal, mask, -1);
            ok = self.builder.ins().band(ok, full);
        }
        let ways = self.choose_way(pc, ok);
        let mark = self.log.len();
        for chunk in 0..CHUNKS {
            let pointers = self.pointers(instr, &places, chunk, condition);
            let values: Vec<Chunk> = data.iter().map(|node| self.chunk(*node, chunk)).collect();
            self.store_lanes(pointers, element, &values);
        }
        self.forget(mark);
        self.join_ways(pc, mask, ways)
    }

    fn store_lanes(&mut self, pointers: [Value; 4], element: Element, values: &[Chunk]) {
        let flags = MemFlagsData::new().with_notrap();
        if let (4, 4, [a, b, c, d]) = (element.bytes, element.register, values) {
            let rows = self.transpose([a[0], b[0], c[0], d[0]]);
            for (row, pointer) in rows.into_iter().zip(pointers) {
                self.builder.ins().store(flags, row, pointer, 0);
            }
            return;
        }
        if let (4, 4, [a, b]) = (element.bytes, element.register, values) {
            for (first, picks) in [(0, [0, 4, 1, 5]), (2, [2, 6, 3, 7])] {
                let pairs = self.lanes(true).shuffle(a[0], b[0], &picks);
                let pairs = self.lanes(true).cast(I64X2, pairs);
                for lane in 0..2_u8 {
                    let pair = self.builder.ins().extractlane(pairs, lane);
                    self.builder.ins().store(flags, pair, pointers[first + usize::from(lane)], 0);
                }
            }
            return;
        }
        if let (8, 8, [a, b]) = (element.bytes, element.register, values) {
            for (lane, pointer) in pointers.into_iter().enumerate() {
                let picks = if lane % 2 == 0 { [0, 1, 4, 5] } else { [2, 3, 6, 7] };
                let row = self.lanes(true).shuffle(a[lane / 2], b[lane / 2], &picks);
                self.builder.ins().store(flags, row, pointer, 0);
            }
            return;
        }
        for (lane, pointer) in pointers.into_iter().enumerate() {
            for (part, value) in values.iter().enumerate() {
                let offset = (part * usize::from(element.bytes)) as i32;
                let scalar = if element.register == 8 {
                    self.builder.ins().extractlane(value[lane / 2], (lane % 2) as u8)
                } else {
                    self.builder.ins().extractlane(value[0], lane as u8)
                };
                let memory = match element.bytes {
                    1 => I8,
                    2 => I16,
                    4 => I32,
                    _ => I64,
                };
                let narrow = if self.builder.func.dfg.value_type(scalar) == memory {
                    scalar
                } else {
                    self.builder.ins().ireduce(memory, scalar)
                };
                self.builder.ins().store(flags, narrow, pointer, offset);
            }
        }
    }
}
