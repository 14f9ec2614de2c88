// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use vhost_cuda_common::link::{
    FROM_REPLY, FROM_WAKE, FromWorker, IN_PIECES, MOVED, MOVED_IN_PART, MoveTerms, NO_DEVICE_MEMORY,
    NO_HOST_MEMORY, NOT_IDLE, TO_DEEPEN, TO_ENTER, TO_FORGET, TO_LEAVE, TO_POOL, TO_RESUME,
    TO_RESUME_REFUSED, TO_SUSPEND, move_terms_of, pool_of, receive_frame, send_reply,
};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::{Open, REPLY_INVALID, REPLY_OK};
use zerocopy::IntoBytes;

use super::*;
use crate::sessions::fixture::sleeping_worker_with;
use crate::sessions::session::{End, Place};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Longer than any step of a test.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// A session whose worker answers moves with the outcomes that a test has set.
pub(super) struct Fixture {
    pub(super) session: Arc<Session>,
    pub(super) link: Arc<UnixStream>,
    pub(super) script: Arc<Script>,
    running: Option<JoinHandle<End>>,
}

/// What the worker answers, and what it was asked.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) suspend: AtomicU32,
    pub(super) resume: AtomicU32,
    /// The reason for which the session does not leave.
    pub(super) obstacle: Mutex<Option<String>>,
    /// A card that it shares with others. Then that decides what it answers.
    card: Mutex<Option<(Arc<Card>, Share)>>,
    /// The numbers of each kind of request.
    asked: Mutex<Vec<u32>>,
    budgets: Mutex<Vec<u64>>,
    /// The devices of each suspension.
    devices: Mutex<Vec<u64>>,
    /// The devices that it says are full.
    full: AtomicU64,
    /// The pools that it was told to keep.
    pools: Mutex<Vec<u64>>,
}

/// An outcome that means: no answer.
pub(super) const SILENCE: u32 = 100;
/// An outcome that means: the request is refused.
const REFUSED: u32 = 101;
/// An outcome that means: an answer of a wrong size.
const GARBAGE: u32 = 102;

impl Fixture {
    pub(super) fn new(suspender: &Arc<Suspender>, label: u64, connection: u64) -> Self {
        Self::with(suspender, label, connection, 8 * MIB)
    }

    /// One with so much device memory.
    fn with(suspender: &Arc<Suspender>, label: u64, connection: u64, bytes: u64) -> Self {
        let (worker, theirs) = sleeping_worker_with(bytes);
        let open = Open { pid: label as u32, uid: 0, charged_uid: 0, name: *b"program\0\0\0\0\0\0\0\0\0" };
        let endings = suspender.endings.clone();
        let session = Session::new(
            label,
            label,
            &open,
            Place::default(),
            worker,
            endings.clone(),
            Box::new(Arc::default),
        );
        let (link, script) = (Arc::new(theirs), Arc::<Script>::default());
        let (ends, played) = (link.clone(), script.clone());
        thread::spawn(move || played.play(&ends));
        let (runner, left) = (session.clone(), suspender.clone());
        let (open, opened) = channel();
        let running = thread::spawn(move || {
            let mut how = End::Lost;
            let begin = || {
                left.join(connection, Machine::Virtual(connection), &runner, Ages::default());
                open.send(()).unwrap();
            };
            runner.run(begin, |end| how = end);
            left.leave(label);
            endings.ended(label);
            how
        });
        opened.recv().unwrap();
        Self { session, link, script, running: Some(running) }
    }

    /// Lets it have been idle for long.
    fn age(&self, suspender: &Suspender) {
        let mut sessions = suspender.sessions.lock();
        let entry = sessions.get_mut(&self.session.label()).unwrap();
        entry.idle_since = entry.idle_since.checked_sub(600 * SECOND).unwrap();
        entry.tried = None;
    }

    pub(super) fn wake(&self) {
        let header = FromWorker { kind: FROM_WAKE, ..FromWorker::default() };
        send_reply(&self.link, &header, &[]).unwrap();
    }

