// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use vhost_cuda_common::exchange::MEMORY;
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
use vhost_cuda_common::link::{
    AheadTerms, CHUNK_BYTES, ENTERS_RUNNING, ENTERS_STOPPED, LEAVES_AHEAD, TO_AHEAD, TO_CONTENTS, TO_ENTER,
    TO_LEAVE, TO_STOP, ToWorker,
};
use vhost_cuda_common::parts;
use virtio_cuda_protocol::cuda::{CALL_TABLE_VERSION, Opcode};
use virtio_cuda_ring::{Kind, LaneMemory, Producer};
use zerocopy::IntoBytes;

use super::fixture::*;
use super::*;
use crate::gpu::null;
use crate::home::Home;
use crate::memory::allocations::{Origin, Range};
use crate::memory::placed::opened::Placement;
use crate::memory::quota;
use crate::memory::reservations::left::SpanRow;
use crate::recipe::left::{bytes_of, capture_mode, settings};
use crate::suspend::{ahead, held};

const HOST_MEMORY: u64 = 1 << 30;

fn pipe() -> (File, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
}

fn frame(kind: u32, id: u64, payload: &[u8], file: File) -> Frame {
    let mut frame = Frame::of_payload(ToWorker { id, ..ToWorker::default() }, payload.to_vec());
    (frame.header.kind, frame.file) = (kind, Some(file));
    frame
}

/// Gives the session a file for the contents of request `id`.
fn lend(guest: &Guest, id: u64, file: &File) {
    saving::lend(guest.session.state, &mut frame(TO_CONTENTS, id, &[], file.try_clone().unwrap()));
}

/// Gives the session a socket for the memory of request `id`. Returns the other end.
fn connect(guest: &Guest, id: u64) -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    lend(guest, id, &OwnedFd::from(there).into());
    here
}

/// Lets the session leave. Returns the stream, or the reason for which it stays.
fn left(guest: &mut Guest) -> Result<Vec<u8>, String> {
    left_with(guest, 0)
}

fn left_with(guest: &mut Guest, flags: u32) -> Result<Vec<u8>, String> {
    let (mut reader, writer) = pipe();
    let all = thread::spawn(move || {
        let mut stream = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut stream).unwrap();
        stream
    });
    let mut leaves = frame(TO_LEAVE, 1000, &[], writer);
    leaves.header.flags = flags;
    leave(guest.session.state, &mut guest.executors, &mut leaves, &guest.replies);
    drop(leaves);
    let told = Description::read(&guest.answer(1000)).unwrap();
    let stream = all.join().unwrap();
    told.obstacle.map_or(Ok(stream), Err)
}

/// Lets a session enter from a stream. Returns the reason if it cannot.
fn entered(guest: &mut Guest, stream: &[u8], most: u64) -> Option<String> {
    entered_with(guest, stream, most, 0)
}

fn entered_with(guest: &mut Guest, stream: &[u8], most: u64, flags: u32) -> Option<String> {
    let (reader, mut writer) = pipe();
    thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, stream));
        let mut enters = frame(TO_ENTER, 2000, most.as_bytes(), reader);
        enters.header.flags = flags;
        enter(guest.session.state, &mut guest.executors, &mut enters, &guest.replies);
        drop(enters);
    });
    Description::read(&guest.answer(2000)).unwrap().obstacle
}

/// All that must be the same in both workers.
#[derive(Debug, PartialEq)]
struct Facts {
    ranges: Vec<Range>,
    used: u64,
    regions: String,
    reservations: String,
    areas: String,
    claimed: Vec<SpanRow>,
    registrations: String,
    retains: String,
    calls: Vec<Vec<u8>>,
    settings: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
    digests: BTreeMap<u64, Vec<[u64; 2]>>,
    contents: Vec<(u64, Vec<u8>)>,
    lanes: Vec<(u32, u64)>,
    mode: Option<i32>,
    moved_bytes: u64,
}

