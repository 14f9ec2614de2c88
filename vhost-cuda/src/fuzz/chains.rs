// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptor chains of a hostile guest kernel, from the available ring to the checked request, and the reply.

use std::sync::Arc;

use vhost_cuda_choices::Choices;
use vhost_cuda_common::link::{MAX_BULK_BYTES, MAX_ENTRIES, MAX_PAYLOAD_BYTES};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, FLAG_READ, OP_CALL, OP_SHARE, PAGE_BYTES, REPLY_OK, RequestHeader,
};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryBackend};
use zerocopy::IntoBytes;

use crate::guest::memory::{Memory, SharedMemory, Snapshot};
use crate::guest::request::{self, Request};
use crate::guest::ring::{Ring, Vring};

const QUEUE_SIZE: u16 = 32;
/// Addresses that the guest's kernel uses for the parts of the queue, indirect tables and requests.
const TABLE: u64 = 0;
const AVAIL: u64 = 0x400;
const USED: u64 = 0x600;
const INDIRECT: u64 = 0x1000;
const REQUEST: u64 = 0x2000;
/// The number of bytes that an input can change. All of them are cleared afterwards.
const CHANGED: u64 = 0x8000;
/// Two regions with a hole between them, and one that ends at the last address.
const REGIONS: [(GuestAddress, usize); 3] = [
    (GuestAddress(0), 0x20000),
    (GuestAddress(0x30000), 0x10000),
    (GuestAddress(0u64.wrapping_sub(0x10000)), 0xf000),
];

struct Guest {
    memory: SharedMemory,
    vring: Vring,
}

thread_local! {
    static GUEST: Guest = {
        let memory = SharedMemory::new(Memory::from_ranges(&REGIONS).expect("they do not overlap"));
        let vring = VringRwLock::new(memory.clone(), QUEUE_SIZE).expect("a queue");
        Guest { memory, vring }
    };
}

/// An input is a byte, which decides whether the rest is the queue's memory itself, or generates chains.
pub fn run(data: &[u8]) {
    GUEST.with(|guest| {
        let memory = guest.memory.memory();
        let mut choices = Choices::of(data);
        let heads =
            if choices.byte() & 1 == 0 { raw(&memory, &mut choices) } else { made(&memory, &mut choices) };
        serve(guest, &memory, heads);
        memory.write_slice(&[0; CHANGED as usize], GuestAddress(0)).expect("it is there");
    });
}

/// Uses the input as the queue's memory.
fn raw(memory: &Memory, choices: &mut Choices<'_>) -> u16 {
    let heads = u16::from_le_bytes(choices.array()) % 8;
    let bytes = choices.bytes(CHANGED as usize);
    // The used ring belongs to the device.
    memory.write_slice(bytes, GuestAddress(0)).expect("it is there");
    heads
}

/// Generates descriptors that resemble those of a good chain.
fn made(memory: &Memory, choices: &mut Choices<'_>) -> u16 {
    let count = choices.byte() % QUEUE_SIZE as u8;
    let request = request(choices);
    memory.write_slice(&request, GuestAddress(REQUEST)).expect("it is there");
    let table =
        |index: u64, indirect: bool| if indirect { INDIRECT + 16 * index } else { TABLE + 16 * index };
    let mut at = 0;
    for index in 0..u64::from(count) {
        let kind = choices.byte();
        let left = (request.len() as u32).saturating_sub(at);
        let (addr, len) = match kind & 7 {
            // The next part of the request, or all of the rest.
            0..=2 => {
                let len = if kind & 8 == 0 { left } else { left.min(u32::from(choices.byte())) };
                at += len;
                (REQUEST + u64::from(at - len), len)
            }
            3 | 4 => (0x10000 + 0x1000 * index, 64 + choices.number() as u32 % 0x11000),
            5 => (INDIRECT + choices.number() % 64, 16 * u32::from(choices.byte() & 15)),
            6 => (choices.number(), u32::from(choices.byte())),
            _ => (choices.number(), choices.number() as u32),
        };
        // NEXT except for the last one; WRITE after the request; INDIRECT sometimes.
        let next = u16::from(index + 1 < u64::from(count) || kind & 0x10 != 0);
        let write = u16::from(matches!(kind & 7, 3 | 4) || kind & 0xe0 == 0xe0) << 1;
        let indirect = u16::from(kind & 7 == 5) << 2;
        let link = if kind & 0xe0 == 0x20 { choices.byte() & 63 } else { index as u8 + 1 };
        let mut descriptor = Vec::with_capacity(16);
        descriptor.extend_from_slice(&addr.to_le_bytes());
        descriptor.extend_from_slice(&len.to_le_bytes());
        descriptor.extend_from_slice(&(next | write | indirect).to_le_bytes());
        descriptor.extend_from_slice(&u16::from(link).to_le_bytes());
        for place in [false, true] {
            memory.write_slice(&descriptor, GuestAddress(table(index, place))).expect("it is there");
        }
    }
    let heads = u16::from(choices.byte() % 4) + 1;
    for head in 0..heads {
        let element = u16::from(choices.byte() % (QUEUE_SIZE as u8 + 2)).saturating_sub(2);
        memory.write_obj(element, GuestAddress(AVAIL + 4 + 2 * u64::from(head))).expect("it is there");
    }
    memory.write_obj(heads, GuestAddress(AVAIL + 2)).expect("it is there");
    heads
}

