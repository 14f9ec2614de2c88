// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Lanes: data that a guest process writes into memory that its worker reads at the same time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vhost_cuda_tests::frontend::{CallParts, CallResult, FakeFrontend, HIGH, PATIENCE, parse_result};
use vhost_cuda_tests::suite::Suite;
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, CallHeader, Opcode, RESULT_EARLIER};
use virtio_cuda_protocol::transport::{
    MemEntry, OP_CALL, OP_CLOSE, OP_SHARE, REPLY_INVALID, REPLY_OK, REPLY_SESSION_LOST, RequestHeader,
};
use virtio_cuda_ring::layout::{RECORDS_BYTES, RECORDS_OFFSET, record_bytes};
use virtio_cuda_ring::{Kind, LANE_BYTES, LaneMemory, MAX_REPLY_BYTES, Producer};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use zerocopy::IntoBytes;

use crate::{Target, attack};

/// The tag of the shared area.
const TAG: u64 = 4096;
const OTHER_TAG: u64 = 8192;
/// Place of the second lane.
const OTHER_LANE: u64 = HIGH + LANE_BYTES as u64;
/// A thread other than that of most calls here.
const OTHER: u32 = 77;
/// Bytes of a record that waits for another lane.
const RECORD: u64 = record_bytes(size_of::<CallHeader>() + 12) as u64;
/// Time in which a call that hangs would have been answered.
const SOON: Duration = Duration::from_millis(300);

pub fn collect(suite: &mut Suite) {
    attack(suite, "lanes::good", good);
    attack(suite, "lanes::errors_are_the_programs", errors_are_the_programs);
    attack(suite, "lanes::corrupt", corrupt);
    attack(suite, "lanes::areas", areas);
    attack(suite, "lanes::malformed_calls", malformed_calls);
    attack(suite, "lanes::any_numbers", any_numbers);
    attack(suite, "lanes::places", places);
    attack(suite, "lanes::positions_that_cannot_come", positions_that_cannot_come);
    attack(suite, "lanes::positions_that_never_come", positions_that_never_come);
    attack(suite, "lanes::circles", circles);
    attack(suite, "lanes::waits", waits);
}

/// A session with a lane, and the guest's end of the lane.
struct Guest {
    frontend: FakeFrontend,
    session: u64,
    producer: Producer,
}

impl Guest {
    fn open(target: &Target) -> Result<Self> {
        let mut frontend = target.connect()?;
        let session = frontend.open_session()?;
        ensure!(share(&mut frontend, session, TAG, HIGH, LANE_BYTES as u32)? == REPLY_OK, "share");
        let lane = frontend.call(session, &session_lane(TAG, 0, 0))?;
        ensure!(lane.result == 0, "session_lane answered {}", lane.result);
        let base = frontend.memory.get_host_address(GuestAddress(HIGH))?;
        // SAFETY: the region is longer than a lane and mapped as long as the front-end lives, which the producer
        // does not outlive.
        let producer = Producer::new(unsafe { LaneMemory::new(base) });
        Ok(Self { frontend, session, producer })
    }

    /// With a second thread, which has lane 1.
    fn with_two(target: &Target) -> Result<Self> {
        let mut guest = Self::open(target)?;
        ensure!(guest.share(OTHER_TAG)? == REPLY_OK, "share");
        let lane = guest.other(session_lane(OTHER_TAG, 1, 0))?;
        ensure!(lane.result == 0, "session_lane answered {}", lane.result);
        Ok(guest)
    }

    fn share(&mut self, tag: u64) -> Result<u32> {
        share(&mut self.frontend, self.session, tag, OTHER_LANE, LANE_BYTES as u32)
    }

    /// Makes a call of another thread through the request queue.
    fn other(&mut self, parts: CallParts) -> Result<CallResult> {
        self.frontend.call(self.session, &CallParts { thread: OTHER, ..parts })
    }