fn facts(session: &SessionState) -> Facts {
    let suspended = session.suspension.suspended.lock();
    let now = suspended.as_ref().unwrap();
    let deep = now.deep.as_ref().unwrap();
    let mut variables = Vec::new();
    let written: Result<(), ()> = deep.variables.write(|piece| {
        variables.push(piece.concat());
        Ok(())
    });
    written.unwrap();
    let contents = now.store.stored().map(|(address, room)| {
        let mut chunk = vec![0; crate::suspend::room::CHUNK];
        // SAFETY: a room of the store, which nobody changes here.
        unsafe { room.load(&mut chunk) }.unwrap();
        (address, chunk)
    });
    // One lock after the other.
    let ranges = session.allocations().ranges().copied().collect();
    let used = session.allocations().quota.used();
    let regions = format!("{:?}", session.placed.lock().rows());
    let reservations = format!("{:?}", session.reservations().rows());
    let areas = format!("{:?}", session.window().rows(&session.memory()));
    let claimed = session.window().claimed();
    Facts {
        ranges,
        used,
        regions,
        reservations,
        areas,
        claimed,
        registrations: format!("{:?}", deep.registrations),
        retains: format!("{:?}", deep.retains),
        calls: deep.again.0.iter().map(|step| bytes_of(&step.call).unwrap()).collect(),
        settings: settings(session).unwrap().iter().map(|call| bytes_of(call).unwrap()).collect(),
        variables,
        digests: now.store.digests().collect(),
        contents: contents.collect(),
        lanes: session.order.positions(),
        mode: capture_mode(session, THREAD),
        moved_bytes: now.moved_bytes,
    }
}

/// The memory of the lane, which the guest and the worker share.
fn lane(guest: &Guest) -> LaneMemory {
    let area = guest.session.state.window().find(TAG, true).unwrap();
    // SAFETY: an area of that length, mapped until the session ends; this test's uses of it end before.
    unsafe { LaneMemory::new(area.base as *mut u8) }
}

/// One test for both: the lane's memory is the same in both workers.
#[test]
fn a_session_goes_to_another_worker_and_its_thread_notices_nothing() {
    let mut guest = Guest::with_all();
    let session = guest.session.state;
    let mut producer = Producer::new(lane(&guest));
    let query = payload(Opcode::cuStreamGetPriority, &STREAM.to_le_bytes(), &[]);
    let _ = producer.push(Kind::Wait, 1, &[&query]);
    let wait = |reply: u64| [reply, 0].map(u64::to_le_bytes).concat();
    let waits = guest.send(Opcode::session_wait, &wait(1), &[]);
    guest.result(waits);
    let mut room = [0; 64];
    assert!(producer.reply(1, &mut room).is_some());
    guest.suspend();
    // Its next calls wait at the gate: one in the lane, for whose answer a request waits, and a request.
    let _ = producer.push(Kind::Wait, 2, &[&query]);
    let waits = guest.send(Opcode::session_wait, &wait(2), &[]);
    let calls = guest.send(Opcode::cuStreamGetPriority, &STREAM.to_le_bytes(), &[]);
    let before = facts(session);
    let parts = [&before.calls, &before.settings, &before.variables].map(Vec::len);
    assert_eq!(parts, [4, 2, 1], "{before:?}");
    assert_eq!(before.ranges.len(), 5);
    assert_eq!(before.contents.len(), 5, "two regions of one and two chunks, and one of two");
    let stream = left(&mut guest).unwrap();
    assert_eq!(facts(session), before);
    // It may stay, and leave again.
    stay(session, &mut guest.executors);
    let again = left(&mut guest).unwrap();
    assert_eq!(again.len(), stream.len());
    assert_eq!(producer.reply(2, &mut room), None);
    stay(session, &mut guest.executors);
    end_suspended(guest);

    let mut other = Guest::behind(calls);
    assert_eq!(entered(&mut other, &stream, HOST_MEMORY), None);
    let mut after = facts(other.session.state);
    // The one that has entered has not asked the first one's questions.
    after.lanes.clone_from(&before.lanes);
    assert_eq!(after, before);
    other.resume();
    // The area is at the same address.
    other.result(waits);
    assert!(producer.reply(2, &mut room).is_some());
    other.result(calls);
    // It can leave once more.
    other.suspend();
    assert!(left(&mut other).is_ok());
    stay(other.session.state, &mut other.executors);
    other.resume();
    let allocated = before.ranges.iter().find(|range| range.origin == Origin::Allocated).unwrap();
    other.make(Opcode::cuMemFree_v2, &[&allocated.base.to_le_bytes()], &[]);
    other.end();
}

