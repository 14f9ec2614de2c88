// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Malformed descriptor chains and rings.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::daemon::Daemon;
use vhost_cuda_tests::frontend::{BUFFER_BYTES, FakeFrontend, HIGH, HIGH_BYTES, LOW, LOW_BYTES, PATIENCE};
use vhost_cuda_tests::ring::{Descriptor, INDIRECT, NEXT, QUEUE_SIZE, WRITE};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::transport::{
    Hello, OP_HELLO, PROTOCOL_VERSION, REPLY_INVALID, REPLY_OK, ReplyHeader, RequestHeader,
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::{FromBytes, IntoBytes};

use crate::{Target, attack};

/// For chains that the device may drop.
const MOMENT: Duration = Duration::from_millis(300);
const REPLY_BYTES: u32 = 64;
const FEATURE_INDIRECT: u64 = 1 << 28;

pub fn collect(suite: &mut Suite) {
    attack(suite, "chains::pieces_of_any_size_are_joined", pieces);
    attack(suite, "chains::missing_parts", missing_parts);
    attack(suite, "chains::empty_descriptors", empty_descriptors);
    attack(suite, "chains::outside_memory", outside_memory);
    attack(suite, "chains::wrong_order", wrong_order);
    attack(suite, "chains::loops", loops);
    attack(suite, "chains::indices_out_of_range", indices_out_of_range);
    attack(suite, "chains::indirect_tables", indirect_tables);
    attack(suite, "chains::replies_that_do_not_fit", replies_that_do_not_fit);
    attack(suite, "chains::requests_over_their_own_ring", over_the_ring);
}

fn hello() -> Vec<u8> {
    let payload = Hello { protocol_version: PROTOCOL_VERSION };
    let header =
        RequestHeader { op: OP_HELLO, payload_bytes: size_of::<Hello>() as u32, ..Default::default() };
    [header.as_bytes(), payload.as_bytes()].concat()
}

/// A front-end with a good hello in the readable buffer of slot 0.
fn armed(target: &Target, features: u64) -> Result<(FakeFrontend, u64, u64)> {
    let frontend = FakeFrontend::connect_with(&target.daemon.socket(), features)?;
    let (from, to) = (frontend.readable(0, 0), frontend.writable(0, 0));
    frontend.memory.write_slice(&hello(), GuestAddress(from))?;
    Ok((frontend, from, to))
}

fn read(addr: u64, len: usize) -> Descriptor {
    Descriptor { addr, len: len as u32, ..Default::default() }
}

fn write(addr: u64, len: u32) -> Descriptor {
    Descriptor { addr, len, flags: WRITE, next: 0 }
}

fn expect(frontend: &mut FakeFrontend, what: &str, status: u32) -> Result<()> {
    let reply = frontend.reply(0, PATIENCE)?.with_context(|| format!("{what}: no reply"))?;
    ensure!(reply.status == status, "{what}: status {}, not {status}", reply.status);
    Ok(())
}

/// The chain comes back, untouched: there was no room for a reply.
fn expect_unanswered(frontend: &mut FakeFrontend, what: &str) -> Result<()> {
    let used = frontend.rings[0].next_used(PATIENCE)?.with_context(|| format!("{what}: not given back"))?;
    ensure!(used.bytes == 0, "{what}: {used:?}");
    Ok(())
}

/// The queue still works.
fn expect_service(frontend: &mut FakeFrontend, what: &str) -> Result<()> {
    let reply = frontend.hello(PROTOCOL_VERSION).with_context(|| format!("after {what}"))?;
    ensure!(reply.status == REPLY_OK, "after {what}: status {}", reply.status);
    Ok(())
}

fn pieces(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let bytes = hello().len();
    for cut in 1..bytes {
        let chain =
            [read(from, cut), read(from + cut as u64, bytes - cut), write(to, 3), write(to + 3, REPLY_BYTES)];
        frontend.offer_chain(0, 0, &chain)?;
        expect(&mut frontend, &format!("cut at {cut}"), REPLY_OK)?;
    }
    Ok(())
}

fn missing_parts(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let bytes = hello().len();
    frontend.offer_chain(0, 0, &[read(from, bytes)])?;
    expect_unanswered(&mut frontend, "nothing to write into")?;
    frontend.offer_chain(0, 0, &[write(to, REPLY_BYTES)])?;
    expect(&mut frontend, "nothing to read", REPLY_INVALID)?;
    for short in 1..bytes {
        frontend.offer_chain(0, 0, &[read(from, short), write(to, REPLY_BYTES)])?;
        expect(&mut frontend, &format!("{short} of {bytes} bytes"), REPLY_INVALID)?;
    }
    frontend.offer_chain(0, 0, &[read(from, bytes + 1), write(to, REPLY_BYTES)])?;
    expect(&mut frontend, "one byte too many", REPLY_INVALID)?;
    expect_service(&mut frontend, "missing parts")
}

fn empty_descriptors(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let bytes = hello().len();
    frontend.offer_chain(0, 0, &[read(from, bytes), write(to, 0)])?;
    expect_unanswered(&mut frontend, "an empty writable one")?;
    // The rest after the empty descriptor may be ignored, so the reply may have no place.
    for chain in [
        &[read(from, 0), write(to, REPLY_BYTES)][..],
        &[read(from, bytes), read(from, 0), write(to, REPLY_BYTES)],
        &[read(from, bytes), write(to, REPLY_BYTES), write(to, 0)],
    ] {
        frontend.offer_chain(0, 0, chain)?;
        let used = frontend.rings[0].next_used(PATIENCE)?.context("an empty one: not given back")?;
        ensure!(used.bytes == 0 || used.bytes as usize == size_of::<ReplyHeader>(), "{used:?}");
    }
    expect_service(&mut frontend, "empty descriptors")
}

fn outside_memory(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let bytes = hello().len();
    let bad: [(u64, u32); 10] = [
        (0, 44),
        (LOW - 1, 44),
        (LOW + LOW_BYTES - 10, 44),
        (LOW + LOW_BYTES, 44),
        (HIGH - 44, 44),
        (HIGH + HIGH_BYTES - 1, 44),
        (u64::MAX, 44),
        (u64::MAX - 43, 44),
        (LOW, u32::MAX),
        (1 << 63, 44),
    ];
    for (addr, len) in bad {
        let what = format!("{len} bytes at {addr:#x}");
        frontend.offer_chain(
            0,
            0,
            &[Descriptor { addr, len, ..Default::default() }, write(to, REPLY_BYTES)],
        )?;
        // The device may stop at the first bad descriptor and see no room for a reply.
        let used =
            frontend.rings[0].next_used(PATIENCE)?.with_context(|| format!("{what}: not given back"))?;
        if used.bytes > 0 {
            let status: u32 = frontend.memory.read_obj(GuestAddress(to))?;
            ensure!(status == REPLY_INVALID, "{what}: status {status}");
        }
        frontend.offer_chain(0, 0, &[read(from, bytes), write(addr, len)])?;
        expect_unanswered(&mut frontend, &format!("a reply into {what}"))?;
    }
    expect_service(&mut frontend, "addresses outside memory")
}

fn wrong_order(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    frontend.offer_chain(0, 0, &[write(to, REPLY_BYTES), read(from, hello().len())])?;
    expect(&mut frontend, "writable first", REPLY_INVALID)?;
    frontend.offer_chain(0, 0, &[read(from, 40), write(to, REPLY_BYTES), read(from + 40, 4)])?;
    expect(&mut frontend, "readable behind writable", REPLY_INVALID)?;
    expect_service(&mut frontend, "wrong order")
}

fn loops(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let cycles: [&[(u64, u16)]; 3] =
        [&[(from, 0)], &[(from, 1), (from, 0)], &[(from, 1), (from, 2), (from, 1)]];
    for (number, cycle) in cycles.iter().enumerate() {
        for flags in [NEXT, NEXT | WRITE] {
            for (index, &(addr, next)) in (0u16..).zip(*cycle) {
                let addr = if flags & WRITE != 0 { to } else { addr };
                frontend.rings[0].describe(index, Descriptor { addr, len: 1, flags, next })?;
            }
            frontend.rings[0].offer(0)?;
            frontend.rings[0].kick()?;
            let used = frontend.rings[0].next_used(PATIENCE)?;
            let used = used.with_context(|| format!("loop {number}: not given back"))?;
            ensure!(u64::from(used.bytes) <= BUFFER_BYTES, "loop {number}: {used:?}");
        }
    }
    expect_service(&mut frontend, "loops")
}

fn indices_out_of_range(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    // A next that is no descriptor: the chain just ends there, in an error.
    let bad = Descriptor { addr: from, len: 40, flags: NEXT, next: QUEUE_SIZE + 5 };
    frontend.rings[0].describe(0, bad)?;
    frontend.rings[0].offer(0)?;
    frontend.rings[0].kick()?;
    expect_unanswered(&mut frontend, "a next out of range")?;
    expect_service(&mut frontend, "a next out of range")?;
    // An invalid head: there is no chain to return.
    for head in [QUEUE_SIZE, u16::MAX] {
        frontend.rings[0].offer(head)?;
        frontend.rings[0].kick()?;
        let _ = frontend.rings[0].next_used(MOMENT)?;
    }
    // More available than the queue is long. Whatever becomes of this queue, others are served (see `attack`).
    frontend.rings[0].describe(0, Descriptor { addr: from, len: 44, flags: NEXT, next: 1 })?;
    frontend.rings[0].describe(1, write(to, REPLY_BYTES))?;
    for jump in [QUEUE_SIZE + 1, 0x8000, u16::MAX] {
        frontend.rings[0].announce(jump)?;
        frontend.rings[0].kick()?;
        let _ = frontend.rings[0].next_used(MOMENT)?;
    }
    // The other queue of the same device, too.
    if frontend.config.num_request_queues > 1 {
        frontend.submit(1, 0, &hello(), REPLY_BYTES)?;
        let reply = frontend.reply(1, PATIENCE)?.context("The other queue is stuck")?;
        ensure!(reply.status == REPLY_OK, "the other queue: status {}", reply.status);
    }
    drop(frontend);
    // A thread that reads the queue again and again never ends.
    target.daemon.wait_until("the connection's threads have ended", PATIENCE, |daemon| {
        threads(daemon).is_ok_and(|names| names.iter().all(|name| !name.starts_with("connection-")))
    })
}

/// The names of the daemon's threads.
fn threads(daemon: &Daemon) -> Result<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?;
    tasks.map(|task| Ok(fs::read_to_string(task?.path().join("comm"))?)).collect()
}

