// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread::JoinHandle;

use vhost_cuda_common::link::{FromWorker, TO_MEMORY, receive_frame, send_reply};
use virtio_cuda_protocol::transport::{OP_CLOSE, RequestHeader};

use super::*;
use crate::guest::fixture::FixtureGuest;
use crate::guest::memory::SharedRegion;
use crate::limits::request_budget::RequestBudget;
use crate::sessions::fixture::sleeping_worker;

const ROOM: u32 = 64;

pub(super) struct Fixture {
    pub(super) guest: FixtureGuest,
    pub(super) session: Arc<Session>,
    pub(super) worker: UnixStream,
    pub(super) running: JoinHandle<()>,
    pub(super) ended: mpsc::Receiver<End>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let (worker, theirs) = sleeping_worker();
        let open = Open { pid: 42, uid: 0, charged_uid: 0, name: *b"a\nprogram\0\0\0\0\0\0\0" };
        let session =
            Session::new(7, 1, &open, Place::default(), worker, Arc::default(), Box::new(Arc::default));
        let (end, ended) = mpsc::channel();
        let (open, opened) = mpsc::channel();
        let runner = session.clone();
        let running = thread::spawn(move || {
            runner.run(|| open.send(()).unwrap(), |how| end.send(how).unwrap());
        });
        opened.recv().unwrap();
        let memory = receive_frame(&theirs).unwrap().unwrap();
        assert_eq!(memory.header.kind, TO_MEMORY);
        // Requests are sent directly once the writer knows that it has sent everything.
        let waiting = session.outbox.lock().waiting.clone();
        while waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        Self { guest: FixtureGuest::new(), session, worker: theirs, running, ended }
    }

    fn chain(&mut self, op: u32, payload: &[u8]) -> (Request, Chain) {
        let header = RequestHeader { op, payload_bytes: payload.len() as u32, ..call_header() };
        let (request, chain) = self.guest.request(header, payload, &[], &[], ROOM);
        (request.unwrap(), chain)
    }

    pub(super) fn submit(&mut self, payload: &[u8]) {
        let (request, chain) = self.chain(OP_CALL, payload);
        let charge = RequestBudget::new(1).charge(1, 1).unwrap();
        self.session.submit(request, chain, charge);
    }

    pub(super) fn close(&mut self) {
        let (_, chain) = self.chain(OP_CLOSE, &[]);
        self.session.close(chain);
    }

    pub(super) fn reply(&self, id: u64, payload: &[u8]) {
        let header = FromWorker { kind: FROM_REPLY, id, ..FromWorker::default() };
        send_reply(&self.worker, &header, payload).unwrap();
    }
}

#[test]
fn replies_find_their_requests_in_any_order() {
    let mut fixture = Fixture::new();
    fixture.submit(b"first");
    fixture.submit(b"second");
    let first = receive_frame(&fixture.worker).unwrap().unwrap();
    let second = receive_frame(&fixture.worker).unwrap().unwrap();
    assert_eq!((&first.payload[..], &second.payload[..]), (&b"first"[..], &b"second"[..]));
    assert_eq!(first.header.reply_room, ROOM - 8);
    fixture.reply(second.header.id, b"2");
    fixture.guest.wait_used(1);
    fixture.reply(first.header.id, b"1");
    fixture.guest.wait_used(2);
    assert_eq!(fixture.guest.reply(0), (REPLY_OK, b"1".to_vec()));
    assert_eq!(fixture.guest.reply(2), (REPLY_OK, b"2".to_vec()));
}

#[test]
fn a_worker_that_does_not_read_blocks_nobody_and_loses_nothing() {
    let mut fixture = Fixture::new();
    // More than a socket buffers: 20 requests of 60,000 bytes, of which the fixture's memory holds one at a time.
    let charge = || RequestBudget::new(1).charge(1, 1).unwrap();
    let payloads: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 60_000]).collect();
    for payload in &payloads {
        let (request, chain) = fixture.chain(OP_CALL, &[]);
        fixture.session.submit(Request { payload: payload.clone(), ..request }, chain, charge());
    }
    for payload in &payloads {
        let frame = receive_frame(&fixture.worker).unwrap().unwrap();
        assert!(frame.payload == *payload, "requests were mixed up");
    }
    // Once the writer has sent everything, requests are sent directly again.
    fixture.submit(b"after");
    assert_eq!(receive_frame(&fixture.worker).unwrap().unwrap().payload, b"after");
}

