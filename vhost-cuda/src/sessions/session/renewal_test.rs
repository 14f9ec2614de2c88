// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use vhost_cuda_common::budget::Budget;
use vhost_cuda_common::link::{
    Frame, FromWorker, POOL_BLOCK_BYTES, TO_MEMORY, TO_POOL, pool_of, receive_frame, send_reply,
};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_SESSION_LOST};

use super::*;
use crate::hand_over::files::Leaving;
use crate::sessions::fixture::{sleeping_worker, sleeping_worker_with};
use crate::sessions::session::End;
use crate::sessions::session::tests::Fixture;

/// Longer than any step of a test.
const LONG: Duration = Duration::from_secs(20);
const CONTENTS: &[u8] = b"all that the session is";
/// The device memory that the other worker is charged for.
const DEVICE_MEMORY: u64 = 5;

/// What the other worker sends on its link in place of an answer to this request, and what the reason must have.
type Fault<'a> = (&'a dyn Fn(&UnixStream, u64), &'a str);

/// A session that goes over to another worker. The test plays both.
struct Going {
    fixture: Fixture,
    /// The other worker's end of its link.
    link: UnixStream,
    pids: [u32; 2],
    renewing: JoinHandle<Result<(), RenewalError>>,
}

impl Going {
    fn new() -> Self {
        Self::of(Fixture::new())
    }

    fn of(fixture: Fixture) -> Self {
        let (worker, link) = sleeping_worker_with(DEVICE_MEMORY);
        let pids = [fixture.session.worker_pid(), worker.process.pid()];
        let session = fixture.session.clone();
        let renewing = thread::spawn(move || {
            let host = Budget::new(4096).charge(4096).unwrap();
            session.renew(worker, &host, true, |_| Ok(()))
        });
        Self { fixture, link, pids, renewing }
    }

    /// Takes the request to enter, and returns it with the pipe.
    fn enters(&self) -> (u64, File) {
        assert_eq!(receive(&self.link).header.kind, TO_MEMORY);
        let frame = receive(&self.link);
        assert_eq!((frame.header.kind, pool_of(&frame.payload)), (TO_ENTER, Some(4096)));
        assert_eq!(frame.header.flags, ENTERS_RUNNING, "it makes all objects before it answers");
        (frame.header.id, frame.file.unwrap())
    }

    /// Takes the request to leave, and returns it with the pipe.
    fn leaves(&self) -> (u64, File) {
        let frame = receive(&self.fixture.worker);
        assert_eq!(frame.header.kind, TO_LEAVE);
        (frame.header.id, frame.file.unwrap())
    }

    /// The old worker writes the session and leaves. Returns the request to enter.
    fn passes_on(&self) -> u64 {
        let (id, mut pipe) = self.enters();
        let (leave, mut writer) = self.leaves();
        writer.write_all(CONTENTS).unwrap();
        drop(writer);
        answer(&self.fixture.worker, leave, None);
        let mut contents = Vec::new();
        pipe.read_to_end(&mut contents).unwrap();
        assert_eq!(contents, CONTENTS, "the daemon has closed its ends of the pipe");
        id
    }

    /// Checks that the session has ended with both workers.
    fn has_ended(self, how: End) {
        assert_eq!(self.fixture.ended.recv_timeout(LONG), Ok(how));
        assert!(self.renewing.join().unwrap().is_err());
        self.fixture.running.join().unwrap();
        assert_eq!(self.pids.map(exists), [false; 2], "a worker is left");
    }

    /// Checks that the session goes on with its old worker, to which `waiting` was submitted meanwhile, and that the other one has
    /// ended.
    fn has_stayed(self, waiting: &[&[u8]], after_leaving: bool) -> RenewalError {
        let Self { mut fixture, pids, renewing, .. } = self;
        let error = renewing.join().unwrap().unwrap_err();
        assert!(!exists(pids[1]));
        if after_leaving {
            assert_eq!(receive(&fixture.worker).header.kind, TO_STAY);
        }
        for payload in waiting {
            assert_eq!(receive(&fixture.worker).payload, *payload);
        }
        fixture.submit(b"after");
        let call = receive(&fixture.worker);
        assert_eq!((&call.payload[..], fixture.session.worker_pid()), (&b"after"[..], pids[0]));
        let answered = fixture.guest.used().len();
        fixture.reply(call.header.id, b"done");
        fixture.guest.wait_used(answered + 1);
        assert!(fixture.session.goes_on() && fixture.session.state.lock().fresh.is_none());
        error
    }
}

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn receive(link: &UnixStream) -> Frame {
    link.set_read_timeout(Some(LONG)).unwrap();
    receive_frame(link).unwrap().unwrap()
}