fn indirect_tables(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, FEATURE_INDIRECT)?;
    let table = frontend.readable(0, 1);
    let bytes = hello().len() as u32;
    let good = [
        Descriptor { addr: from, len: bytes, flags: NEXT, next: 1 },
        Descriptor { addr: to, len: REPLY_BYTES, flags: WRITE, next: 0 },
    ];
    let nested = [
        Descriptor { addr: table, len: 32, flags: INDIRECT, next: 0 },
        Descriptor { addr: to, len: REPLY_BYTES, flags: WRITE, next: 0 },
    ];
    let leaves = [Descriptor { next: 9, ..good[0] }, good[1]];
    let cycle = [Descriptor { next: 0, ..good[0] }, good[1]];
    let tables: [(&str, [Descriptor; 2], u64, u32, bool); 8] = [
        ("a good table", good, table, 32, true),
        ("no entries", good, table, 0, false),
        ("half an entry", good, table, 24, false),
        ("a table in a table", nested, table, 32, false),
        ("a next outside the table", leaves, table, 32, false),
        ("a loop in the table", cycle, table, 32, false),
        ("a table outside memory", good, HIGH - 16, 32, false),
        ("a table of 4 GiB", good, table, !15, false),
    ];
    for (what, entries, addr, len, good) in tables {
        for (index, entry) in (0u64..).zip(entries) {
            frontend.memory.write_slice(&entry.bytes(), GuestAddress(table + 16 * index))?;
        }
        frontend.rings[0].describe(0, Descriptor { addr, len, flags: INDIRECT, next: 0 })?;
        frontend.rings[0].offer(0)?;
        frontend.rings[0].kick()?;
        let used =
            frontend.rings[0].next_used(PATIENCE)?.with_context(|| format!("{what}: not given back"))?;
        if used.bytes > 0 || good {
            let bytes: u64 = frontend.memory.read_obj(GuestAddress(to))?;
            let header = ReplyHeader::read_from_bytes(&bytes.to_le_bytes()).ok().context("A short header")?;
            let status = if good { REPLY_OK } else { REPLY_INVALID };
            ensure!(header.status == status, "{what}: status {}, not {status}", header.status);
        }
    }
    expect_service(&mut frontend, "indirect tables")
}