    /// Record `number` is not answered, and the session can be closed.
    fn hangs(&mut self, number: u64) -> Result<()> {
        let args = [number.to_le_bytes(), [0; 8]].concat();
        let parts = CallParts::new(Opcode::session_wait, &args);
        let header = RequestHeader { op: OP_CALL, session: self.session, ..Default::default() };
        let payload = parts.payload(&parts.header());
        let request = RequestHeader { payload_bytes: payload.len() as u32, ..header };
        self.frontend.submit(0, 1, &[request.as_bytes(), &payload].concat(), 4096)?;
        ensure!(self.frontend.reply(0, SOON)?.is_none(), "a record ran before what it waits for");
        let close = RequestHeader { op: OP_CLOSE, session: self.session, ..Default::default() };
        self.frontend.submit(0, 2, close.as_bytes(), 4096)?;
        for _ in 0..2 {
            self.frontend.reply(0, PATIENCE)?.context("a close waits for a lane")?;
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, number: u64, parts: &CallParts) {
        let _ = self.producer.push(kind, number, &[&parts.payload(&parts.header())]);
    }

    fn wait(&mut self, reply: u64, consumed: u64) -> Result<u32> {
        let args = [reply.to_le_bytes(), consumed.to_le_bytes()].concat();
        let parts = CallParts::new(Opcode::session_wait, &args);
        Ok(self.frontend.carry(self.session, &parts.payload(&parts.header()), [&[], &[]])?.status)
    }

    /// Makes a call through the lane.
    fn call(&mut self, number: u64, parts: &CallParts) -> Result<CallResult> {
        self.push(Kind::Wait, number, parts);
        ensure!(self.wait(number, 0)? == REPLY_OK, "the wait for record {number}");
        let mut room = vec![0; MAX_REPLY_BYTES];
        let bytes = self.producer.reply(number, &mut room).context("an answered wait without a reply")?;
        parse_result(&room[..bytes])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.frontend.memory.write_slice(bytes, GuestAddress(HIGH + offset))?)
    }
}

fn share(frontend: &mut FakeFrontend, session: u64, tag: u64, addr: u64, bytes: u32) -> Result<u32> {
    let header = RequestHeader { op: OP_SHARE, session, tag, ..Default::default() };
    let area = MemEntry { addr, bytes, reserved: 0 };
    Ok(frontend.request(header, &[], [&[], &[area]])?.status)
}

fn session_lane(tag: u64, lane: u32, begins: u64) -> CallParts {
    let args = [&tag.to_le_bytes()[..], &lane.to_le_bytes(), &begins.to_le_bytes()].concat();
    CallParts::new(Opcode::session_lane, &args)
}

fn session_order(lane: u32, position: u64) -> CallParts {
    let args = [&lane.to_le_bytes()[..], &position.to_le_bytes()].concat();
    CallParts::new(Opcode::session_order, &args)
}

fn hello() -> CallParts {
    CallParts::new(Opcode::session_hello, &CALL_TABLE_VERSION.to_le_bytes())
}

/// The calls of a good library work.
fn good(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    ensure!(guest.call(1, &hello())?.result == 0, "session_hello through a lane");
    ensure!(guest.call(2, &session_order(0, 0))?.result == 0, "session_order through a lane");
    Ok(())
}

/// The error of a posted call stays until a call of the program takes it. Internal calls are executed meanwhile.
fn errors_are_the_programs(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    // An object that does not exist.
    let destroy = CallParts::new(Opcode::cuEventDestroy_v2, &77_u64.to_le_bytes());
    guest.push(Kind::Post, 1, &destroy);
    let internal = guest.call(2, &hello().internal())?;
    ensure!(internal.result == 0 && !internal.results.is_empty(), "an internal call was not executed");
    guest.push(Kind::Post, 3, &hello().internal());
    let own = guest.call(4, &destroy.clone().internal())?;
    ensure!(own.result == 400 && own.flags & RESULT_EARLIER == 0, "an internal call has its own error");
    ensure!(guest.producer.has_deferred_error(), "nothing says that an error waits");
    let told = guest.call(5, &hello())?;
    ensure!(told.result == 400 && told.flags & RESULT_EARLIER != 0, "the error is lost: {}", told.result);
    ensure!(told.results.is_empty(), "the call was executed");
    ensure!(!guest.producer.has_deferred_error(), "an error that was told still waits");
    ensure!(guest.call(6, &hello())?.result == 0, "the error is told twice");
    // The first of two.
    guest.push(Kind::Post, 7, &CallParts::new(Opcode::cuEventDestroy_v2, &[1; 3]));
    guest.push(Kind::Post, 8, &destroy);
    let told = guest.call(9, &session_order(0, 0))?;
    ensure!(told.result == 1 && told.flags & RESULT_EARLIER != 0, "the first error: {}", told.result);
    // Nobody gets the error of an internal one.
    guest.push(Kind::Post, 10, &destroy.internal());
    ensure!(guest.call(11, &session_order(0, 0))?.result == 0, "an internal call's error was told");
    ensure!(!guest.producer.has_deferred_error(), "an internal call's error waits");
    Ok(())
}