    pub(super) fn asked(&self, kind: u32) -> usize {
        self.script.asked.lock().iter().filter(|&&other| other == kind).count()
    }

    pub(super) fn state(&self) -> &'static str {
        self.session.residence().moves().state()
    }

    /// Waits until the session's state is this one.
    pub(super) fn reaches(&self, state: &str) {
        let deadline = Instant::now() + LONG;
        while self.state() != state {
            assert!(Instant::now() < deadline, "it is {} and not {state}", self.state());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until its worker was asked.
    pub(super) fn is_asked(&self, kind: u32) {
        let deadline = Instant::now() + LONG;
        while self.asked(kind) == 0 {
            assert!(Instant::now() < deadline, "its worker was not asked ({kind})");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until its worker was told to keep this pool.
    fn is_told(&self, pool: u64) {
        let deadline = Instant::now() + LONG;
        while !self.script.pools.lock().contains(&pool) {
            assert!(Instant::now() < deadline, "its worker was not told of {pool} bytes");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn end(&mut self) -> End {
        self.session.kill();
        self.running.take().unwrap().join().unwrap()
    }
}

/// A card with too little room for all, in parts of a MiB.
#[derive(Debug)]
struct Card {
    free: Mutex<u64>,
}

/// The memory of one worker on it.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    on_card: u64,
    stored: u64,
}

impl Card {
    /// Lets a worker answer by what there is. `on_card` MiB of its memory are there.
    fn holds(self: &Arc<Self>, fixture: &Fixture, on_card: u64) {
        *self.free.lock() -= on_card;
        *fixture.script.card.lock() = Some((self.clone(), Share { on_card, stored: 0 }));
    }

    /// Moves memory out of the card or back, as a worker does. All of it, unless in pieces.
    fn answer(&self, share: &mut Share, leaves: bool, terms: MoveTerms) -> Moved {
        let mut free = self.free.lock();
        let in_pieces = terms.flags == IN_PIECES;
        let (wanted, room, short) = if leaves {
            (share.on_card, terms.budget_bytes / MIB - share.stored, NO_HOST_MEMORY)
        } else {
            (share.stored, *free, NO_DEVICE_MEMORY)
        };
        let moves = wanted.min(room);
        if moves < wanted && !in_pieces || moves == 0 {
            return Moved { outcome: short, ..Moved::default() };
        }
        if leaves {
            (share.on_card, share.stored, *free) =
                (share.on_card - moves, share.stored + moves, *free + moves);
        } else {
            (share.on_card, share.stored, *free) =
                (share.on_card + moves, share.stored - moves, *free - moves);
        }
        let outcome = if leaves || share.stored == 0 { MOVED } else { MOVED_IN_PART };
        let (moved_bytes, movable_bytes) = (share.stored * MIB, share.on_card * MIB);
        Moved { outcome, moved_bytes, stored_bytes: moved_bytes, movable_bytes, ..Moved::default() }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Its threads end with the worker's process.
        self.session.kill();
    }
}

impl Script {
    /// Returns whether its worker was asked.
    pub(super) fn has_got(&self, kind: u32) -> bool {
        self.asked.lock().contains(&kind)
    }

    pub(super) fn play(&self, link: &UnixStream) {
        while let Ok(Some(frame)) = receive_frame(link) {
            let (kind, id) = (frame.header.kind, frame.header.id);
            self.asked.lock().push(kind);
            if [TO_DEEPEN, TO_LEAVE, TO_ENTER].contains(&kind) {
                let obstacle = self.obstacle.lock().clone().filter(|_| kind != TO_DEEPEN);
                let header = FromWorker { kind: FROM_REPLY, id, ..FromWorker::default() };
                let answer = Description { obstacle, ..Description::default() };
                if send_reply(link, &header, &answer.to_bytes()).is_err() {
                    return;
                }
            }
            let outcome = match kind {
                TO_SUSPEND => {
                    let terms = move_terms_of(&frame.payload).unwrap();
                    self.budgets.lock().push(terms.budget_bytes);
                    self.devices.lock().push(terms.devices);
                    self.suspend.load(Ordering::Relaxed)
                }
                TO_RESUME => self.resume.load(Ordering::Relaxed),
                TO_POOL => {
                    self.pools.lock().push(pool_of(&frame.payload).unwrap());
                    continue;
                }
                _ => continue,
            };
            let mut moved = Moved {
                outcome,
                moved_bytes: 8 * MIB,
                stored_bytes: 6 * MIB,
                resident_bytes: MIB,
                full_devices: self.full.load(Ordering::Relaxed),
                ..Moved::default()
            };
            if let Some((card, share)) = &mut *self.card.lock() {
                moved = card.answer(share, kind == TO_SUSPEND, move_terms_of(&frame.payload).unwrap());
            }
            let status = if outcome == REFUSED { REPLY_INVALID } else { REPLY_OK };
            let header = FromWorker { kind: FROM_REPLY, id, status, ..FromWorker::default() };
            let bytes = moved.as_bytes();
            let payload = if outcome == GARBAGE { &bytes[1..] } else { bytes };
            if outcome != SILENCE && send_reply(link, &header, payload).is_err() {
                return;
            }
        }
    }
}

pub(super) fn suspender(options: Options) -> Arc<Suspender> {
    Suspender::start(Options { host_memory: Some(1 << 30), ..options }, Arc::default(), None).unwrap()
}

pub(super) fn plain() -> Arc<Suspender> {
    suspender(Options::default())
}

fn crowded() -> Arc<Suspender> {
    suspender(Options { after: Some(60 * SECOND), ..Options::default() })
}

fn failed(outcome: u32) -> Result<Option<Moved>, MoveError> {
    Err(MoveError::Failed { outcome, cuda: 0, devices: 0 })
}

#[test]
fn a_session_goes_and_comes_back_as_often_as_one_likes() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    for count in 1..=100 {
        let moved = suspender.suspend(&fixture.session, SECOND, false).unwrap().unwrap();
        assert_eq!((moved.outcome, moved.moved_bytes, fixture.state()), (MOVED, 8 * MIB, "suspended"));
        assert_eq!(suspender.host_memory(), (6 * MIB, Some(1 << 30)));
        assert_eq!(suspender.suspend(&fixture.session, SECOND, false), Ok(None), "it is already");
        assert!(suspender.resume(&fixture.session, SECOND).unwrap().is_some());
        assert_eq!((fixture.state(), suspender.host_memory().0), ("running", 0));
        assert_eq!(suspender.resume(&fixture.session, SECOND), Ok(None));
        let moves = fixture.session.residence().moves();
        assert_eq!((moves.suspensions, moves.resumes, moves.failures), (count, count, 0));
        assert_eq!((moves.suspended_bytes, moves.stored_bytes), (0, 0));
    }
}

#[test]
fn a_call_that_waits_brings_its_session_back_unless_it_is_held() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    fixture.wake();
    fixture.reaches("running");
    suspender.suspend(&fixture.session, SECOND, true).unwrap();
    fixture.wake();
    thread::sleep(Duration::from_millis(100));
    assert_eq!((fixture.state(), fixture.asked(TO_RESUME)), ("held", 1));
    assert!(fixture.session.residence().moves().wanted);
    suspender.resume(&fixture.session, SECOND).unwrap();
    assert_eq!(fixture.state(), "running");
    assert!(!fixture.session.residence().moves().wanted);
}

#[test]
fn every_failure_leaves_the_session_as_it_was() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    for outcome in [NOT_IDLE, NO_HOST_MEMORY, 5, 7] {
        fixture.script.suspend.store(outcome, Ordering::Relaxed);
        assert_eq!(suspender.suspend(&fixture.session, SECOND, true), failed(outcome));
        assert_eq!((fixture.state(), suspender.host_memory().0), ("running", 0));
    }
    for outcome in [REFUSED, GARBAGE] {
        fixture.script.suspend.store(outcome, Ordering::Relaxed);
        assert_eq!(suspender.suspend(&fixture.session, SECOND, true), failed(u32::MAX));
    }
    assert_eq!(fixture.session.residence().moves().failures, 5, "nothing to move is none");
    fixture.script.suspend.store(MOVED, Ordering::Relaxed);
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    for outcome in [NO_DEVICE_MEMORY, 5, 6] {
        fixture.script.resume.store(outcome, Ordering::Relaxed);
        let time = Duration::from_millis(100);
        assert_eq!(suspender.resume(&fixture.session, time), failed(outcome));
        assert_eq!((fixture.state(), suspender.host_memory().0), ("suspended", 6 * MIB));
    }
    fixture.script.resume.store(MOVED, Ordering::Relaxed);
    assert!(suspender.resume(&fixture.session, SECOND).unwrap().is_some());
    assert!(fixture.session.residence().moves().failures > 6);
}

#[test]
fn calls_are_refused_when_their_memory_cannot_come_back() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    fixture.script.resume.store(6, Ordering::Relaxed);
    fixture.wake();
    fixture.is_asked(TO_RESUME_REFUSED);
    assert_eq!(fixture.state(), "suspended");
    // A wake-up that was reported before the refusal comes late: no call waits for it any more.
    suspender.wakes.send(fixture.session.label()).unwrap();
    let other = Fixture::new(&suspender, 2, 2);
    suspender.suspend(&other.session, SECOND, false).unwrap();
    other.wake();
    other.reaches("running");
    assert_eq!((fixture.state(), fixture.asked(TO_RESUME)), ("suspended", 1));
    // The next call tries again.
    fixture.script.resume.store(MOVED, Ordering::Relaxed);
    fixture.wake();
    fixture.reaches("running");
}