fn replies_that_do_not_fit(target: &mut Target) -> Result<()> {
    let (mut frontend, from, to) = armed(target, 0)?;
    let bytes = hello().len();
    for room in 1..size_of::<ReplyHeader>() as u32 {
        frontend.offer_chain(0, 0, &[read(from, bytes), write(to, room)])?;
        expect_unanswered(&mut frontend, &format!("{room} bytes of room"))?;
    }
    // Room for the header alone: the answer to a hello has 4 bytes more.
    frontend.offer_chain(0, 0, &[read(from, bytes), write(to, 8)])?;
    let used = frontend.rings[0].next_used(PATIENCE)?.context("8 bytes of room: not given back")?;
    ensure!(used.bytes <= 8, "8 bytes of room: {used:?}");
    expect_service(&mut frontend, "replies that do not fit")
}

/// Buffers that overlap the queue's own tables. The device may read and write any memory that it is told to, but must
/// not be confused for others.
fn over_the_ring(target: &mut Target) -> Result<()> {
    let (mut frontend, from, _) = armed(target, 0)?;
    let bytes = hello().len();
    let (table, available, used) =
        (frontend.rings[0].descriptors(), frontend.rings[0].available(), frontend.rings[0].used());
    for addr in [table, available, used] {
        frontend.offer_chain(0, 0, &[read(from, bytes), write(addr, 4096)])?;
        let _ = frontend.rings[0].next_used(MOMENT)?;
    }
    Ok(())
}