fn answer(link: &UnixStream, id: u64, obstacle: Option<&str>) {
    let header = FromWorker { kind: FROM_REPLY, id, ..FromWorker::default() };
    let answer = Description { obstacle: obstacle.map(str::to_owned), ..Description::default() };
    send_reply(link, &header, &answer.to_bytes()).unwrap();
}

fn wake(link: &UnixStream) {
    send_reply(link, &FromWorker { kind: FROM_WAKE, ..FromWorker::default() }, &[]).unwrap();
}

#[test]
fn requests_wait_for_the_worker_that_gets_the_session() {
    let mut fixture = Fixture::new();
    let memory = Budget::new(usize::MAX);
    fixture.session.keep_pool(POOL_BLOCK_BYTES, |bytes| memory.charge_up_to(bytes as usize));
    assert_eq!(receive(&fixture.worker).header.kind, TO_POOL);
    fixture.submit(b"before");
    let before = receive(&fixture.worker).header.id;
    let mut going = Going::of(fixture);
    let enter = going.passes_on();
    assert_eq!(going.fixture.session.recipe().err(), Some(AskError::Away), "nobody can answer");
    let waiting = [b"first", b"later"];
    waiting.iter().for_each(|payload| going.fixture.submit(*payload));
    going.fixture.session.update_memory();
    assert!(exists(going.pids[0]), "it may have to stay");
    wake(&going.link);
    answer(&going.link, enter, None);
    going.renewing.join().unwrap().unwrap();
    let Fixture { session, guest, worker, .. } = going.fixture;
    assert!(!exists(going.pids[0]) && session.worker_pid() == going.pids[1]);
    assert_eq!((session.device_memory(), session.residence().moves().renewals), (DEVICE_MEMORY, 1));
    assert!(receive_frame(&worker).unwrap().is_none(), "the old one has got nothing more");
    let pool = receive(&going.link);
    assert_eq!((pool.header.kind, pool_of(&pool.payload)), (TO_POOL, Some(POOL_BLOCK_BYTES)));
    assert_eq!(receive(&going.link).header.kind, TO_MEMORY);
    let mut ids = vec![before];
    for payload in waiting {
        let call = receive(&going.link);
        assert_eq!(call.payload, payload);
        ids.push(call.header.id);
    }
    for (index, id) in ids.into_iter().enumerate() {
        let header = FromWorker { kind: FROM_REPLY, id, ..FromWorker::default() };
        send_reply(&going.link, &header, &[index as u8]).unwrap();
        guest.wait_used(index + 1);
        assert_eq!(guest.reply(2 * index as u32), (REPLY_OK, vec![index as u8]));
    }
    session.kill();
}

#[test]
fn a_session_goes_over_as_often_as_one_likes() {
    let mut fixture = Fixture::new();
    for count in 1..=5 {
        let going = Going::of(fixture);
        let enter = going.passes_on();
        answer(&going.link, enter, None);
        going.renewing.join().unwrap().unwrap();
        fixture = Fixture { worker: going.link, ..going.fixture };
        fixture.submit(b"x");
        let call = receive(&fixture.worker);
        fixture.reply(call.header.id, b"y");
        fixture.guest.wait_used(count);
    }
    assert_eq!(fixture.session.residence().moves().renewals, 5);
    fixture.session.kill();
    assert_eq!(fixture.ended.recv_timeout(LONG), Ok(End::Closed));
}

#[test]
fn a_session_that_cannot_leave_stays() {
    let mut going = Going::new();
    let (leave, _) = going.leaves();
    going.fixture.submit(b"meanwhile");
    answer(&going.fixture.worker, leave, Some("a call waits"));
    let error = going.has_stayed(&[b"meanwhile"], false);
    assert_eq!(error.to_string(), "a call waits");
}

#[test]
fn a_worker_that_does_not_take_the_session_ends_and_the_other_one_keeps_it() {
    let reply = |link: &UnixStream, id: u64, status: u32, payload: &[u8]| {
        let header = FromWorker { kind: FROM_REPLY, id, status, ..FromWorker::default() };
        send_reply(link, &header, payload).unwrap();
    };
    let good = Description::default().to_bytes();
    let faults: [Fault<'_>; 6] = [
        (&|link, id| answer(link, id, Some("no memory")), "no memory"),
        (&|link, id| reply(link, id, REPLY_INVALID, &good), "no valid answer"),
        (&|link, id| reply(link, id, REPLY_OK, &good[1..]), "no valid answer"),
        (&|link, id| reply(link, id + 1, REPLY_OK, &good), "nobody asked"),
        (&|link, _| (0..2).for_each(|_| wake(link)), "nobody asked"),
        (&|link, _| link.shutdown(std::net::Shutdown::Both).unwrap(), "has ended"),
    ];
    for (fault, why) in faults {
        let mut going = Going::new();
        let enter = going.passes_on();
        for payload in [b"first", b"later"] {
            going.fixture.submit(payload);
        }
        fault(&going.link, enter);
        let error = going.has_stayed(&[b"first", b"later"], true).to_string();
        assert!(error.starts_with("the other worker does not take it") && error.contains(why), "{error}");
    }
}