/// The contents go over in a file, more than once.
#[test]
fn contents_go_over_without_a_copy() {
    let mut guest = Guest::with_all();
    guest.suspend();
    let before = facts(guest.session.state);
    let as_chunks = left(&mut guest).unwrap();
    stay(guest.session.state, &mut guest.executors);
    for round in 0..3 {
        let file = memory_file(c"contents").unwrap();
        file.set_len(before.contents.len() as u64 * CHUNK_BYTES).unwrap();
        add_seals(&file, FIXED_LENGTH).unwrap();
        lend(&guest, 999, &file);
        assert_eq!(left(&mut guest).unwrap().len(), as_chunks.len(), "a file of another request");
        stay(guest.session.state, &mut guest.executors);
        lend(&guest, 1000, &file);
        let stream = left(&mut guest).unwrap();
        assert!(stream.len() < as_chunks.len() - before.contents.len() * CHUNK_BYTES as usize);
        assert_eq!(facts(guest.session.state), before, "it may stay");
        stay(guest.session.state, &mut guest.executors);
        end_suspended(guest);
        let refuse = |stream: &[u8], file: Option<&File>| {
            let mut other = Guest::new(true);
            file.into_iter().for_each(|file| lend(&other, 2000, file));
            let reason = entered(&mut other, stream, HOST_MEMORY);
            end_suspended(other);
            reason.expect("it enters")
        };
        refuse(&stream, None);
        refuse(&stream[..stream.len() - 1], Some(&file));
        refuse(&as_chunks, Some(&file));
        let mut other = Guest::new(true);
        lend(&other, 2000, &file);
        assert_eq!(entered(&mut other, &stream, 0), None, "round {round}");
        let mut after = facts(other.session.state);
        after.lanes.clone_from(&before.lanes);
        assert_eq!(after, before);
        guest = other;
    }
    guest.resume();
    guest.end();
}

/// Memory stays on the card, and what keeps it goes over, more than once.
#[test]
fn memory_stays_on_the_card() {
    let mut guest = Guest::with_all();
    for round in 0..2 {
        guest.suspend_on_card();
        let before = facts(guest.session.state);
        assert!(before.contents.is_empty() && before.digests.is_empty() && before.moved_bytes > 0);
        assert_eq!(left(&mut guest), Err("its memory is on the card".to_owned()), "without a socket");
        drop(connect(&guest, 1000));
        assert!(left(&mut guest).is_err(), "nobody takes it");
        stay(guest.session.state, &mut guest.executors);
        assert_eq!(facts(guest.session.state), before);
        let count = {
            let suspended = guest.session.state.suspension.suspended.lock();
            writing::held_files(guest.session.state, suspended.as_ref().unwrap()).unwrap().len()
        };
        let socket = connect(&guest, 1000);
        let taking = thread::spawn(move || held::receive(&socket, count).unwrap());
        let stream = left(&mut guest).unwrap();
        let files: Vec<_> = taking.join().unwrap().into_iter().map(|file| (0, Arc::new(file))).collect();
        assert_eq!(facts(guest.session.state), before, "it may stay");
        stay(guest.session.state, &mut guest.executors);
        end_suspended(guest);
        let enter = |given: usize| {
            let mut other = Guest::new(true);
            let socket = connect(&other, 2000);
            let files = files[..given].to_vec();
            let giving = thread::spawn(move || held::send(&socket, &files));
            let reason = entered(&mut other, &stream, 0);
            let _ = giving.join().unwrap();
            (other, reason)
        };
        let (other, reason) = enter(count - 1);
        end_suspended(other);
        assert!(reason.unwrap().contains("files of device memory are missing"));
        let mut other = Guest::new(true);
        assert!(entered(&mut other, &stream, 0).unwrap().contains("no socket"));
        end_suspended(other);
        let (other, reason) = enter(count);
        assert_eq!(reason, None, "round {round}");
        let mut after = facts(other.session.state);
        after.lanes.clone_from(&before.lanes);
        assert_eq!(after, before);
        guest = other;
        guest.resume();
    }
    guest.end();
}

