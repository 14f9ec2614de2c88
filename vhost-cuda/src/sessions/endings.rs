// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that are answered when sessions have ended, and sessions whose connection has ended before them.
//!
//! A worker that does not end may still write guest memory. After its greeting the driver knows of no session, so the
//! greeting waits for the workers of all earlier sessions. All other requests after which the driver frees memory
//! wait, too, also on a new connection for the same memory.
//!
//! The device memory of a session is free when its worker has ended, which may be after its program has. So whoever finds no
//! memory waits for the sessions that are ending ([`Endings::settle`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use virtio_cuda_protocol::transport::REPLY_NO_RESOURCES;

use crate::guest::memory::FileId;
use crate::guest::ring::Chain;

/// The maximum number of waiting requests of one connection. A driver has one greeting outstanding, and closes each
/// session once.
const MAX_WAITING: usize = 1024;

/// The time after which nothing waits for the memory of a session that began to end. A worker that hangs in the kernel must
/// not delay every allocation that finds no memory.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a caller that has not been refused memory.
pub const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// The time in which this daemon notices that a front-end has disconnected, also on a busy machine.
const NOTICE: Duration = Duration::from_millis(50);

/// All sessions of a daemon, by their numbers in its log.
#[derive(Debug, Default)]
pub struct Endings {
    state: Mutex<State>,
    /// Notified when a session has ended or begins to end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Sessions that have not ended, and the time at which they began to end.
    running: HashMap<u64, Option<Instant>>,
    /// Sessions without a connection, and the memory that their workers may write.
    left: HashMap<u64, Arc<HashSet<FileId>>>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    connection: u64,
    sessions: HashSet<u64>,
    answer: Answer,
}

/// A request, and its later answer.
#[derive(Debug)]
pub struct Answer {
    /// The request.
    pub chain: Chain,
    /// The reply's status.
    pub status: u32,
    /// The reply's payload.
    pub payload: Vec<u8>,
}

impl Answer {
    fn give(self) {
        self.chain.complete(self.status, &self.payload);
    }
}

impl Endings {
    /// Records that a session has begun.
    pub fn begin(&self, session: u64) {
        self.state.lock().running.insert(session, None);
    }

    /// Records that a session is ending: it does nothing for its program any more.
    pub fn ending(&self, session: u64) {
        if let Some(since) = self.state.lock().running.get_mut(&session) {
            since.get_or_insert_with(Instant::now);
        }
        self.changed.notify_all();
    }