/// The old worker notices only that nobody reads.
#[test]
fn the_reason_is_that_of_the_worker_that_fails_first() {
    let going = Going::new();
    let (enter, pipe) = going.enters();
    let (leave, _) = going.leaves();
    drop(pipe);
    answer(&going.link, enter, Some("an unknown part"));
    thread::sleep(Duration::from_millis(50));
    answer(&going.fixture.worker, leave, Some("Broken pipe"));
    let error = going.has_stayed(&[], false).to_string();
    assert!(error.contains("an unknown part"), "{error}");
}

#[test]
fn memory_that_changes_is_told_to_the_worker_that_keeps_the_session() {
    let going = Going::new();
    let enter = going.passes_on();
    going.fixture.session.update_memory();
    answer(&going.link, enter, Some("no"));
    assert_eq!(receive(&going.fixture.worker).header.kind, TO_STAY);
    assert_eq!(receive(&going.fixture.worker).header.kind, TO_MEMORY);
    going.has_stayed(&[], false);
}

#[test]
fn whoever_ends_at_any_step_leaves_nothing() {
    let shut = |link: &UnixStream| link.shutdown(std::net::Shutdown::Both).unwrap();
    for step in 0..3 {
        let at_step = || {
            let mut going = Going::new();
            match step {
                0 => drop(going.enters()),
                1 => drop((going.enters(), going.leaves())),
                _ => drop(going.passes_on()),
            }
            going.fixture.submit(b"outstanding");
            going
        };
        let lost = at_step();
        shut(&lost.fixture.worker);
        lost.has_ended(End::Lost);
        let closed = at_step();
        closed.fixture.session.kill();
        closed.has_ended(End::Closed);
        let mut closed = at_step();
        closed.fixture.close();
        closed.has_ended(End::Closed);
    }
}

#[test]
fn requests_that_wait_are_answered_when_the_session_ends() {
    let mut going = Going::new();
    going.passes_on();
    going.fixture.submit(b"waits");
    going.fixture.session.end_worker();
    assert_eq!(going.fixture.ended.recv_timeout(LONG), Ok(End::Lost));
    going.fixture.guest.wait_used(1);
    assert_eq!(going.fixture.guest.reply(0), (REPLY_SESSION_LOST, vec![]));
    assert!(going.renewing.join().unwrap().is_err());
}

#[test]
fn an_old_worker_that_says_nothing_or_nonsense_is_ended() {
    let going = Going::new();
    let (leave, _) = going.leaves();
    let header = FromWorker { kind: FROM_REPLY, id: leave, ..FromWorker::default() };
    send_reply(&going.fixture.worker, &header, b"short").unwrap();
    going.has_ended(End::Lost);
    let fixture = Fixture::new();
    let (_, writer) = io::pipe().unwrap();
    let stuck = fixture.session.leave(Vec::new(), writer.into(), Duration::from_millis(50), 0);
    assert!(matches!(stuck, Err(RenewalError::Unanswered(AskError::Stuck))), "{stuck:?}");
    assert_eq!(fixture.ended.recv_timeout(LONG), Ok(End::Lost));
}

#[test]
fn a_fresh_worker_has_no_endless_time() {
    let (worker, link) = sleeping_worker();
    let fresh = Assigned { worker, named: None };
    wake(&link);
    let failed = super::receive(&fresh, 1, Duration::from_millis(50));
    assert!(matches!(failed, Err(Entering::Failed(error)) if error.kind() == io::ErrorKind::TimedOut));
}

#[test]
fn the_program_is_not_replaced_meanwhile() {
    let fixture = Fixture::new();
    let renewing = fixture.session.residence().renew(Instant::now()).unwrap();
    let save = || fixture.session.save(&mut Leaving::default());
    assert!(save().unwrap_err().contains("another worker"));
    drop(renewing);
    // Its last message may not have been written yet.
    while save().is_err() {
        thread::yield_now();
    }
}
