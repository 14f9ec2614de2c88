// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use vhost_cuda_common::link::{
    MOVED, MOVED_BEFORE, NOT_IDLE, NOTHING_MOVABLE, TO_CONTENTS, TO_ENTER, TO_LEAVE, TO_RESUME, TO_STAY,
    VERSION_OF_CONTENTS,
};

use super::super::tests::{Fixture, LONG, MIB, SECOND, Script, plain};
use super::*;
use crate::sessions::fixture::sleeping_worker_with;
use crate::sessions::session::End;
use crate::suspend::suspender::Options;

/// Workers that take sessions as a test has set.
#[derive(Default)]
struct Fresh {
    /// The reason for which they take none.
    obstacle: Option<String>,
    /// Their outcome of a resumption, if it is not the usual one.
    resume: Option<u32>,
    /// The version of the link that they speak, if it is not this one.
    version: Option<u32>,
    /// The number of workers that cannot be had.
    missing: AtomicUsize,
    given: Mutex<Vec<(Arc<UnixStream>, Arc<Script>)>>,
    back: AtomicUsize,
}

impl Workers for Fresh {
    fn take(&self) -> Result<Worker, String> {
        let missing = |left: usize| left.checked_sub(1);
        if self.missing.try_update(Ordering::Relaxed, Ordering::Relaxed, missing).is_ok() {
            return Err("the card is full".into());
        }
        let (mut worker, link) = sleeping_worker_with(8 * MIB);
        worker.version = self.version.unwrap_or(worker.version);
        let (link, script) = (Arc::new(link), Arc::<Script>::default());
        *script.obstacle.lock() = self.obstacle.clone();
        self.resume.into_iter().for_each(|outcome| script.resume.store(outcome, Ordering::Relaxed));
        let (theirs, played) = (link.clone(), script.clone());
        thread::spawn(move || played.play(&theirs));
        self.given.lock().push((link, script));
        Ok(worker)
    }

    fn put_back(&self, worker: Worker) {
        assert!(worker.process.is_running());
        self.back.fetch_add(1, Ordering::Relaxed);
    }

    fn assign(&self, _: &Worker) -> io::Result<()> {
        Ok(())
    }
}

impl Fresh {
    /// Returns the number of workers that were asked, and that were given back.
    fn counts(&self, kind: u32) -> (usize, usize) {
        let given = self.given.lock();
        let asked = given.iter().filter(|(_, script)| script.has_got(kind)).count();
        (asked, self.back.load(Ordering::Relaxed))
    }
}

#[test]
fn a_session_that_runs_runs_again_and_others_stay_suspended() {
    let suspender = plain();
    let (fixture, fresh) = (Fixture::new(&suspender, 1, 1), Fresh::default());
    let before = fixture.session.worker_pid();
    suspender.renew(&fixture.session, SECOND, &fresh).unwrap();
    assert_ne!(fixture.session.worker_pid(), before);
    assert_eq!((fixture.state(), suspender.host_memory().0), ("running", 0));
    assert_eq!((fresh.counts(TO_ENTER), fresh.counts(TO_RESUME)), ((1, 0), (1, 0)));
    assert_eq!((fixture.asked(TO_CONTENTS), fresh.counts(TO_CONTENTS)), (3, (1, 0)), "three chunks");
    // Or its worker has brought it back before it said that it has it.
    let before = Fresh { resume: Some(MOVED_BEFORE), ..Fresh::default() };
    suspender.renew(&fixture.session, SECOND, &before).unwrap();
    assert_eq!((fixture.state(), before.counts(TO_RESUME)), ("running", (1, 0)));
    for hold in [false, true] {
        suspender.suspend(&fixture.session, SECOND, hold).unwrap();
        suspender.renew(&fixture.session, SECOND, &fresh).unwrap();
        assert_eq!(fixture.state(), if hold { "held" } else { "suspended" });
        assert_eq!(suspender.host_memory().0, 6 * MIB, "its contents count once");
    }
    suspender.resume(&fixture.session, SECOND).unwrap();
    let moves = fixture.session.residence().moves();
    assert_eq!((moves.renewals, moves.resumes, moves.failures), (4, 3, 0));
}