/// Whatever call of the driver fails, the worker either says so before it has the session, or runs it.
#[test]
fn a_session_comes_back_before_its_worker_says_that_it_has_it() {
    const UNKNOWN: u32 = 999;
    let mut guest = Guest::with_all();
    guest.suspend();
    let stream = left(&mut guest).unwrap();
    stay(guest.session.state, &mut guest.executors);
    end_suspended(guest);
    let mut reasons = Vec::new();
    for call in 1.. {
        let mut other = Guest::behind(3000);
        null::script(0, call, UNKNOWN);
        let reason = entered_with(&mut other, &stream, HOST_MEMORY, ENTERS_RUNNING);
        let is_over = null::calls_until_failure() > 0;
        null::script(0, 0, 0);
        if let Some(reason) = reason {
            reasons.push(reason);
            end_suspended(other);
            continue;
        }
        assert!(other.session.state.suspension.suspended.lock().is_none(), "call {call} of the driver");
        other.make(Opcode::cuStreamGetPriority, &[&STREAM.to_le_bytes()], &[]);
        other.end();
        if is_over {
            break;
        }
    }
    let made = reasons.iter().filter(|reason| reason.ends_with("made again there: CUDA error 999")).count();
    assert!(made > 5, "{reasons:?}");
}

/// Memory that the session has offered, and memory of another process, in whole regions and in parts of them.
fn share(guest: &mut Guest) -> [u64; 4] {
    let session = guest.session.state;
    let home = Home { context: CONTEXT, device: 0 };
    let own = [700_u64, 3 << 20].map(|bytes| {
        let made = guest.make(Opcode::cuMemAlloc_v2, &[&bytes.to_le_bytes()], &[]);
        let address = u64::from_le_bytes(made[..8].try_into().unwrap());
        session.placed.export(&session.gpu, address).unwrap().unwrap();
        session.sharing.offer_again((MEMORY, address), CONTEXT, [bytes as u8 | 1; 16]);
        address
    });
    let opened = [(5000, 2560), (3 << 20, 0)].map(|(bytes, offset)| {
        let place = Placement::new(quota::opened(bytes), offset);
        let file = memory_file(c"memory").unwrap();
        let (token, mut allocations) = ([bytes as u8 | 2; 16], session.allocations());
        allocations.charge(quota::opened(bytes)).unwrap();
        let opened = session.placed.open(&session.gpu, token, (place, bytes), file, home);
        let address = opened.unwrap();
        allocations.insert(address, bytes, Origin::Opened, home);
        session.sharing.open_again(address, 2, CONTEXT);
        address
    });
    [own[0], own[1], opened[0], opened[1]]
}

/// Memory that processes share goes over as long as it stays on the card, and not otherwise.
#[test]
fn shared_memory_stays_on_the_card() {
    let mut guest = Guest::with_all();
    let shared = share(&mut guest);
    let reason = guest.suspend_in_vain();
    assert_eq!(reason.as_deref(), Some("it shares memory or events with other processes"));
    guest.resume();
    guest.suspend_on_card();
    let before = facts(guest.session.state);
    let count = {
        let suspended = guest.session.state.suspension.suspended.lock();
        writing::held_files(guest.session.state, suspended.as_ref().unwrap()).unwrap().len()
    };
    let socket = connect(&guest, 1000);
    let taking = thread::spawn(move || held::receive(&socket, count).unwrap());
    let stream = left(&mut guest).unwrap();
    let files: Vec<_> = taking.join().unwrap().into_iter().map(|file| (0, Arc::new(file))).collect();
    stay(guest.session.state, &mut guest.executors);
    end_suspended(guest);
    let mut other = Guest::new(true);
    let socket = connect(&other, 2000);
    let giving = thread::spawn(move || held::send(&socket, &files));
    assert_eq!(entered(&mut other, &stream, 0), None);
    giving.join().unwrap().unwrap();
    let mut after = facts(other.session.state);
    after.lanes.clone_from(&before.lanes);
    assert_eq!(after, before);
    other.resume();
    let sharing = &other.session.state.sharing;
    assert_eq!(shared.map(|address| sharing.times_opened(address)), [0, 0, 2, 2]);
    assert_eq!(sharing.all_offered().unwrap().len(), 2);
    for address in &shared[2..] {
        other.make(Opcode::cuIpcCloseMemHandle, &[&address.to_le_bytes()], &[]);
        other.make(Opcode::cuIpcCloseMemHandle, &[&address.to_le_bytes()], &[]);
    }
    assert_eq!(other.session.state.placed.lock().opened().count(), 0);
    let reason = other.suspend_in_vain();
    assert!(reason.is_some(), "what it has offered, others may have");
    other.resume();
    other.end();
}

