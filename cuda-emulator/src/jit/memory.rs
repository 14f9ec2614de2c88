// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores whose addresses are scalars: one check for a whole group of lanes. For others, see `scatter`.
//!
//! The check is the interpreter's: the bytes lie in the range that the instruction touched last and that still is (same
//! generation), or in the block's shared memory, and are aligned. Where it fails nothing has happened yet, and the handler
//! executes the instruction: it finds other ranges, and the fault if there is one, with the same message.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    BlockArg, InstBuilder, MemFlagsData, StackSlot, StackSlotData, StackSlotKind, Type, Value,
};

use super::flow::Set;
use super::kinds::{self, polls};
use super::meaning::{Element, Meaning};
use super::nodes::{CHUNK_LANES, CHUNKS, Node, NodeId};
use super::translate::{Done, Held, Translator, Untranslatable};
use crate::code::{CONSTANT, Instr, LANES};
use crate::execute::Known;
use crate::execute::access::{Place, aux};
use crate::native::shape::Kind;
use crate::native::view::View;

pub(super) fn address_bytes(instr: &Instr) -> u8 {
    if instr.aux & aux::WIDE_ADDRESS != 0 { 8 } else { 4 }
}

/// Loads of a function that have room on the stack.
const MAX_SLOTS: usize = 256;

/// The maximum number of bytes that several instructions check together.
const MAX_JOINED: i128 = 1 << 16;

/// The farthest that lanes with a common step may lie apart, so that one check is for all of them.
pub(super) const MAX_REACH: i64 = 1 << 20;

/// The maximum number of bytes that a check is for: the lanes of an instruction, and the bytes of the last one.
const MAX_CHECKED: i64 = MAX_REACH + 32;

/// The bytes that are touched, from an address on. The numbers are those of mathematics: an immediate may be any of 64 bits,
/// and no sum of such and of steps wraps around or stops at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    low: i128,
    end: i128,
    /// Alignment, a power of two, of the place `phase`.
    align: i128,
    phase: i128,
}

impl Span {
    /// Returns the bytes that an instruction touches whose last lane is `reach` bytes from its first one.
    fn of(instr: &Instr, reach: i64, bytes: u64) -> Span {
        let low = if address_bytes(instr) == 8 { instr.imm as i64 } else { i64::from(instr.imm as i32) };
        let (low, bytes) = (i128::from(low), i128::from(bytes));
        Span { low, end: low + i128::from(reach) + bytes, align: bytes, phase: low }
    }

    /// Returns true if a check of this span includes a check of `other`: its bytes and its alignment.
    fn covers(&self, other: &Span) -> bool {
        let aligned = other.align <= self.align && (other.phase - self.phase) % other.align == 0;
        other.low >= self.low && other.end <= self.end && aligned
    }

    /// The span of both, if one alignment is enough for both.
    fn with(&self, other: &Span) -> Option<Span> {
        let (low, end) = (self.low.min(other.low), self.end.max(other.end));
        let more = if other.align > self.align { other } else { self };
        let wider = Span { low, end, align: more.align, phase: more.phase };
        (end - low <= MAX_JOINED && wider.covers(self) && wider.covers(other)).then_some(wider)
    }

    /// Its parts as the check needs them: the distance of its start from the address, the bytes from there on, and an alignment
    /// with the distance of its place from the start. `None` if it has more bytes than one check may be for.
    fn parts(&self) -> Option<(i64, i64, i64, i64)> {
        let bytes =
            i64::try_from(self.end - self.low).ok().filter(|bytes| (1..=MAX_CHECKED).contains(bytes))?;
        let align = i64::try_from(self.align).ok()?;
        Some((i64::try_from(self.low).ok()?, bytes, align, i64::try_from(self.phase - self.low).ok()?))
    }

    /// The distance of the start of `inner`, which it covers, from its own.
    fn distance(&self, inner: &Span) -> i64 {
        (inner.low - self.low) as i64
    }
}

/// Addresses that have been checked in the current block.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    /// The address register and its space.
    key: (u32, Place),
    addresses: Vec<Value>,
    span: Span,
    ok: Value,
    /// True if this code runs only after the check has succeeded.
    certain: bool,
    /// The start of the span in the host, for each group of lanes.
    hosts: Vec<Value>,
}