#[test]
fn a_session_that_ends_on_its_way_is_waited_for_by_nobody() {
    let suspender = plain();
    for (suspend, resume) in [(SILENCE, MOVED), (MOVED, SILENCE)] {
        let mut fixture = Fixture::new(&suspender, 1, 1);
        fixture.script.suspend.store(suspend, Ordering::Relaxed);
        fixture.script.resume.store(resume, Ordering::Relaxed);
        let (session, moving) = (fixture.session.clone(), suspender.clone());
        let mover = thread::spawn(move || {
            let suspended = moving.suspend(&session, SECOND, false);
            suspended.and_then(|_| moving.resume(&session, SECOND))
        });
        fixture.reaches(if suspend == SILENCE { "suspending" } else { "resuming" });
        let moment = Duration::from_millis(20);
        assert_eq!(suspender.suspend(&fixture.session, moment, false), Err(MoveError::Busy));
        fixture.end();
        assert_eq!(mover.join().unwrap(), Err(MoveError::Ended));
        assert_eq!(suspender.host_memory().0, 0);
        assert!(suspender.members(Selection::All).is_empty());
        assert_eq!(suspender.suspend(&fixture.session, SECOND, false), Err(MoveError::Ended));
    }
}

#[test]
fn a_suspended_session_ends_without_coming_back() {
    let suspender = plain();
    let mut fixture = Fixture::new(&suspender, 1, 1);
    suspender.suspend(&fixture.session, SECOND, true).unwrap();
    assert_eq!(fixture.end(), End::Closed);
    assert_eq!((fixture.asked(TO_RESUME), suspender.host_memory().0), (0, 0));
}