#[test]
fn calls_that_wait_do_not_bring_the_session_back_before_it_has_its_worker() {
    let suspender = plain();
    let (fixture, fresh) = (Fixture::new(&suspender, 1, 1), Fresh::default());
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    let renewing = fixture.session.residence().renew(Instant::now()).unwrap();
    assert!(matches!(
        suspender.renew(&fixture.session, SECOND, &fresh),
        Err(Error::Move(MoveError::Renewing))
    ));
    fixture.wake();
    thread::scope(|scope| {
        let resuming = scope.spawn(|| suspender.resume(&fixture.session, LONG));
        thread::sleep(Duration::from_millis(100));
        assert_eq!((fixture.state(), fixture.asked(TO_RESUME)), ("suspended", 0));
        fixture.session.refuse_resume();
        assert!(fixture.session.residence().moves().wanted, "the call waits on");
        drop(renewing);
        assert!(resuming.join().unwrap().unwrap().is_some());
    });
    // The wake-up alone does it, too.
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    let renewing = fixture.session.residence().renew(Instant::now()).unwrap();
    fixture.wake();
    while !fixture.session.residence().moves().wanted {
        thread::yield_now();
    }
    drop(renewing);
    suspender.renew(&fixture.session, SECOND, &fresh).unwrap();
    fixture.reaches("running");
}

#[test]
fn every_failure_leaves_the_session_with_its_worker_as_it_ran() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    let before = fixture.session.worker_pid();
    let fails = |fresh: &Fresh, why: &str| {
        let error = suspender.renew(&fixture.session, SECOND, fresh).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!((fixture.session.worker_pid(), fixture.state()), (before, "running"));
        assert_eq!(suspender.host_memory().0, 0);
    };
    let fresh = Fresh::default();
    fixture.script.suspend.store(NOT_IDLE, Ordering::Relaxed);
    fails(&fresh, "did not end within the time limit");
    fixture.script.suspend.store(NOTHING_MOVABLE, Ordering::Relaxed);
    fails(&fresh, "no memory that can be moved");
    fixture.script.suspend.store(MOVED, Ordering::Relaxed);
    assert_eq!(fresh.counts(TO_ENTER), (0, 2), "they are given back");
    *fixture.script.obstacle.lock() = Some("a link is under way".into());
    fails(&fresh, "a link is under way");
    assert_eq!(fixture.asked(TO_STAY), 0, "it has never left");
    *fixture.script.obstacle.lock() = None;
    fails(&Fresh { obstacle: Some("an unknown part".into()), ..Fresh::default() }, "an unknown part");
    fixture.is_asked(TO_STAY);
    fails(&Fresh { missing: AtomicUsize::new(2), ..Fresh::default() }, "the card is full");
    // The card has room when the session has left it.
    let late = Fresh { missing: AtomicUsize::new(1), ..Fresh::default() };
    suspender.renew(&fixture.session, SECOND, &late).unwrap();
    assert_ne!(fixture.session.worker_pid(), before);
}

#[test]
fn a_session_may_fail_to_leave_as_often_as_one_likes() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    suspender.suspend(&fixture.session, SECOND, true).unwrap();
    *fixture.script.obstacle.lock() = Some("a link is under way".into());
    for _ in 0..10 {
        let error = suspender.renew(&fixture.session, SECOND, &Fresh::default()).unwrap_err();
        assert_eq!(error.to_string(), "a link is under way");
        // Its calls wait at the gate again.
        fixture.wake();
    }
    suspender.resume(&fixture.session, SECOND).unwrap();
    fixture.reaches("running");
}

#[test]
fn host_memory_must_have_room_for_contents_that_are_copied() {
    let suspender =
        Suspender::start(Options { host_memory: Some(10 * MIB), ..Options::default() }, Arc::default(), None)
            .unwrap();
    let version = Some(VERSION_OF_CONTENTS - 1);
    let (fixture, fresh) = (Fixture::new(&suspender, 1, 1), Fresh { version, ..Fresh::default() });
    let error = suspender.renew(&fixture.session, SECOND, &fresh).unwrap_err().to_string();
    assert!(error.contains("not enough host memory"), "{error}");
    assert_eq!((fixture.state(), fixture.asked(TO_LEAVE), fresh.counts(TO_ENTER)), ("running", 0, (0, 1)));
    assert_eq!(fixture.asked(TO_CONTENTS), 0);
    suspender.renew(&fixture.session, SECOND, &Fresh::default()).unwrap();
    assert_eq!(fixture.asked(TO_CONTENTS), 3);
}

#[test]
fn a_worker_that_has_got_a_session_can_leave_it_too() {
    let suspender = plain();
    let (mut fixture, fresh) = (Fixture::new(&suspender, 1, 1), Fresh::default());
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    suspender.renew(&fixture.session, SECOND, &fresh).unwrap();
    suspender.resume(&fixture.session, SECOND).unwrap();
    // Its worker is the one that was given last.
    let (_, script) = fresh.given.lock()[0].clone();
    script.obstacle.lock().replace("it stays".into());
    assert!(suspender.renew(&fixture.session, SECOND, &fresh).is_err());
    script.obstacle.lock().take();
    suspender.renew(&fixture.session, SECOND, &fresh).unwrap();
    assert_eq!(fixture.end(), End::Closed);
    assert!(matches!(suspender.renew(&fixture.session, SECOND, &fresh), Err(Error::Move(MoveError::Ended))));
}