/// Each ends the session that did it, soon, and no other.
fn corrupt(target: &mut Target) -> Result<()> {
    let records = RECORDS_OFFSET as u64;
    let head = |bytes: u32, kind: u32| [bytes.to_ne_bytes(), kind.to_ne_bytes()].concat();
    let cases: [(&str, u64, Vec<u8>); 6] = [
        ("a tail behind the ring", (RECORDS_BYTES as u64) + 16, vec![]),
        ("a tail of 2^64 - 16", u64::MAX - 15, vec![]),
        ("an odd tail", 17, vec![]),
        ("a record longer than what is there", 32, head(17, 1)),
        ("a record of 2^32 - 1 bytes", 32, head(u32::MAX, 2)),
        ("a record of an unknown kind", 16, head(0, 9)),
    ];
    for (what, tail, bytes) in cases {
        let mut guest = Guest::open(target)?;
        guest.write(records, &bytes)?;
        guest.write(0, &tail.to_ne_bytes())?;
        let status = guest.wait(1, 0).with_context(|| what.to_owned())?;
        ensure!(status == REPLY_SESSION_LOST, "{what}: status {status}");
    }
    Ok(())
}

/// One session that a guest process ends so.
pub fn corrupt_once(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    guest.write(0, &17_u64.to_ne_bytes())?;
    ensure!(guest.wait(1, 0)? == REPLY_SESSION_LOST, "a session with a corrupt lane goes on");
    Ok(())
}

/// Areas that are no lane.
fn areas(target: &mut Target) -> Result<()> {
    let mut frontend = target.connect()?;
    let session = frontend.open_session()?;
    let lane = session_lane(TAG, 0, 0);
    ensure!(frontend.call(session, &lane)?.result != 0, "a tag that names nothing");
    ensure!(share(&mut frontend, session, TAG, HIGH, LANE_BYTES as u32 - 4096)? == REPLY_OK, "share");
    ensure!(frontend.call(session, &lane)?.result != 0, "an area that is too small");
    ensure!(frontend.call(session, &hello())?.result == 0, "the session is spoilt");
    Ok(())
}

/// Contents that are not a call, and calls that do not belong into a lane.
fn malformed_calls(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    let mut number = 0;
    let lane = session_lane(99, 1, 0);
    let wait = CallParts::new(Opcode::session_wait, &[0; 16]);
    let unknown = CallParts { opcode: 0xffff_ffff, ..hello() };
    for parts in [lane, wait, unknown, CallParts { args: vec![1; 3], ..hello() }] {
        number += 1;
        ensure!(guest.call(number, &parts)?.result != 0, "opcode {:#x} passed", parts.opcode);
    }
    for bytes in [0, 1, 39, 40, 500] {
        number += 1;
        let _ = guest.producer.push(Kind::Wait, number, &[&vec![0xff; bytes]]);
        ensure!(guest.wait(number, 0)? == REPLY_OK, "{bytes} bytes of nonsense");
    }
    ensure!(guest.call(number + 1, &hello())?.result == 0, "the session is spoilt");
    Ok(())
}

/// Numbers are the guest's own business.
fn any_numbers(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    for number in [1, 1, 0, u64::MAX] {
        guest.push(Kind::Post, number, &hello());
    }
    ensure!(guest.call(1_000_000, &hello())?.result == 0, "a skipped number");
    Ok(())
}

/// Numbers and positions that a lane cannot have.
fn places(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    ensure!(guest.share(OTHER_TAG)? == REPLY_OK, "share");
    for (lane, begins) in [
        (0, 0),
        (0, 1 << 20),
        (1024, 0),
        (u32::MAX, 0),
        (1, 8),
        (1, u64::MAX),
        (1, 1 << 63),
        (1, u64::MAX - 15),
    ] {
        let refused = guest.other(session_lane(OTHER_TAG, lane, begins))?;
        ensure!(refused.result == 1, "lane {lane} that begins at {begins:#x}: {}", refused.result);
    }
    ensure!(guest.other(session_lane(OTHER_TAG, 1, 1 << 62))?.result == 0, "a lane after many threads");
    ensure!(guest.other(session_order(1, 1 << 62))?.result == 0, "its own position");
    ensure!(guest.call(1, &session_order(1, 1 << 62))?.result == 0, "the position at which a lane begins");
    ensure!(guest.call(2, &hello())?.result == 0, "the session is spoilt");
    Ok(())
}

