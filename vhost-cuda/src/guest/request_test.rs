// SPDX-License-Identifier: Apache-2.0 OR MIT

use proptest::prelude::*;
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_OK};

use super::*;
use crate::guest::fixture::{FixtureGuest, INDIRECT, MEMORY_BYTES, NEXT, QUEUE_SIZE, WRITE};

const ROOM: u32 = 64;

fn call(payload: &[u8], ins: &[MemEntry], outs: &[MemEntry]) -> RequestHeader {
    RequestHeader {
        op: OP_CALL,
        session: 7,
        payload_bytes: payload.len() as u32,
        in_entries: ins.len() as u32,
        out_entries: outs.len() as u32,
        ..RequestHeader::default()
    }
}

fn entry(addr: u64, bytes: u32) -> MemEntry {
    MemEntry { addr, bytes, reserved: 0 }
}

fn refused(header: RequestHeader, payload: &[u8], ins: &[MemEntry], outs: &[MemEntry]) -> Malformed {
    let mut guest = FixtureGuest::new();
    let (request, chain) = guest.request(header, payload, ins, outs, ROOM);
    chain.complete(REPLY_INVALID, &[]);
    assert_eq!(guest.reply(0), (REPLY_INVALID, vec![]), "a reply fits, so there is one");
    request.unwrap_err()
}

#[test]
fn a_request_arrives_whole_and_its_reply_goes_back() {
    let mut guest = FixtureGuest::new();
    let (ins, outs) = ([entry(0x1000, 10), entry(0x3000, 4)], [entry(0x5000, 4096)]);
    let (request, chain) = guest.request(call(b"payload", &ins, &outs), b"payload", &ins, &outs, ROOM);
    let request = request.unwrap();
    assert_eq!(request.payload, b"payload");
    assert_eq!((request.in_entries.len(), request.out_entries.len()), (2, 1));
    assert_eq!(request.traffic(), (21, 4096));
    assert_eq!(chain.payload_room(), ROOM - 8);
    chain.complete(REPLY_OK, b"answer");
    assert_eq!(guest.used(), [(0, 14)]);
    assert_eq!(guest.reply(0), (REPLY_OK, b"answer".to_vec()));
}

#[test]
fn neighbouring_entries_are_merged() {
    let mut guest = FixtureGuest::new();
    let ins = [entry(0x1000, 4096), entry(0x2000, 100), entry(0x2064, 1), entry(0x4000, 1)];
    let (request, chain) = guest.request(call(&[], &ins, &[]), &[], &ins, &[], ROOM);
    let merged = request.unwrap().in_entries;
    assert_eq!(
        merged.iter().map(|entry| (entry.addr, entry.bytes)).collect::<Vec<_>>(),
        [(0x1000, 4197), (0x4000, 1)]
    );
    chain.complete(REPLY_OK, &[]);
}

#[test]
fn a_request_may_be_spread_over_descriptors() {
    let mut guest = FixtureGuest::new();
    let memory = guest.snapshot();
    let mut bytes = call(b"abcdef", &[], &[]).as_bytes().to_vec();
    bytes.extend_from_slice(b"abcdef");
    // One byte per descriptor, in reverse order in memory; the reply's header is in three pieces.
    let mut descriptors = Vec::new();
    for (at, byte) in bytes.iter().enumerate() {
        let addr = 0x20_0000 - at as u64;
        memory.write_slice(&[*byte], GuestAddress(addr)).unwrap();
        descriptors.push((addr, 1, 0));
    }
    descriptors.extend([(0x30_0000, 3, WRITE), (0x30_1000, 1, WRITE), (0x30_2000, 20, WRITE)]);
    let (request, chain) = guest.chain(&descriptors);
    assert_eq!(request.unwrap().payload, b"abcdef");
    chain.complete(REPLY_OK, b"xyz");
    let mut last = [0; 7];
    memory.read_slice(&mut last, GuestAddress(0x30_2000)).unwrap();
    assert_eq!(&last, &[3, 0, 0, 0, b'x', b'y', b'z']);
    assert_eq!(guest.used(), [(0, 11)]);
}