#[test]
fn a_worker_that_dies_loses_the_session_and_answers_all() {
    let mut fixture = Fixture::new();
    fixture.submit(b"never answered");
    let pid = fixture.session.assigned().worker.process.pid();
    drop(fixture.worker);
    assert_eq!(fixture.ended.recv().unwrap(), End::Lost);
    fixture.running.join().unwrap();
    assert_eq!(fixture.guest.reply(0), (REPLY_SESSION_LOST, vec![]));
    // The process is reaped, not only dead.
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_close_is_answered_last_and_later_calls_are_lost() {
    let mut fixture = Fixture::new();
    fixture.submit(b"outstanding");
    fixture.close();
    fixture.submit(b"too late");
    fixture.guest.wait_used(1);
    assert_eq!(fixture.guest.reply(4), (REPLY_SESSION_LOST, vec![]));
    let call = receive_frame(&fixture.worker).unwrap().unwrap();
    assert_eq!(call.payload, b"outstanding");
    assert_eq!(receive_frame(&fixture.worker).unwrap().unwrap().header.kind, TO_CLOSE);
    // The worker ends on request.
    drop(fixture.worker);
    assert_eq!(fixture.ended.recv().unwrap(), End::Closed);
    fixture.running.join().unwrap();
    let order: Vec<u32> = fixture.guest.used().iter().map(|&(head, _)| head).collect();
    assert_eq!(order, [4, 0, 2]);
    assert_eq!(fixture.guest.reply(0).0, REPLY_SESSION_LOST);
    assert_eq!(fixture.guest.reply(2).0, REPLY_OK);
}

#[test]
fn a_worker_that_does_not_end_is_killed() {
    let mut fixture = Fixture::new();
    fixture.close();
    // The link's other end stays open in this process, as with a worker that has passed it to another process.
    let started = Instant::now();
    assert_eq!(fixture.ended.recv_timeout(Duration::from_secs(10)), Ok(End::Closed));
    assert!(started.elapsed() >= CLOSE_GRACE / 2);
    fixture.running.join().unwrap();
    assert!(!fixture.session.assigned().worker.process.is_running());
    assert_eq!(fixture.guest.reply(0).0, REPLY_OK);
}

#[test]
fn a_session_ends_when_it_is_hung_up_on() {
    let mut fixture = Fixture::new();
    fixture.submit(b"never answered");
    fixture.session.assigned().worker.sockets.hang_up();
    assert_eq!(fixture.ended.recv_timeout(Duration::from_secs(10)), Ok(End::Lost));
    fixture.running.join().unwrap();
    assert_eq!(fixture.guest.reply(0), (REPLY_SESSION_LOST, vec![]));
}

#[test]
fn what_was_not_written_counts_and_is_not_answered() {
    let mut fixture = Fixture::new();
    let budget = RequestBudget::new(1);
    // More than a socket buffers.
    for _ in 0..20 {
        let (request, chain) = fixture.chain(OP_CALL, &[]);
        let request = Request { payload: vec![1; 60_000], ..request };
        fixture.session.submit(request, chain, budget.charge(1, 1).unwrap());
    }
    // A reply to a request that was not written would end the session.
    fixture.reply(1, &[]);
    fixture.guest.wait_used(1);
    // The charge is dropped after the answer is in the ring.
    let begun = Instant::now();
    while budget.used() > 19 && begun.elapsed() < Duration::from_secs(10) {
        thread::yield_now();
    }
    assert_eq!(budget.used(), 19, "what was answered counts no more");
    let begun = fixture.session.begun.load(Ordering::Acquire);
    assert!((2..20).contains(&begun), "{begun}");
    // The partly written one may be answered, but is charged until it is written.
    fixture.reply(begun, &[]);
    fixture.guest.wait_used(2);
    assert_eq!(budget.used(), 19);
    fixture.reply(begun + 1, &[]);
    assert_eq!(fixture.ended.recv_timeout(Duration::from_secs(10)), Ok(End::Lost));
    fixture.running.join().unwrap();
    assert_eq!(budget.used(), 0);
}

#[test]
fn changes_of_memory_wait_as_one() {
    let fixture = Fixture::new();
    let memory = |fixture: &Fixture| {
        let frame = receive_frame(&fixture.worker).unwrap().unwrap();
        assert_eq!(frame.header.kind, TO_MEMORY);
    };
    fixture.session.update_memory();
    memory(&fixture);
    // The writer waits for a worker that does not read.
    while link::write_now(&fixture.session.assigned().worker.sockets.link, &[0; 4096]) > 0 {}
    let waiting = fixture.session.outbox.lock().waiting.clone();
    for _ in 0..1000 {
        fixture.session.update_memory();
    }
    assert!(waiting.load(Ordering::Acquire) <= 2);
}

#[test]
fn outstanding_requests_are_bounded() {
    let mut fixture = Fixture::new();
    // The fixture's queue is small, so the limit is tested as if more requests were outstanding.
    fixture.submit(b"first");
    for id in 0..MAX_OUTSTANDING as u64 - 1 {
        let (request, chain) = FixtureGuest::new().request(call_header(), &[], &[], &[], ROOM);
        let charge = RequestBudget::new(1).charge(1, 1).unwrap();
        let call = InFlight {
            chain,
            written: request.unwrap().out_entries,
            named: None,
            waiting: None,
            charge: Arc::new(charge),
        };
        fixture.session.state.lock().outstanding.insert(1000 + id, call);
    }
    fixture.submit(b"one too many");
    fixture.guest.wait_used(1);
    assert_eq!(fixture.guest.reply(2), (REPLY_NO_RESOURCES, vec![]));
}

fn call_header() -> RequestHeader {
    RequestHeader { op: OP_CALL, session: 7, ..RequestHeader::default() }
}

#[test]
fn a_worker_that_answers_what_nobody_asked_loses_its_session() {
    let mut fixture = Fixture::new();
    fixture.submit(b"x");
    fixture.reply(99, b"unasked");
    assert_eq!(fixture.ended.recv().unwrap(), End::Lost);
    fixture.running.join().unwrap();
    assert_eq!(fixture.guest.reply(0).0, REPLY_SESSION_LOST);
}

#[test]
fn a_worker_that_stalls_in_a_reply_loses_its_session() {
    let mut fixture = Fixture::new();
    fixture.submit(b"x");
    (&fixture.worker).write_all(&FROM_REPLY.to_ne_bytes()).unwrap();
    assert_eq!(fixture.ended.recv_timeout(Duration::from_secs(60)), Ok(End::Lost));
    fixture.running.join().unwrap();
    assert_eq!(fixture.guest.reply(0).0, REPLY_SESSION_LOST);
}

#[test]
fn a_reply_that_is_too_long_is_not_passed_on() {
    let mut fixture = Fixture::new();
    fixture.submit(b"x");
    let call = receive_frame(&fixture.worker).unwrap().unwrap();
    fixture.reply(call.header.id, &[1; ROOM as usize]);
    fixture.guest.wait_used(1);
    assert_eq!(fixture.guest.reply(0), (REPLY_INVALID, vec![]));
}

#[test]
fn names_from_the_guest_are_made_printable() {
    assert_eq!(printable(b"a\nb\x1b[31m\0rest"), "a?b??31m");
    assert_eq!(printable(&[0xff; 16]), "?".repeat(16));
    let (worker, _theirs) = sleeping_worker();
    let session = Session::new(
        7,
        1,
        &Open { pid: 42, uid: 0, charged_uid: 0, name: *b"a\nprogram\0\0\0\0\0\0\0" },
        Place::default(),
        worker,
        Arc::default(),
        Box::new(Arc::default),
    );
    assert_eq!(session.describe(), format!("session {} (a?program 42)", session.label));
}

#[test]
fn memory_that_changes_while_a_session_begins_is_sent() {
    let (worker, theirs) = sleeping_worker();
    let table: Arc<Mutex<Arc<MemoryTable>>> = Arc::default();
    let now = table.clone();
    let open = Open { pid: 42, uid: 0, charged_uid: 0, name: [0; 16] };
    let session = Session::new(
        7,
        1,
        &open,
        Place::default(),
        worker,
        Arc::default(),
        Box::new(move || now.lock().clone()),
    );
    // Before the session has a writer.
    let file = vmm_sys_util::tempfile::TempFile::new().unwrap().into_file();
    let region = SharedRegion {
        region: link::Region { bytes: 4096, ..link::Region::default() },
        file: vm_memory::FileOffset::new(file, 0),
        read_only: None,
    };
    *table.lock() = Arc::new(MemoryTable { regions: vec![region] });
    session.update_memory();
    let runner = session.clone();
    let running = thread::spawn(move || runner.run(|| {}, |_| {}));
    let kinds = [(); 2].map(|()| receive_frame(&theirs).unwrap().unwrap().header.kind);
    assert_eq!(kinds, [link::TO_REGION, TO_MEMORY]);
    drop(theirs);
    running.join().unwrap();
}