/// Has the session stop with its machine. Returns the reason if it does not.
fn stopped_with(guest: &mut Guest, millis: u32) -> Option<String> {
    let header = ToWorker { kind: TO_STOP, id: 3000, ..ToWorker::default() };
    let frame = Frame::of_payload(header, millis.to_le_bytes().to_vec());
    stopping::stop(guest.session.state, &mut guest.executors, &frame, &guest.replies);
    Description::read(&guest.answer(3000)).unwrap().obstacle
}

/// One test for both workers: the lane's memory is the same.
#[test]
fn a_session_stops_with_its_machine_and_a_copy_of_it_goes_on_in_another() {
    let mut guest = Guest::with_all();
    let session = guest.session.state;
    let mut producer = Producer::new(lane(&guest));
    let query = payload(Opcode::cuStreamGetPriority, &STREAM.to_le_bytes(), &[]);
    assert_eq!(stopped_with(&mut guest, 10_000), None);
    assert_eq!(stopped_with(&mut guest, 10_000).as_deref(), Some("it is stopped already, or leaves"));
    let _ = producer.push(Kind::Wait, 1, &[&query]);
    let mut room = [0; 64];
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(producer.reply(1, &mut room), None, "nothing is taken from the lane");
    assert_eq!(left(&mut guest), Err("it is not suspended deeply".to_owned()));
    guest.suspend();
    let before = facts(session);
    let stream = left(&mut guest).unwrap();
    assert_eq!(left(&mut guest).unwrap().len(), stream.len(), "it is stopped still");
    assert_eq!(producer.reply(1, &mut room), None);
    end_suspended(guest);

    let mut other = Guest::behind(0);
    let reason = entered(&mut other, &stream, HOST_MEMORY).unwrap();
    assert!(reason.contains("it comes with a machine"), "{reason}");
    end_suspended(other);

    let mut other = Guest::behind(0);
    assert_eq!(entered_with(&mut other, &stream, HOST_MEMORY, ENTERS_STOPPED), None);
    let session = other.session.state;
    assert!(session.window().rows(&session.memory()).is_none(), "its pages are not mapped");
    let reason = stopped_with(&mut other, 10_000);
    assert_eq!(reason.as_deref(), Some("it is stopped already, or leaves"));
    assert_eq!(left(&mut other), Err("its machine has not run since it was loaded".to_owned()));
    stay(session, &mut other.executors);
    other.resume();
    let waits = [1_u64, 0].map(u64::to_le_bytes).concat();
    let waits = other.send(Opcode::session_wait, &waits, &[]);
    other.result(waits);
    assert!(producer.reply(1, &mut room).is_some());
    other.suspend();
    let mut after = facts(other.session.state);
    after.lanes.clone_from(&before.lanes);
    assert_eq!(after, before);
    end_suspended(other);
}