#[test]
fn headers_that_do_not_fit_are_refused() {
    let good = call(&[], &[], &[]);
    let bad = [
        RequestHeader { op: 0, ..good },
        RequestHeader { op: 99, ..good },
        RequestHeader { flags: FLAG_READ, ..good },
        RequestHeader { flags: FLAG_KEEP | 4, ..good },
        RequestHeader { reserved: 1, ..good },
        RequestHeader { tag: 1, ..good },
        RequestHeader { op: OP_HELLO, ..good },
        RequestHeader { op: OP_OPEN, session: 0, ..good },
        RequestHeader { op: OP_SHARE, ..good },
        RequestHeader { op: OP_CLOSE, flags: FLAG_KEEP, ..good },
    ];
    for header in bad {
        assert_eq!(refused(header, &[], &[], &[]), Malformed::Operation, "{header:?}");
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused() {
    let good = call(&[], &[], &[]);
    for header in [
        RequestHeader { payload_bytes: 1, ..good },
        RequestHeader { payload_bytes: MAX_PAYLOAD_BYTES + 1, ..good },
        RequestHeader { payload_bytes: u32::MAX, ..good },
        RequestHeader { in_entries: 1, ..good },
        RequestHeader { out_entries: u32::MAX, ..good },
        RequestHeader { in_entries: MAX_ENTRIES + 1, ..good },
    ] {
        assert_eq!(refused(header, &[], &[], &[]), Malformed::Length, "{header:?}");
    }
    // More payload than the header states.
    assert_eq!(refused(good, b"x", &[], &[]), Malformed::Length);
    // 65 times 1 MiB is more than 64 MiB.
    let many = [entry(0, 1 << 20); 65];
    assert_eq!(refused(call(&[], &many, &[]), &[], &many, &[]), Malformed::Length);
    let exactly = &many[..64];
    let mut guest = FixtureGuest::new();
    let (request, chain) = guest.request(call(&[], &[], exactly), &[], &[], exactly, ROOM);
    assert!(request.is_ok());
    chain.complete(REPLY_OK, &[]);
}

#[test]
fn entries_outside_memory_or_of_no_bytes_are_refused() {
    for bad in
        [entry(MEMORY_BYTES, 1), entry(MEMORY_BYTES - 1, 2), entry(u64::MAX, 1), entry(u64::MAX - 1, 8)]
    {
        assert_eq!(refused(call(&[], &[bad], &[]), &[], &[bad], &[]), Malformed::Address);
        assert_eq!(refused(call(&[], &[], &[bad]), &[], &[], &[bad]), Malformed::Address);
    }
    for bad in [entry(0x1000, 0), MemEntry { reserved: 1, ..entry(0x1000, 1) }] {
        assert_eq!(refused(call(&[], &[bad], &[]), &[], &[bad], &[]), Malformed::Length);
    }
}

#[test]
fn kept_entries_are_whole_pages() {
    let keep = |outs: &[MemEntry]| RequestHeader { flags: FLAG_KEEP, tag: 3, ..call(&[], &[], outs) };
    for bad in [entry(0x1001, 4096), entry(0x1000, 4095)] {
        assert_eq!(refused(keep(&[bad]), &[], &[], &[bad]), Malformed::Length);
        let share = RequestHeader { op: OP_SHARE, flags: 0, ..keep(&[bad]) };
        assert_eq!(refused(share, &[], &[], &[bad]), Malformed::Length);
    }
    let mut guest = FixtureGuest::new();
    let outs = [entry(0x1000, 8192)];
    let (request, chain) = guest.request(keep(&outs), &[], &[], &outs, ROOM);
    assert_eq!(request.unwrap().header.tag, 3);
    chain.complete(REPLY_OK, &[]);
    let read = RequestHeader { flags: FLAG_KEEP | FLAG_READ, ..keep(&outs) };
    let (request, chain) = guest.request(read, &[], &[], &outs, ROOM);
    assert_eq!(request.unwrap().header.flags, FLAG_KEEP | FLAG_READ);
    chain.complete(REPLY_OK, &[]);
}

#[test]
fn chains_that_are_none_are_answered_with_what_room_they_have() {
    let answer = |descriptors: &[Descriptor]| {
        let mut guest = FixtureGuest::new();
        let (request, chain) = guest.raw_chain(descriptors);
        chain.complete(REPLY_INVALID, &[]);
        (request.unwrap_err(), guest.used())
    };
    let reply = |flags, next| Descriptor::new(0x20_0000, ROOM, WRITE | flags, next);
    let readable = |bytes, flags, next| Descriptor::new(0x10_0000, bytes, flags, next);
    // Loops: to itself, and back to the head after a writable part.
    assert_eq!(answer(&[readable(40, NEXT, 0)]), (Malformed::Chain, vec![(0, 0)]));
    assert_eq!(answer(&[readable(40, NEXT, 1), reply(NEXT, 0)]), (Malformed::Order, vec![(0, 8)]));
    assert_eq!(answer(&[readable(40, NEXT, 1), reply(NEXT, 1)]).0, Malformed::Chain);
    // Outside of the table.
    assert_eq!(answer(&[readable(40, NEXT, QUEUE_SIZE)]), (Malformed::Chain, vec![(0, 0)]));
    // Empty descriptors, no room, outside of memory.
    assert_eq!(answer(&[readable(0, NEXT, 1), reply(0, 0)]), (Malformed::Empty, vec![(0, 0)]));
    assert_eq!(answer(&[readable(40, 0, 0)]), (Malformed::Operation, vec![(0, 0)]));
    assert_eq!(answer(&[Descriptor::new(MEMORY_BYTES, 8, WRITE, 0)]), (Malformed::Address, vec![(0, 0)]));
    assert_eq!(
        answer(&[Descriptor::new(u64::MAX - 3, u32::MAX, WRITE, 0)]),
        (Malformed::Address, vec![(0, 0)])
    );
    // An indirect table that does not exist, has a wrong size, or lies inside another one.
    assert_eq!(answer(&[Descriptor::new(u64::MAX, 16, INDIRECT, 0)]), (Malformed::Chain, vec![(0, 0)]));
    assert_eq!(answer(&[Descriptor::new(0x1000, 15, INDIRECT, 0)]), (Malformed::Chain, vec![(0, 0)]));
}

#[test]
fn a_reply_that_does_not_fit_is_not_written() {
    let mut guest = FixtureGuest::new();
    let (request, chain) = guest.request(call(&[], &[], &[]), &[], &[], &[], 10);
    assert!(request.is_ok());
    assert_eq!(chain.payload_room(), 2);
    chain.complete(REPLY_OK, b"abc");
    assert_eq!(guest.used(), [(0, 0)]);
    let (request, chain) = guest.request(call(&[], &[], &[]), &[], &[], &[], 7);
    assert_eq!(request.unwrap_err(), Malformed::Length);
    chain.complete(REPLY_INVALID, &[]);
    assert_eq!(guest.used()[1].1, 0);
}

fn any_descriptor() -> impl Strategy<Value = Descriptor> {
    let addr = prop_oneof![0..MEMORY_BYTES, Just(0u64), any::<u64>(), (0..64u64).prop_map(|page| page * 16)];
    let len = prop_oneof![0..200u32, Just(16), Just(40), any::<u32>()];
    (addr, len, 0..8u16, 0..QUEUE_SIZE + 2)
        .prop_map(|(addr, len, flags, next)| Descriptor::new(addr, len, flags, next))
}

proptest! {
    /// A chain is answered once whatever a guest writes into the table and its memory. A request that is accepted
    /// satisfies the limits.
    #[test]
    fn hostile_chains_are_answered(
        descriptors in prop::collection::vec(any_descriptor(), 1..QUEUE_SIZE as usize),
        memory in prop::collection::vec(any::<u32>(), 0..256),
    ) {
        let mut guest = FixtureGuest::new();
        for at in [0x10_0000, 0x20_0000] {
            guest.snapshot().write_slice(memory.as_bytes(), GuestAddress(at)).unwrap();
        }
        let (request, chain) = guest.raw_chain(&descriptors);
        if let Ok(request) = &request {
            prop_assert!(request.payload.len() <= MAX_PAYLOAD_BYTES as usize);
            let (bytes_in, bytes_out) = request.traffic();
            prop_assert!(bytes_in <= MAX_BULK_BYTES + u64::from(MAX_PAYLOAD_BYTES) && bytes_out <= MAX_BULK_BYTES);
        }
        let room = chain.payload_room();
        chain.complete(REPLY_INVALID, &vec![1; room as usize]);
        prop_assert_eq!(guest.used().len(), 1);
    }

    /// A well-formed chain with any header and any entries.
    #[test]
    fn hostile_headers_are_answered(
        op in 0..8u32, flags in 0..3u32, session in any::<u64>(),
        counts in (0..70000u32, 0..4u32, 0..4u32),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (payload_bytes, in_entries, out_entries) = counts;
        let header = RequestHeader { op, flags, session, payload_bytes, in_entries, out_entries, reserved: 0, tag: 0 };
        let mut guest = FixtureGuest::new();
        let (request, chain) = guest.request(header, &rest, &[], &[], ROOM);
        if let Ok(request) = request {
            let entries = (in_entries + out_entries) as usize * size_of::<MemEntry>();
            prop_assert_eq!(request.payload.len() + entries, rest.len());
        }
        chain.complete(REPLY_INVALID, &[]);
        prop_assert_eq!(guest.reply(0).0, REPLY_INVALID);
    }
}