/// Nothing waits for a position to which a lane cannot come with the records that fit into it, nor for its own.
fn positions_that_cannot_come(target: &mut Target) -> Result<()> {
    let mut guest = Guest::with_two(target)?;
    let ring = RECORDS_BYTES as u64;
    let mut number = 0;
    for (lane, position) in
        [(1, ring + 16), (1, u64::MAX), (2, 16), (1023, 1), (1024, 16), (u32::MAX, u64::MAX), (u32::MAX, 1)]
    {
        number += 3;
        let refused = guest.call(number, &session_order(lane, position))?;
        ensure!(refused.result == 1, "lane {lane}, position {position:#x}: {}", refused.result);
        guest.push(Kind::Post, number + 1, &session_order(lane, position));
        let told = guest.call(number + 2, &session_order(0, 0))?;
        ensure!(told.result == 1, "a posted wait for lane {lane}: {}", told.result);
    }
    ensure!(guest.call(98, &session_order(0, u64::MAX))?.result == 0, "a lane that waits for itself");
    ensure!(guest.call(99, &hello())?.result == 0, "the session is spoilt");
    Ok(())
}

/// A record that is never sent delays only records that wait for it: another session works, and this one can be
/// closed.
fn positions_that_never_come(target: &mut Target) -> Result<()> {
    let mut guest = Guest::with_two(target)?;
    guest.push(Kind::Post, 1, &session_order(1, RECORDS_BYTES as u64));
    guest.push(Kind::Wait, 2, &hello());
    ensure!(guest.other(hello())?.result == 0, "another thread");
    guest.hangs(2)
}

/// Two lanes that wait for each other delay only themselves, too.
fn circles(target: &mut Target) -> Result<()> {
    let mut guest = Guest::with_two(target)?;
    // Each waits for the second record of the other one.
    let second = 2 * RECORD;
    guest.push(Kind::Post, 1, &session_order(1, second));
    guest.push(Kind::Wait, 2, &hello());
    let parts = CallParts { thread: OTHER, ..session_order(0, second) };
    let payload = parts.payload(&parts.header());
    let base = guest.frontend.memory.get_host_address(GuestAddress(OTHER_LANE))?;
    // SAFETY: the address is that of a lane's memory in the guest's, which `frontend` keeps mapped.
    let mut other = Producer::new(unsafe { LaneMemory::new(base) });
    let _ = other.push(Kind::Post, 1, &[&payload]);
    let _ = other.push(Kind::Post, 2, &[&payload]);
    let wake = CallParts { thread: OTHER, ..CallParts::new(Opcode::session_wait, &[0; 16]) };
    let woken = guest.frontend.carry(guest.session, &wake.payload(&wake.header()), [&[], &[]])?;
    ensure!(woken.status == REPLY_OK, "waking the other lane: {}", woken.status);
    guest.hangs(2)
}

/// Waits of threads that have no lane, and more of them than one lane has.
fn waits(target: &mut Target) -> Result<()> {
    let mut guest = Guest::open(target)?;
    let stranger = CallParts { thread: 9, ..CallParts::new(Opcode::session_wait, &[0; 16]) };
    let reply = guest.frontend.carry(guest.session, &stranger.payload(&stranger.header()), [&[], &[]])?;
    ensure!(reply.status == REPLY_INVALID, "a thread without executor waits: {}", reply.status);
    let short = CallParts::new(Opcode::session_wait, &[0; 9]);
    let reply = guest.frontend.carry(guest.session, &short.payload(&short.header()), [&[], &[]])?;
    ensure!(reply.status == REPLY_INVALID, "a wait for half a number: {}", reply.status);
    let parts = CallParts::new(Opcode::session_wait, &[0xff; 16]);
    let payload = parts.payload(&parts.header());
    let header = RequestHeader {
        op: OP_CALL,
        session: guest.session,
        payload_bytes: payload.len() as u32,
        ..Default::default()
    };
    for slot in 0..32 {
        guest.frontend.submit(0, slot, &[header.as_bytes(), &payload].concat(), 4096)?;
    }
    for refused in 0..16 {
        let reply = guest.frontend.reply(0, PATIENCE)?;
        ensure!(reply.is_some(), "{refused} of 32 waits were refused");
    }
    let mut more = 0;
    while guest.frontend.reply(0, SOON)?.is_some() {
        more += 1;
    }
    ensure!(more < 16, "all waits were refused");
    ensure!(guest.frontend.call(guest.session, &hello())?.result == 0, "the session is spoilt");
    Ok(())
}