#[test]
fn too_many_wake_ups_and_answers_that_nobody_waits_for_end_the_session() {
    let suspender = plain();
    let mut fixture = Fixture::new(&suspender, 1, 1);
    fixture.wake();
    assert_eq!(fixture.running.take().unwrap().join().unwrap(), End::Lost);
    let mut fixture = Fixture::new(&suspender, 2, 1);
    suspender.suspend(&fixture.session, SECOND, false).unwrap();
    let header = FromWorker { kind: FROM_REPLY, id: 1, ..FromWorker::default() };
    send_reply(&fixture.link, &header, Moved::default().as_bytes()).unwrap();
    assert_eq!(fixture.running.take().unwrap().join().unwrap(), End::Lost);
}

#[test]
fn the_longest_idle_session_of_any_machine_makes_room() {
    let suspender = crowded();
    let fixtures = [1, 2, 3].map(|label| Fixture::new(&suspender, label, label));
    assert!(!suspender.make_room(Some(1), 0), "none is idle");
    for fixture in &fixtures {
        fixture.age(&suspender);
    }
    fixtures[1].age(&suspender);
    assert!(suspender.make_room(Some(1), 0));
    assert_eq!(fixtures.each_ref().map(Fixture::state), ["running", "suspended", "running"]);
    assert!(suspender.make_room(Some(1), 0) && !suspender.make_room(Some(1), 0));
    assert_eq!(fixtures.each_ref().map(Fixture::state), ["running", "suspended", "suspended"]);
    assert!(fixtures[1].script.budgets.lock()[0] >= 16 * MIB);
}