/// Generates a request whose lengths are consistent, unless the input changes it.
fn request(choices: &mut Choices<'_>) -> Vec<u8> {
    let op = u32::from(choices.byte() % 10);
    let (payload, ins, outs) = (choices.byte(), choices.byte() & 7, choices.byte() & 7);
    let keep = choices.byte();
    let mut header = RequestHeader {
        op,
        flags: if keep & 1 != 0 { FLAG_KEEP } else { 0 } | if keep & 8 != 0 { FLAG_READ } else { 0 },
        session: u64::from(keep & 2),
        tag: u64::from(keep & 4),
        payload_bytes: payload.into(),
        in_entries: ins.into(),
        out_entries: outs.into(),
        ..RequestHeader::default()
    };
    match keep >> 4 {
        1 => header.payload_bytes = choices.number() as u32,
        2 => header.in_entries = choices.number() as u32,
        3 => header.out_entries = choices.number() as u32,
        4 => header.flags = choices.number() as u32,
        5 => header.reserved = choices.number() as u32,
        6 => header.session = choices.number(),
        _ => {}
    }
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(bytes.len() + usize::from(payload), 7);
    for _ in 0..ins + outs {
        let kind = choices.byte();
        let addr = if kind & 1 == 0 { u64::from(choices.byte()) * 0x800 } else { choices.number() };
        let length = if kind & 2 == 0 { 0x1000 * u32::from(kind >> 4) } else { choices.number() as u32 };
        bytes.extend_from_slice(&addr.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&u32::from(kind & 0xc == 0xc).to_le_bytes());
    }
    bytes.truncate(0x3000);
    bytes
}

/// Takes chains as the front-end does, and answers them.
fn serve(guest: &Guest, memory: &Snapshot, heads: u16) {
    let (vring, ring) = (&guest.vring, Arc::<Ring>::default());
    vring.set_queue_size(QUEUE_SIZE);
    vring.set_queue_info(TABLE, AVAIL, USED).expect("the addresses are aligned");
    vring.set_queue_next_avail(0);
    vring.set_queue_ready(true);
    vring.get_mut().get_queue_mut().set_next_used(0);
    ring.resume(vring);
    ring.pause();
    for _ in 0..heads.min(QUEUE_SIZE) {
        let next = match vring.get_mut().get_queue_mut().iter(memory.clone()) {
            Ok(mut chains) => chains.next(),
            Err(_) => break,
        };
        let Some(chain) = next else { break };
        let head = chain.head_index();
        let (request, slot) = request::parse(memory, chain);
        // As another daemon reads it that has got the guest.
        let again = request::descriptors(memory, TABLE, QUEUE_SIZE, head).into_iter();
        let again = request::parse(memory, again);
        assert!(request.is_err() || format!("{again:?}") == format!("{:?}", (&request, &slot)));
        let room = slot.payload_room();
        assert!(room <= MAX_PAYLOAD_BYTES);
        if let Ok(request) = &request {
            check(memory, request);
        }
        let chain = ring.accept(vring, memory.clone(), head, slot);
        chain.complete(REPLY_OK, &vec![1; room.min(300) as usize]);
    }
    ring.stop(0);
}

/// Checks the properties on which the later steps rely.
fn check(memory: &Memory, request: &Request) {
    assert!(request.payload.len() <= MAX_PAYLOAD_BYTES as usize);
    assert_eq!(request.payload.len(), request.header.payload_bytes as usize);
    let kept = request.header.op == OP_SHARE || request.header.flags & FLAG_KEEP != 0;
    assert!(!kept || matches!(request.header.op, OP_CALL | OP_SHARE));
    assert!(request.header.flags & FLAG_READ == 0 || request.header.flags & FLAG_KEEP != 0);
    for entries in [&request.in_entries, &request.out_entries] {
        assert!(entries.len() <= MAX_ENTRIES as usize);
        assert!(entries.iter().map(|entry| u64::from(entry.bytes)).sum::<u64>() <= MAX_BULK_BYTES);
        for entry in entries {
            assert!(entry.bytes > 0 && entry.addr.checked_add(u64::from(entry.bytes)).is_some());
            assert!(memory.check_range(GuestAddress(entry.addr), entry.bytes as usize), "{entry:?}");
        }
    }
    if kept {
        let mut all = request.out_entries.iter();
        assert!(all.all(|entry| entry.addr % PAGE_BYTES == 0 && u64::from(entry.bytes) % PAGE_BYTES == 0));
    }
}