impl Translator<'_, '_, '_> {
    /// Emits the code of `Machine::polls`.
    pub(super) fn poll(&mut self) {
        let flags = MemFlagsData::trusted();
        let budget = self.view_field(I64, std::mem::offset_of!(View, budget));
        let left = self.builder.ins().load(I32, flags, budget, 0);
        let cost = i64::from(crate::execute::POLL_COST);
        let floor = self.builder.ins().iconst(I32, cost + 1);
        let left = self.builder.ins().umax(left, floor);
        let left = self.builder.ins().iadd_imm_s(left, -cost);
        self.builder.ins().store(flags, left, budget, 0);
        let polled = self.view_field(I64, std::mem::offset_of!(View, polled));
        let yes = self.builder.ins().iconst(I8, 1);
        self.builder.ins().store(flags, yes, polled, 0);
    }

    pub(super) fn view_field(&mut self, kind: Type, offset: usize) -> Value {
        self.builder.ins().load(kind, MemFlagsData::trusted(), self.view, offset as i32)
    }

    /// The range of memory that the instruction touched last: its start, its size, and whether it still is.
    pub(super) fn known_range(&mut self, instr: &Instr) -> (Value, Value, Value) {
        let flags = MemFlagsData::trusted();
        let ranges = self.view_field(I64, std::mem::offset_of!(View, ranges));
        let generation = self.view_field(I64, std::mem::offset_of!(View, generation));
        let now = self.builder.ins().load(I64, MemFlagsData::new().with_notrap(), generation, 0);
        let slot = i64::from(instr.slot) * size_of::<Known>() as i64;
        let known = self.builder.ins().iadd_imm_s(ranges, slot);
        let mut field = |offset: usize| self.builder.ins().load(I64, flags, known, offset as i32);
        let base = field(std::mem::offset_of!(Known, base));
        let end = field(std::mem::offset_of!(Known, end));
        let then = field(std::mem::offset_of!(Known, generation));
        let same = self.builder.ins().icmp(IntCC::Equal, now, then);
        let size = self.builder.ins().isub(end, base);
        (base, size, same)
    }

    /// Returns whether the bytes of `span` can be accessed, and the host address of their first one.
    fn check_span(&mut self, instr: &Instr, address: Value, span: Span) -> (Value, Value) {
        let Some((low, bytes, align, phase)) = span.parts() else {
            let never = self.builder.ins().iconst(I8, 0);
            return (never, self.builder.ins().iconst(I64, 0));
        };
        let address = if address_bytes(instr) == 8 {
            self.builder.ins().iadd_imm_s(address, low)
        } else {
            let sum = self.builder.ins().iadd_imm_s(address, i64::from(low as i32));
            self.builder.ins().uextend(I64, sum)
        };
        let place = self.builder.ins().iadd_imm_s(address, phase);
        let low = self.builder.ins().band_imm_s(place, align - 1);
        let aligned = self.builder.ins().icmp_imm_s(IntCC::Equal, low, 0);
        if aux::place(instr.aux) == Place::Shared {
            let size = self.view_field(I64, std::mem::offset_of!(View, shared_bytes));
            let base = self.view_field(I64, std::mem::offset_of!(View, shared));
            let last = self.builder.ins().iadd_imm_s(size, -bytes);
            let not_negative = self.builder.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, last, 0);
            let inside = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, address, last);
            let ok = self.builder.ins().band(not_negative, inside);
            let ok = self.builder.ins().band(ok, aligned);
            return (ok, self.builder.ins().iadd(base, address));
        }
        let (base, size, same) = self.known_range(instr);
        let large = self.builder.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, size, bytes);
        let last = self.builder.ins().iadd_imm_s(size, -bytes);
        let offset = self.builder.ins().isub(address, base);
        let inside = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, offset, last);
        let ok = self.builder.ins().band(same, large);
        let ok = self.builder.ins().band(ok, aligned);
        (self.builder.ins().band(ok, inside), address)
    }

    /// Returns whether `bytes` bytes (the alignment, too) of each lane can be accessed, in groups of lanes from
    /// `addresses` on that are
    /// `stride` (not negative) bytes apart; and where the first lanes' are. Accesses that follow with the same address register
    /// are checked along with the first: where that fails, they are left to their handlers, too.
    pub(super) fn groups(
        &mut self,
        pc: u32,
        addresses: &[Value],
        stride: i64,
        bytes: u64,
    ) -> (Value, Vec<Value>) {
        let checked = self.check_groups(pc, addresses, stride, bytes);
        let Checked { ok, hosts, .. } = self.checked[checked.0].clone();
        (ok, hosts.iter().map(|host| self.builder.ins().iadd_imm_s(*host, checked.1)).collect())
    }

    /// The same for an access to a block's shared memory by a whole warp, which fails only in an incorrect program.
    /// The interpreter then continues at the access, and later code need not handle that case. Returns `None` for
    /// other accesses.
    fn certain_groups(
        &mut self,
        pc: u32,
        addresses: &[Value],
        stride: i64,
        bytes: u64,
        before: &Set,
    ) -> Result<Option<Vec<Value>>, Untranslatable> {
        let instr = self.flow.instr(pc);
        if aux::place(instr.aux) != Place::Shared || polls(instr) || self.is_masked(pc) {
            return Ok(None);
        }
        let (index, distance) = self.check_groups(pc, addresses, stride, bytes);
        if !self.checked[index].certain {
            self.unless(self.checked[index].ok, pc, before)?;
            self.checked[index].certain = true;
        }
        let hosts = self.checked[index].hosts.clone();
        Ok(Some(hosts.iter().map(|host| self.builder.ins().iadd_imm_s(*host, distance)).collect()))
    }

    /// Returns the checked addresses that are valid for an access, and its distance from their start.
    fn check_groups(&mut self, pc: u32, addresses: &[Value], stride: i64, bytes: u64) -> (usize, i64) {
        let instr = self.flow.instr(pc);
        let reach = stride * (LANES / addresses.len()) as i64 - stride;
        let own = Span::of(instr, reach, bytes);
        let key = (instr.ops[4], aux::place(instr.aux));
        let found = self.checked.iter().position(|checked| {
            checked.key == key && checked.addresses == addresses && checked.span.covers(&own)
        });
        if let Some(index) = found {
            return (index, self.checked[index].span.distance(&own));
        }
        let span = self.foresee(pc, reach, own);
        let mut all = None;
        let mut hosts = Vec::new();
        for address in addresses {
            let (ok, host) = self.check_span(instr, *address, span);
            all = Some(match all {
                None => ok,
                Some(all) => self.builder.ins().band(all, ok),
            });
            hosts.push(host);
        }
        let ok = match all {
            Some(all) => all,
            None => self.builder.ins().iconst(I8, 0),
        };
        self.checked.push(Checked { key, addresses: addresses.to_vec(), span, ok, certain: false, hosts });
        (self.checked.len() - 1, span.distance(&own))
    }

    /// Returns the bytes that this and the following accesses of the block touch with the address register of
    /// instruction `pc`. The instruction itself touches `own`.
    fn foresee(&self, pc: u32, reach: i64, own: Span) -> Span {
        let (flow, instr) = (self.flow, self.flow.instr(pc));
        let mut span = own;
        if instr.ops[4] & CONSTANT != 0 {
            return span;
        }
        let address = flow.register(instr.ops[4]);
        let changes = |pc: u32| flow.mentions(pc).any(|mention| mention == (address, true));
        if changes(pc) {
            return span;
        }
        for next in pc + 1..flow.end_of_block(pc) {
            let other = flow.instr(next);
            match flow.meaning(next) {
                Meaning::Call | Meaning::Exit | Meaning::Shuffle(_) => break,
                Meaning::Load(element) | Meaning::Store(element)
                    if kinds::is_plain(other)
                        && flow.guard(next).is_none()
                        && other.ops[4] == instr.ops[4]
                        && aux::place(other.aux) == aux::place(instr.aux)
                        && address_bytes(other) == address_bytes(instr) =>
                {
                    let bytes = u64::from(element.bytes) * aux::count(other.aux) as u64;
                    if let Some(wider) = span.with(&Span::of(other, reach, bytes)) {
                        span = wider;
                    }
                }
                _ => {}
            }
            if changes(next) {
                break;
            }
        }
        span
    }

    pub(super) fn load(&mut self, pc: u32, element: Element, before: &Set) -> Done {
        let instr = self.flow.instr(pc);
        if !kinds::is_plain(instr) {
            return self.call(pc, before);
        }
        let held = self.operand(instr.ops[4], address_bytes(instr))?;
        if let Held::Scalars(kind, addresses) = &held {
            let stride = kind.stride();
            let wide = element.bytes == element.register && aux::count(instr.aux) == 1;
            if stride == Some(0) {
                return self.load_same(pc, element, addresses, before);
            }
            if stride == Some(i64::from(element.bytes)) && wide {
                return self.load_sequence(pc, element, addresses, before);
            }
        }
        if address_bytes(instr) == 4 && aux::place(instr.aux) != Place::Shared {
            return self.call(pc, before);
        }
        self.load_each(pc, element, &held)
    }

    /// One value for all lanes of a group.
    fn load_same(&mut self, pc: u32, element: Element, addresses: &[Value], before: &Set) -> Done {
        let instr = self.flow.instr(pc);
        let count = aux::count(instr.aux);
        let bytes = u64::from(element.bytes) * count as u64;
        if let Some(hosts) = self.certain_groups(pc, addresses, 0, bytes, before)? {
            let offsets = (0..count).map(|part| part * usize::from(element.bytes));
            let results = offsets.flat_map(|offset| hosts.iter().map(move |host| (*host, offset)));
            let mut values = Vec::new();
            for (host, offset) in results {
                let value = self.load_scalar(host, offset, element);
                if matches!(element.bytes, 4 | 8) && element.bytes == element.register {
                    self.loaded.push((value, (host, offset as i32)));
                }
                values.push(value);
            }
            let results = values;
            self.define_same(pc, &results);
            return Ok(());
        }
        let (ok, hosts) = self.groups(pc, addresses, 0, bytes);
        let mask = self.mask(pc);
        self.before_handler(pc);
        let kind = if element.register == 8 { I64 } else { I32 };
        let (fast, cold, label) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let results: Vec<Value> =
            (0..count * hosts.len()).map(|_| self.builder.append_block_param(label, kind)).collect();
        self.builder.ins().brif(ok, fast, &[], cold, &[]);
        self.go_on_in(fast);
        let mut values: Vec<BlockArg> = Vec::new();
        for part in 0..count {
            for host in &hosts {
                let offset = part * usize::from(element.bytes);
                values.push(self.load_scalar(*host, offset, element).into());
            }
        }
        if polls(instr) {
            self.poll();
        }
        self.builder.ins().jump(label, &values);
        let mark = self.enter_cold(cold);
        self.handle(pc, mask)?;
        let mut values: Vec<BlockArg> = Vec::new();
        for part in 0..count {
            let place = instr.ops[part];
            for group in 0..hosts.len() {
                values.push(self.read_lane(place, element.register, mask, group, hosts.len()).into());
            }
        }
        self.builder.ins().jump(label, &values);
        self.leave_cold(mark);
        self.go_on_in(label);
        self.define_same(pc, &results);
        Ok(())
    }

    /// Defines the results of a load for groups of lanes: for each of its registers one scalar per group.
    fn define_same(&mut self, pc: u32, results: &[Value]) {
        let instr = self.flow.instr(pc);
        let groups = results.len() / aux::count(instr.aux);
        for (part, values) in results.chunks_exact(groups).enumerate() {
            let register = self.flow.register(instr.ops[part]);
            let kind = if groups == 1 { Kind::Uniform } else { Kind::Affine(0) };
            self.define(pc, register, Held::Scalars(kind, values.to_vec()));
        }
    }

    /// A scalar in memory, extended to its register.
    pub(super) fn load_scalar(&mut self, pointer: Value, offset: usize, element: Element) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        let kind = if element.register == 8 { I64 } else { I32 };
        let memory = match element.bytes {
            1 => I8,
            2 => I16,
            4 => I32,
            _ => I64,
        };
        let value = self.builder.ins().load(memory, flags, pointer, offset as i32);
        if memory == kind {
            value
        } else if element.signed && element.register == 2 {
            let wide = self.builder.ins().sextend(kind, value);
            self.builder.ins().band_imm_s(wide, 0xffff)
        } else if element.signed {
            self.builder.ins().sextend(kind, value)
        } else {
            self.builder.ins().uextend(kind, value)
        }
    }

    /// Reads the frame for the first lane of a group that is in `mask`; for the last lane of the group, if none is.
    fn read_lane(&mut self, place: u32, bytes: u8, mask: Value, group: usize, groups: usize) -> Value {
        let lanes = LANES / groups;
        let ones = ((1_u64 << lanes) - 1) << (group * lanes);
        let last = 1_i64 << ((group + 1) * lanes - 1);
        let kept = self.builder.ins().band_imm_s(mask, i64::from(ones as u32 as i32));
        let some = self.builder.ins().bor_imm_s(kept, i64::from(last as u32 as i32));
        let lane = self.builder.ins().ctz(some);
        let wide = self.builder.ins().uextend(I64, lane);
        let offset = self.builder.ins().imul_imm_s(wide, i64::from(bytes));
        let pointer = self.builder.ins().iadd(self.frame, offset);
        let element = Element { bytes, register: bytes, signed: false };
        self.load_scalar(pointer, place as usize, element)
    }

    /// Elements one after the other.
    fn load_sequence(&mut self, pc: u32, element: Element, addresses: &[Value], before: &Set) -> Done {
        let instr = self.flow.instr(pc);
        let size = u64::from(element.bytes);
        if let Some(hosts) = self.certain_groups(pc, addresses, size as i64, size, before)? {
            let node = self.node(Node::Memory(hosts), element.register);
            self.pending.push(node);
            self.define(pc, self.flow.register(instr.ops[0]), Held::Node(node));
            return Ok(());
        }
        let lanes = LANES / addresses.len();
        let (ok, hosts) = self.groups(pc, addresses, size as i64, size);
        let mask = self.mask(pc);
        self.before_handler(pc);
        let (cold, label) = (self.builder.create_block(), self.builder.create_block());
        let pointers: Vec<Value> =
            hosts.iter().map(|_| self.builder.append_block_param(label, I64)).collect();
        let hosts: Vec<BlockArg> = hosts.into_iter().map(BlockArg::Value).collect();
        if polls(instr) {
            let fast = self.builder.create_block();
            self.builder.ins().brif(ok, fast, &[], cold, &[]);
            self.go_on_in(fast);
            self.poll();
            self.builder.ins().jump(label, &hosts);
        } else {
            self.builder.ins().brif(ok, label, &hosts, cold, &[]);
        }
        let mark = self.enter_cold(cold);
        self.handle(pc, mask)?;
        let place = instr.ops[0];
        let slot = self.slot(element.bytes);
        let start = match slot {
            Some(slot) => {
                let copy = self.builder.ins().stack_addr(I64, slot, 0);
                for chunk in 0..CHUNKS {
                    let offset = chunk * CHUNK_LANES * usize::from(element.bytes);
                    let frame = self.frame;
                    let value = self.load_chunk(frame, place as usize + offset, element.bytes);
                    self.store_chunk(value, copy, offset, element.bytes);
                }
                copy
            }
            None => self.builder.ins().iadd_imm_s(self.frame, i64::from(place)),
        };
        let own: Vec<BlockArg> = (0..pointers.len())
            .map(|group| {
                let offset = group * lanes * usize::from(element.bytes);
                self.builder.ins().iadd_imm_s(start, offset as i64).into()
            })
            .collect();
        self.builder.ins().jump(label, &own);
        self.leave_cold(mark);
        self.go_on_in(label);
        let register = self.flow.register(place);
        let node = self.node(Node::Memory(pointers), element.register);
        if slot.is_none() {
            self.readers[register].push(node);
        }
        if polls(instr) {
            // Before what follows in the program, which may be reads of what this one waits for.
            self.force(node);
        } else {
            self.pending.push(node);
        }
        self.define(pc, register, Held::Node(node));
        Ok(())
    }

    /// Reserves room on the stack for a value that a handler has loaded. The register's own place may soon be another
    /// register's, and would have to be read and kept before.
    fn slot(&mut self, bytes: u8) -> Option<StackSlot> {
        self.slots += 1;
        (self.slots <= MAX_SLOTS).then(|| {
            let size = LANES as u32 * u32::from(bytes);
            self.builder.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 4))
        })
    }

    pub(super) fn store(&mut self, pc: u32, element: Element, before: &Set) -> Done {
        let instr = self.flow.instr(pc);
        if !kinds::is_plain(instr) {
            return self.call(pc, before);
        }
        let held = self.operand(instr.ops[4], address_bytes(instr))?;
        let wide = element.bytes == element.register && aux::count(instr.aux) == 1;
        let addresses = match &held {
            Held::Scalars(kind, addresses) if wide && kind.stride() == Some(i64::from(element.bytes)) => {
                addresses
            }
            _ if address_bytes(instr) == 4 && aux::place(instr.aux) != Place::Shared => {
                return self.call(pc, before);
            }
            _ => return self.store_each(pc, element, &held),
        };
        let size = u64::from(element.bytes);
        self.force_memory();
        let held = self.operand(instr.ops[0], element.register)?;
        let data = self.as_node(&held, element.register);
        if let Some(hosts) = self.certain_groups(pc, addresses, size as i64, size, before)? {
            self.store_sequence(data, &hosts, element);
            return Ok(());
        }
        self.force(data);
        let (ok, hosts) = self.groups(pc, addresses, size as i64, size);
        let mask = self.mask(pc);
        let full = self.builder.ins().icmp_imm_s(IntCC::Equal, mask, -1);
        let ok = self.builder.ins().band(ok, full);
        let ways = self.choose_way(pc, ok);
        self.store_sequence(data, &hosts, element);
        self.join_ways(pc, mask, ways)
    }

    /// Stores a node's lanes one after the other, from a pointer for each group on.
    fn store_sequence(&mut self, data: NodeId, hosts: &[Value], element: Element) {
        let lanes = LANES / hosts.len();
        for chunk in 0..CHUNKS {
            let (group, first) = (chunk * CHUNK_LANES / lanes, chunk * CHUNK_LANES % lanes);
            let value = self.chunk(data, chunk);
            self.store_chunk(value, hosts[group], first * usize::from(element.bytes), element.bytes);
        }
    }

    /// Before a branch to code that may execute the instruction by its handler: nothing that is still to be read of the
    /// frame may be where operands go.
    pub(super) fn before_handler(&mut self, pc: u32) {
        let flow = self.flow;
        for (register, _) in flow.mentions(pc) {
            self.force_register(register);
        }
    }

    /// Executes the instruction by its handler for the lanes in `mask`, in a cold block, and ends in a new one. The
    /// handler of a load or store continues or faults.
    pub(super) fn handle(&mut self, pc: u32, mask: Value) -> Done {
        let flow = self.flow;
        for (register, written) in flow.mentions(pc) {
            if !written {
                self.flush(register)?;
            }
        }
        let (call, label) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(mask, call, &[], label, &[]);
        self.go_on_in(call);
        let result = self.call_handler(pc, mask);
        let fault = self.builder.create_block();
        self.builder.ins().brif(result, fault, &[], label, &[]);
        self.go_on_in(fault);
        self.builder.set_cold_block(fault);
        self.leave(crate::native::entry::Code::Handler, pc, &Set::default(), Some(result))?;
        self.go_on_in(label);
        Ok(())
    }

    /// Parameters of the kernel.
    pub(super) fn load_params(&mut self, pc: u32, element: Element) -> Done {
        let instr = self.flow.instr(pc);
        let params = self.view_field(I64, std::mem::offset_of!(View, params));
        for part in 0..aux::count(instr.aux) {
            let offset = usize::try_from(instr.imm).map_err(|_| Untranslatable("parameter"))?;
            let offset = offset + part * usize::from(element.bytes);
            let value = self.load_scalar(params, offset, element);
            if instr.ops[part] & CONSTANT != 0 {
                return Err(Untranslatable("constant destination"));
            }
            let register = self.flow.register(instr.ops[part]);
            self.define(pc, register, Held::Scalars(Kind::Uniform, vec![value]));
        }
        Ok(())
    }
}