/// Workers have memory on their first device only.
#[test]
fn room_is_made_on_the_device_that_needs_it() {
    let suspender = crowded();
    let [one, other] = [1, 2].map(|label| Fixture::new(&suspender, label, label));
    one.age(&suspender);
    assert!(!suspender.make_room(Some(2), 0b10), "nobody has memory there");
    assert_eq!((one.asked(TO_SUSPEND), one.state()), (0, "running"));
    assert!(suspender.make_room(Some(2), 0b11));
    assert_eq!((one.script.devices.lock().clone(), one.state()), (vec![0b11], "suspended"));
    suspender.resume(&one.session, SECOND).unwrap();

    // The other one comes back to a device that is full.
    suspender.suspend(&other.session, SECOND, false).unwrap();
    other.script.resume.store(NO_DEVICE_MEMORY, Ordering::Relaxed);
    for (full, state) in [(0b10, "running"), (u64::MAX << 1, "running"), (0b01, "suspended")] {
        one.age(&suspender);
        other.script.full.store(full, Ordering::Relaxed);
        let refused = suspender.resume(&other.session, Duration::from_millis(200));
        assert_eq!(refused, Err(MoveError::Failed { outcome: NO_DEVICE_MEMORY, cuda: 0, devices: full }));
        assert_eq!(one.state(), state, "{full:b}");
    }
    assert_eq!(one.script.devices.lock().last(), Some(&0b01));
}

#[test]
fn a_session_with_work_is_not_tried_again_at_once() {
    let suspender = crowded();
    let fixture = Fixture::new(&suspender, 1, 1);
    fixture.age(&suspender);
    fixture.script.suspend.store(NOT_IDLE, Ordering::Relaxed);
    assert!(!suspender.make_room(None, 0) && !suspender.make_room(None, 0));
    assert_eq!(fixture.asked(TO_SUSPEND), 1);
}

#[test]
fn nobody_makes_room_without_the_option() {
    let suspender = plain();
    let fixture = Fixture::new(&suspender, 1, 1);
    fixture.age(&suspender);
    assert!(!suspender.make_room(None, 0));
}

#[test]
fn two_that_do_not_fit_take_turns() {
    let suspender = crowded();
    let [one, other] = [1, 2].map(|label| Fixture::new(&suspender, label, label));
    one.age(&suspender);
    for (waits, goes) in [(&other, &one), (&one, &other), (&other, &one)] {
        if waits.state() == "running" {
            assert!(suspender.make_room(Some(waits.session.label()), 0));
        } else {
            // Its resume finds no room until the other one is gone.
            waits.script.resume.store(NO_DEVICE_MEMORY, Ordering::Relaxed);
            waits.wake();
            thread::sleep(Duration::from_millis(50));
            assert!(waits.state() != "running" && goes.state() == "running");
            goes.age(&suspender);
            goes.reaches("suspended");
            waits.script.resume.store(MOVED, Ordering::Relaxed);
        }
        waits.reaches("running");
        assert_eq!(goes.state(), "suspended");
    }
}