    /// Waits until the sessions have ended that are ending now, except those that take longer than `patience`. With `notice`, waits
    /// a moment for one that begins to end, too: a process of this host has ended before its connection. Returns whether any has
    /// ended.
    ///
    /// Of other machines a caller learns nothing that the device's free memory does not show.
    pub fn settle(&self, patience: Duration, notice: bool) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let ending = |state: &State| {
            let ending =
                state.running.iter().filter_map(|(&session, &since)| Some((session, since? + patience)));
            ending.filter(|&(_, until)| until > now).collect::<HashMap<_, _>>()
        };
        let mut awaited = ending(&state);
        while awaited.is_empty() && notice && !self.changed.wait_until(&mut state, now + NOTICE).timed_out() {
            awaited = ending(&state);
        }
        let mut any = false;
        loop {
            awaited.retain(|session, until| {
                let has_ended = !state.running.contains_key(session);
                any |= has_ended;
                !has_ended && Instant::now() < *until
            });
            let Some(&until) = awaited.values().min() else { return any };
            self.changed.wait_until(&mut state, until);
        }
    }

    /// Records that a session has ended: its worker is dead and all its requests are answered.
    pub fn ended(&self, session: u64) {
        let mut state = self.state.lock();
        state.running.remove(&session);
        state.left.remove(&session);
        for waiting in &mut state.waiting {
            waiting.sessions.remove(&session);
        }
        let ready: Vec<_> = state.waiting.extract_if(.., |waiting| waiting.sessions.is_empty()).collect();
        // A stopped queue delays answers.
        drop(state);
        self.changed.notify_all();
        for waiting in ready {
            waiting.answer.give();
        }
    }

    /// Answers a request of `connection` when all of `sessions` have ended, which may be now.
    pub fn answer_after(&self, connection: u64, mut sessions: HashSet<u64>, answer: Answer) {
        let mut state = self.state.lock();
        sessions.retain(|session| state.running.contains_key(session));
        if sessions.is_empty() {
            drop(state);
            return answer.give();
        }
        if state.waiting.iter().filter(|other| other.connection == connection).count() >= MAX_WAITING {
            drop(state);
            return answer.chain.complete(REPLY_NO_RESOURCES, &[]);
        }
        state.waiting.push(Waiting { connection, sessions, answer });
    }

    /// Ends connection `connection`, so that its answers are dropped. Its sessions that have not ended, and the
    /// memory that their workers may write, are remembered.
    pub fn leave(&self, connection: u64, sessions: impl IntoIterator<Item = u64>, files: &HashSet<FileId>) {
        let mut state = self.state.lock();
        let files = Arc::new(files.clone());
        for session in sessions {
            if state.running.contains_key(&session) {
                state.left.insert(session, files.clone());
            }
        }
        let removed: Vec<_> =
            state.waiting.extract_if(.., |waiting| waiting.connection == connection).collect();
        drop(state);
        drop(removed);
    }

    /// Returns whether sessions of earlier connections have not ended.
    pub fn are_left(&self) -> bool {
        !self.state.lock().left.is_empty()
    }

    /// Returns sessions of earlier connections whose workers may write some of these files.
    pub fn left_on(&self, files: &HashSet<FileId>) -> HashSet<u64> {
        let state = self.state.lock();
        let touching = state.left.iter().filter(|(_, of)| !of.is_disjoint(files));
        touching.map(|(&session, _)| session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::fixture::FixtureGuest;
    use virtio_cuda_protocol::transport::{OP_HELLO, REPLY_OK, RequestHeader};

    /// Waits until a thread waits for a change. It looks once more then.
    fn somebody_waits(endings: &Endings) {
        while endings.changed.notify_all() == 0 {
            std::thread::yield_now();
        }
    }

    fn answer(guest: &mut FixtureGuest) -> Answer {
        let header = RequestHeader { op: OP_HELLO, ..RequestHeader::default() };
        let (_, chain) = guest.request(header, &[], &[], &[], 64);
        Answer { chain, status: REPLY_OK, payload: vec![7] }
    }

    #[test]
    fn an_answer_waits_for_all_its_sessions_and_no_others() {
        let (endings, mut guest) = (Endings::default(), FixtureGuest::new());
        endings.answer_after(1, [1, 2].into(), answer(&mut guest));
        assert_eq!(guest.used().len(), 1, "nobody knows these sessions: they have ended");
        for session in 1..4 {
            endings.begin(session);
        }
        endings.answer_after(1, [1, 2].into(), answer(&mut guest));
        endings.ended(3);
        endings.ended(1);
        assert_eq!(guest.used().len(), 1);
        endings.ended(2);
        assert_eq!(guest.reply(2), (REPLY_OK, vec![7]));
    }

    #[test]
    fn memory_that_was_left_behind_is_known_to_the_next_connection() {
        let (endings, mut guest) = (Endings::default(), FixtureGuest::new());
        endings.begin(1);
        endings.answer_after(1, [1].into(), answer(&mut guest));
        endings.leave(1, [1, 2], &[(8, 15), (8, 16)].into());
        assert!(endings.state.lock().waiting.is_empty(), "nobody waits any more");
        assert_eq!(endings.left_on(&[(8, 16), (9, 1)].into()), [1].into());
        assert!(endings.left_on(&[(8, 17), (9, 15)].into()).is_empty());
        assert!(endings.are_left());
        endings.ended(1);
        assert!(!endings.are_left());
        assert!(endings.left_on(&[(8, 16)].into()).is_empty());
    }

    #[test]
    fn memory_is_waited_for_as_long_as_a_session_is_ending() {
        let endings = Endings::default();
        endings.begin(1);
        endings.begin(2);
        assert!(!endings.settle(PATIENCE, false), "none is ending");
        assert!(!endings.settle(PATIENCE, true));
        std::thread::scope(|scope| {
            endings.ending(1);
            let waits = scope.spawn(|| endings.settle(PATIENCE, false));
            somebody_waits(&endings);
            assert!(!waits.is_finished());
            // One that begins to end later is not waited for.
            endings.ending(2);
            endings.ended(1);
            assert!(waits.join().unwrap());
        });
        let long_ago = Instant::now().checked_sub(PATIENCE);
        endings.state.lock().running.insert(2, long_ago);
        assert!(!endings.settle(PATIENCE, true), "it hangs");
        endings.begin(3);
        std::thread::scope(|scope| {
            let notices = scope.spawn(|| while !endings.settle(PATIENCE, true) {});
            endings.ending(3);
            somebody_waits(&endings);
            assert!(!notices.is_finished());
            endings.ended(3);
            notices.join().unwrap();
        });
    }

    #[test]
    fn not_too_many_wait() {
        let endings = Endings::default();
        endings.begin(1);
        let mut guests: Vec<_> = (0..MAX_WAITING / 30 + 2).map(|_| FixtureGuest::new()).collect();
        for guest in &mut guests {
            for _ in 0..30 {
                endings.answer_after(1, [1].into(), answer(guest));
            }
        }
        assert_eq!(endings.state.lock().waiting.len(), MAX_WAITING);
        let used = guests.last().unwrap().used();
        assert!(!used.is_empty() && guests[0].used().is_empty());
        assert_eq!(guests.last().unwrap().reply(used[0].0).0, REPLY_NO_RESOURCES);
    }
}