/// Lets contents go ahead. Returns what was announced, the addresses of the chunks, and the worker's answer.
fn went_ahead(guest: &mut Guest, terms: AheadTerms) -> (Vec<u64>, Vec<u64>, Description) {
    let (reader, writer) = pipe();
    let reading = thread::spawn(move || {
        let (mut part, mut passes, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
        while let Ok(found) = parts::read(&reader, &mut part) {
            let number = part.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            match found {
                parts::kind::PASS => passes.extend(number),
                parts::kind::CHUNK if part.len() == 8 + crate::suspend::room::CHUNK => chunks.extend(number),
                parts::kind::END => {}
                other => panic!("a part of kind {other}"),
            }
        }
        (passes, chunks)
    });
    let mut asks = frame(TO_AHEAD, 4000, terms.as_bytes(), writer);
    ahead::start(guest.session.state, &mut asks, &guest.replies);
    drop(asks);
    let told = Description::read(&guest.answer(4000)).unwrap();
    let (passes, chunks) = reading.join().unwrap();
    (passes, chunks, told)
}

#[test]
fn contents_go_ahead_once_and_are_named_only_when_the_session_leaves() {
    let mut guest = Guest::with_all();
    let first = AheadTerms { budget_bytes: HOST_MEMORY, is_first: 1 };
    let next = AheadTerms { is_first: 0, ..first };
    let (passes, _, told) = went_ahead(&mut guest, AheadTerms { budget_bytes: 0, ..first });
    assert!(told.obstacle.unwrap().contains("not enough host memory"), "{passes:?}");
    let (passes, chunks, told) = went_ahead(&mut guest, first);
    // Memory of cuMemCreate does not go ahead.
    assert_eq!((passes, chunks.len(), told.bytes), (vec![3], 3, 3 * CHUNK_BYTES), "{:?}", told.obstacle);
    let (passes, again, _) = went_ahead(&mut guest, next);
    assert_eq!((passes, again), (vec![0], vec![]), "nothing has changed");
    let (_, again, _) = went_ahead(&mut guest, first);
    assert_eq!(again, chunks, "for another machine");
    assert_eq!(stopped_with(&mut guest, 10_000), None);
    let (passes, again, _) = went_ahead(&mut guest, first);
    assert_eq!((passes, again), (vec![0], vec![]), "its machine has stopped");
    *guest.session.state.suspension.sent.lock() = chunks.iter().map(|&address| (address, [0, 0])).collect();
    guest.suspend();
    let before = facts(guest.session.state);
    let whole = left(&mut guest).unwrap();
    let short = left_with(&mut guest, LEAVES_AHEAD).unwrap();
    end_suspended(guest);
    let of_kind = |stream: &[u8], kind: u16| {
        let (mut from, mut part, mut found) = (stream, Vec::new(), Vec::new());
        while let Ok(now) = parts::read(&mut from, &mut part) {
            if now == kind {
                found.push(part.clone());
            }
        }
        found
    };
    let arrived = of_kind(&short, parts::kind::ARRIVED).concat();
    let mut named: Vec<_> = arrived.chunks(8).map(|bytes| bytes.to_vec()).collect();
    named.sort();
    let mut expected: Vec<_> = chunks.iter().map(|address| address.to_le_bytes().to_vec()).collect();
    expected.sort();
    assert_eq!(named, expected);
    assert_eq!(of_kind(&short, parts::kind::CHUNK).len(), before.contents.len() - chunks.len());
    assert_eq!(of_kind(&whole, parts::kind::CHUNK).len(), before.contents.len());
    // The daemon gives the worker places in a file instead.
    let mut other = Guest::behind(0);
    assert!(entered_with(&mut other, &short, HOST_MEMORY, ENTERS_STOPPED).is_some());
    end_suspended(other);
}

#[test]
fn contents_of_a_suspended_session_go_ahead_from_host_memory() {
    let mut guest = Guest::with_all();
    guest.suspend();
    let terms = AheadTerms { budget_bytes: 0, is_first: 1 };
    let (passes, chunks, told) = went_ahead(&mut guest, terms);
    assert_eq!((passes, chunks.len(), told.obstacle), (vec![5], 5, None));
    let (passes, again, _) = went_ahead(&mut guest, AheadTerms { is_first: 0, ..terms });
    assert_eq!((passes, again), (vec![0], vec![]));
    guest.resume();
    guest.end();
}

#[test]
fn a_session_of_another_kind_of_device_does_not_enter() {
    let mut guest = Guest::with_all();
    assert_eq!(stopped_with(&mut guest, 10_000), None);
    guest.suspend();
    let stream = left(&mut guest).unwrap();
    end_suspended(guest);
    let (mut from, mut part, mut changed) = (&stream[..], Vec::new(), Vec::new());
    while let Ok(found) = parts::read(&mut from, &mut part) {
        if found == parts::kind::HOST {
            part[8..][..5].copy_from_slice(b"other");
        }
        parts::write(&mut changed, found, &[&part]).unwrap();
    }
    let mut other = Guest::behind(0);
    let reason = entered_with(&mut other, &changed, HOST_MEMORY, ENTERS_STOPPED).unwrap();
    assert!(reason.contains("its device is another one (other"), "{reason}");
    end_suspended(other);
}

/// A release refuses by name what only a later one knows.
#[test]
fn a_session_of_a_newer_release_does_not_enter() {
    let mut guest = Guest::with_all();
    guest.session.state.call_table.store(CALL_TABLE_VERSION, Ordering::Relaxed);
    assert_eq!(stopped_with(&mut guest, 10_000), None);
    guest.suspend();
    let stream = left(&mut guest).unwrap();
    end_suspended(guest);
    let version = u64::from(CALL_TABLE_VERSION);
    let newer = format!("version {} of the call table", version + 1);
    let changes = [(1 << 32, newer.as_str()), (16, "facts that only a newer release knows")];
    for (more, expected) in changes {
        let (mut from, mut part, mut changed) = (&stream[..], Vec::new(), Vec::new());
        while let Ok(found) = parts::read(&mut from, &mut part) {
            if found == parts::kind::STATE {
                let flags = u64::from_le_bytes(part[..8].try_into().unwrap());
                assert_eq!(flags >> 32, version);
                part[..8].copy_from_slice(&(flags + more).to_le_bytes());
            }
            parts::write(&mut changed, found, &[&part]).unwrap();
        }
        let mut other = Guest::behind(0);
        let reason = entered_with(&mut other, &changed, HOST_MEMORY, ENTERS_STOPPED).unwrap();
        assert!(reason.contains(expected), "{reason}");
        end_suspended(other);
    }
    let mut same = Guest::behind(0);
    assert_eq!(entered_with(&mut same, &stream, HOST_MEMORY, ENTERS_STOPPED), None);
    assert_eq!(same.session.state.call_table.load(Ordering::Relaxed), CALL_TABLE_VERSION);
    end_suspended(same);
}

#[test]
fn a_session_that_is_not_suspended_deeply_stays() {
    let mut guest = Guest::new(false);
    assert_eq!(left(&mut guest), Err("it is not suspended deeply".to_owned()));
    assert!(!guest.session.state.gate.has_left());
    assert_eq!(left(&mut guest), Err("it is not suspended deeply".to_owned()), "no move is under way");
    guest.end();
}

#[test]
fn what_is_cut_or_too_much_does_not_enter() {
    let mut guest = Guest::with_all();
    guest.suspend();
    let stream = left(&mut guest).unwrap();
    stay(guest.session.state, &mut guest.executors);
    end_suspended(guest);
    let refuse = |stream: &[u8], most: u64| {
        let mut other = Guest::new(true);
        let reason = entered(&mut other, stream, most);
        end_suspended(other);
        reason.expect("it enters")
    };
    assert!(refuse(&stream, 1 << 20).contains("not enough host memory"));
    refuse(&stream[..stream.len() - 100], HOST_MEMORY);
    refuse(&[], HOST_MEMORY);
    let mut parts = Vec::new();
    let (mut from, mut part) = (&stream[..], Vec::new());
    while let Ok(kind) = parts::read(&mut from, &mut part) {
        parts.push((kind, part.clone()));
    }
    // Each part is missing once, but those that a session may lack.
    let optional = [parts::kind::SETTING, parts::kind::CLAIMED, parts::kind::CALL, parts::kind::VARIABLE];
    for missing in 0..parts.len() {
        if optional.contains(&parts[missing].0) || parts[missing].0 > parts::kind::CALL {
            continue;
        }
        let mut stream = Vec::new();
        for (index, (kind, part)) in parts.iter().enumerate() {
            if index != missing {
                parts::write(&mut stream, *kind, &[part]).unwrap();
            }
        }
        let mut other = Guest::new(true);
        let reason = entered(&mut other, &stream, HOST_MEMORY);
        end_suspended(other);
        let may_lack = [parts::kind::RETAINS, parts::kind::REGISTRATIONS, parts::kind::LIBRARIES];
        assert!(
            reason.is_some() || may_lack.contains(&parts[missing].0),
            "part {missing}: {:?}",
            parts[missing].0
        );
    }
}