#[test]
fn sessions_pause_and_go_on_with_their_machine_but_for_those_that_are_held() {
    let suspender = plain();
    let [one, held, busy, other] = [1, 2, 3, 4].map(|label| Fixture::new(&suspender, label, label / 4));
    suspender.suspend(&held.session, SECOND, true).unwrap();
    busy.script.suspend.store(NOT_IDLE, Ordering::Relaxed);
    suspender.pause(0);
    let states = || [&one, &held, &busy, &other].map(|fixture| fixture.state());
    assert_eq!(states(), ["suspended", "held", "running", "running"]);
    suspender.unpause(0);
    assert_eq!(states(), ["running", "held", "running", "running"]);
    assert_eq!((held.asked(TO_RESUME), other.asked(TO_SUSPEND)), (0, 0));
}

#[test]
fn idle_sessions_go_even_if_nobody_needs_their_memory() {
    let after = Duration::from_millis(200);
    let suspender = suspender(Options { idle: Some(after), ..Options::default() });
    let begun = Instant::now();
    let [one, busy] = [1, 2].map(|label| Fixture::new(&suspender, label, label));
    busy.script.suspend.store(NOT_IDLE, Ordering::Relaxed);
    one.reaches("suspended");
    assert!(begun.elapsed() >= after);
    // It leaves again soon: a state that does not last is no proof.
    one.wake();
    one.is_asked(TO_RESUME);
    busy.is_asked(TO_SUSPEND);
    assert_ne!(busy.state(), "suspended");
}

#[test]
fn ages_go_over_to_the_next_program() {
    let (before, next) = (crowded(), crowded());
    let fixture = Fixture::new(&before, 1, 1);
    fixture.age(&before);
    assert_eq!(before.ages(2), None, "there is no such session");
    let ages = before.ages(1).unwrap();
    let idle = || next.members(Selection::All)[0].idle;
    next.join(1, Machine::Virtual(1), &fixture.session, ages);
    assert!(idle() >= 600 * SECOND, "{:?}", idle());
    // A call that has ended while the program was being replaced.
    next.join(1, Machine::Virtual(1), &fixture.session, Ages { calls: ages.calls + 1, ..ages });
    assert!(idle() < 600 * SECOND, "{:?}", idle());
}

#[test]
fn contents_are_kept_for_a_while_and_end_when_others_need_their_room() {
    let suspender = suspender(Options { keep: 600 * SECOND, ..Options::default() });
    let fixture = Fixture::new(&suspender, 1, 1);
    let other = Fixture::new(&suspender, 2, 1);
    let (script, session) = (&fixture.script, &fixture.session);
    for round in 0..3 {
        suspender.suspend(session, SECOND, false).unwrap();
        assert!(suspender.resume(session, SECOND).unwrap().is_some());
        assert_eq!((suspender.host_memory().0, fixture.asked(TO_FORGET)), (6 * MIB, 0), "{round}");
    }
    let budgets = script.budgets.lock().clone();
    assert_eq!(budgets[1], budgets[0] + 6 * MIB, "it may use what it has");
    assert_eq!(budgets[2], budgets[1]);
    assert!(!suspender.forget(600 * SECOND), "not yet");

    // Work that goes on changes nothing. After another failure the worker has dropped it.
    script.suspend.store(NOT_IDLE, Ordering::Relaxed);
    assert_eq!(suspender.suspend(session, SECOND, false), failed(NOT_IDLE));
    assert_eq!(suspender.host_memory().0, 6 * MIB);
    script.suspend.store(5, Ordering::Relaxed);
    assert_eq!(suspender.suspend(session, SECOND, false), failed(5));
    assert_eq!(suspender.host_memory().0, 0);
    script.suspend.store(MOVED, Ordering::Relaxed);
    suspender.suspend(session, SECOND, false).unwrap();
    suspender.resume(session, SECOND).unwrap();

    other.script.suspend.store(NO_HOST_MEMORY, Ordering::Relaxed);
    assert_eq!(suspender.suspend(&other.session, SECOND, false), failed(NO_HOST_MEMORY));
    assert_eq!((suspender.host_memory().0, other.asked(TO_SUSPEND)), (0, 2), "tried again with its room");
    fixture.is_asked(TO_FORGET);
    assert_eq!(suspender.suspend(&other.session, SECOND, false), failed(NO_HOST_MEMORY));
    assert_eq!(other.asked(TO_SUSPEND), 3, "there was nothing to forget");
}

/// Card and host memory hold the contents of three sessions together, with little to spare. None finds room for another whole one.
#[test]
fn sessions_that_fill_card_and_host_memory_take_turns_in_pieces() {
    let options = Options { after: Some(60 * SECOND), host_memory: Some(50 * MIB), ..Options::default() };
    let suspender = Suspender::start(options, Arc::default(), None).unwrap();
    let card = Arc::new(Card { free: Mutex::new(60) });
    let fixtures = [1, 2, 3].map(|label| Fixture::new(&suspender, label, label));
    let shares = || {
        fixtures.each_ref().map(|fixture| {
            let share = fixture.script.card.lock().as_ref().unwrap().1;
            (share.on_card, share.stored)
        })
    };
    card.holds(&fixtures[0], 35);
    card.holds(&fixtures[1], 25);
    // The third one starts, and gets memory as others make room for it.
    card.holds(&fixtures[2], 0);
    fixtures[0].age(&suspender);
    assert!(suspender.make_room(Some(3), 0));
    assert_eq!((fixtures[0].state(), shares()), ("suspended", [(0, 35), (25, 0), (0, 0)]));
    card.holds(&fixtures[2], 35);
    for (index, idle) in [(0, [1, 2]), (1, [2, 0]), (2, [0, 1]), (0, [1, 2])] {
        let waits = &fixtures[index];
        for other in idle {
            fixtures[other].age(&suspender);
        }
        if waits.state() == "running" {
            continue;
        }
        waits.wake();
        waits.reaches("running");
        let now = shares();
        assert_eq!(now[index].1, 0, "{now:?}");
        assert_eq!(now.iter().map(|share| share.0 + share.1).sum::<u64>(), 95, "nothing is lost: {now:?}");
        assert!(now.iter().map(|share| share.0).sum::<u64>() <= 60, "{now:?}");
        assert!(now.iter().map(|share| share.1).sum::<u64>() <= 50, "{now:?}");
        let used = suspender.host_memory().0;
        assert_eq!(used, now.iter().map(|share| share.1).sum::<u64>() * MIB, "{now:?}");
    }
    assert!(fixtures.iter().any(|fixture| fixture.session.residence().moves().movable_bytes > 0));
}

#[test]
fn a_session_in_part_is_all_there() {
    let options = Options { after: Some(60 * SECOND), host_memory: Some(20 * MIB), ..Options::default() };
    let suspender = Suspender::start(options, Arc::default(), None).unwrap();
    let card = Arc::new(Card { free: Mutex::new(60) });
    let [one, two] = [1, 2].map(|label| Fixture::new(&suspender, label, label));
    card.holds(&one, 30);
    card.holds(&two, 15);
    one.age(&suspender);
    assert!(suspender.make_room(Some(2), 0));
    let moves = one.session.residence().moves();
    assert_eq!((moves.suspended_bytes, moves.movable_bytes), (20 * MIB, 10 * MIB));
    assert_eq!(suspender.suspend(&one.session, SECOND, true), failed(NO_HOST_MEMORY));
    assert_eq!((one.state(), one.session.residence().moves().movable_bytes), ("suspended", 10 * MIB));
    // It has all of its contents, wherever they are.
    assert!(suspender.resume(&one.session, SECOND).unwrap().is_some());
    let moves = one.session.residence().moves();
    assert_eq!((moves.suspensions, moves.resumes, moves.suspended_bytes), (1, 1, 0));
    assert_eq!((one.state(), *card.free.lock(), suspender.host_memory().0), ("running", 15, 0));
}

#[test]
fn the_pool_is_divided_and_covers_contents() {
    let suspender = suspender(Options { pool: 48 * MIB, keep: 600 * SECOND, ..Options::default() });
    let mut one = Fixture::with(&suspender, 1, 1, 32 * MIB);
    suspender.divide_pool();
    assert_eq!((one.session.residence().pool_bytes(), suspender.host_memory().0), (32 * MIB, 32 * MIB));
    suspender.division.lock().shrunk = Some(Instant::now());
    let two = Fixture::with(&suspender, 2, 2, 32 * MIB);
    suspender.divide_pool();
    assert_eq!(two.session.residence().pool_bytes(), 16 * MIB, "shares do not shrink at once");
    suspender.division.lock().shrunk = None;
    suspender.divide_pool();
    suspender.divide_pool();
    let pools = || [&one, &two].map(|fixture| fixture.session.residence().pool_bytes() / MIB);
    assert_eq!((pools(), suspender.host_memory().0), ([24, 24], 48 * MIB));

    // Contents of 6 MiB lie in the pool, and may take more.
    suspender.suspend(&one.session, SECOND, false).unwrap();
    assert_eq!(suspender.host_memory().0, 48 * MIB);
    assert!(one.script.budgets.lock()[0] > 24 * MIB);
    suspender.resume(&one.session, SECOND).unwrap();
    assert!(one.session.forget());
    assert_eq!(suspender.host_memory().0, 48 * MIB, "its worker keeps the pages");
    one.is_told(32 * MIB);
    one.is_told(24 * MIB);
    one.end();
    suspender.divide_pool();
    assert_eq!((two.session.residence().pool_bytes(), suspender.host_memory().0), (32 * MIB, 32 * MIB));
}

#[test]
fn a_suspension_without_host_memory_gets_that_of_the_pool() {
    let suspender = suspender(Options { pool: 1 << 30, ..Options::default() });
    let [one, two] = [1, 2].map(|label| Fixture::new(&suspender, label, label));
    suspender.divide_pool();
    assert_eq!(suspender.host_memory().0, 16 * MIB);
    two.script.suspend.store(NO_HOST_MEMORY, Ordering::Relaxed);
    assert_eq!(suspender.suspend(&two.session, SECOND, false), failed(NO_HOST_MEMORY));
    assert_eq!(two.asked(TO_SUSPEND), 2, "tried again with the other one's share");
    one.is_told(0);
    suspender.divide_pool();
    assert_eq!(suspender.host_memory().0, 0, "not again at once");
    assert_eq!(suspender.suspend(&two.session, SECOND, false), failed(NO_HOST_MEMORY));
    assert_eq!(two.asked(TO_SUSPEND), 3, "there was nothing to give up");
    suspender.division.lock().given_up = None;
    suspender.divide_pool();
    assert_eq!(suspender.host_memory().0, 16 * MIB);
}

#[test]
fn the_pool_is_no_larger_than_the_host_memory_for_contents() {
    let options = Options { pool: 1 << 30, host_memory: Some(44 * MIB), ..Options::default() };
    let suspender = Suspender::start(options, Arc::default(), None).unwrap();
    let [one, two] = [1, 2].map(|label| Fixture::with(&suspender, label, label, 32 * MIB));
    for _ in 0..2 {
        suspender.divide_pool();
        let pools = [&one, &two].map(|fixture| fixture.session.residence().pool_bytes() / MIB);
        assert_eq!(pools.iter().sum::<u64>(), 40, "{pools:?}");
        assert_eq!(suspender.host_memory().0, 40 * MIB);
    }
}

#[test]
fn a_session_takes_host_memory_for_no_more_than_it_may_have() {
    let suspender = suspender(Options { most: Some(16 * MIB), pool: 1 << 30, ..Options::default() });
    let lies = Fixture::with(&suspender, 1, 1, u64::MAX);
    suspender.divide_pool();
    assert_eq!(suspender.host_memory().0, 16 * MIB);
    suspender.suspend(&lies.session, SECOND, false).unwrap();
    assert_eq!(lies.script.budgets.lock()[0], 16 * MIB + 2 * 16 * MIB + SLACK);
}
