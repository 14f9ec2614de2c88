// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that are answered when sessions have ended, and sessions whose connection has ended before them.
//!
//! A worker that does not end may still write guest memory. After its greeting the driver knows of no session, so the
//! greeting waits for the workers of all earlier sessions. All other requests after which the driver frees memory
//! wait, too, also on a new connection for the same memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use virtio_cuda_protocol::transport::REPLY_NO_RESOURCES;

use crate::front_end::memory::FileId;
use crate::front_end::ring::Chain;

/// The maximum number of waiting requests of one connection. A driver has one greeting outstanding, and closes each
/// session once.
const MAX_WAITING: usize = 1024;

/// All sessions of a daemon.
#[derive(Debug, Default)]
pub struct Endings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: HashSet<u64>,
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
        self.0.lock().running.insert(session);
    }

    /// Records that a session has ended: its worker is dead and all its requests are answered.
    pub fn ended(&self, session: u64) {
        let mut state = self.0.lock();
        state.running.remove(&session);
        state.left.remove(&session);
        for waiting in &mut state.waiting {
            waiting.sessions.remove(&session);
        }
        let ready: Vec<_> = state.waiting.extract_if(.., |waiting| waiting.sessions.is_empty()).collect();
        // A stopped queue delays answers.
        drop(state);
        for waiting in ready {
            waiting.answer.give();
        }
    }

    /// Answers a request of `connection` when all of `sessions` have ended, which may be now.
    pub fn answer_after(&self, connection: u64, mut sessions: HashSet<u64>, answer: Answer) {
        let mut state = self.0.lock();
        sessions.retain(|session| state.running.contains(session));
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
        let mut state = self.0.lock();
        let files = Arc::new(files.clone());
        for session in sessions {
            if state.running.contains(&session) {
                state.left.insert(session, files.clone());
            }
        }
        let removed: Vec<_> =
            state.waiting.extract_if(.., |waiting| waiting.connection == connection).collect();
        drop(state);
        drop(removed);
    }

    /// Returns sessions of earlier connections whose workers may write some of these files.
    pub fn left_on(&self, files: &HashSet<FileId>) -> HashSet<u64> {
        let state = self.0.lock();
        let touching = state.left.iter().filter(|(_, of)| !of.is_disjoint(files));
        touching.map(|(&session, _)| session).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::FixtureGuest;
    use virtio_cuda_protocol::transport::{OP_HELLO, REPLY_OK, RequestHeader};

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
        assert!(endings.0.lock().waiting.is_empty(), "nobody waits any more");
        assert_eq!(endings.left_on(&[(8, 16), (9, 1)].into()), [1].into());
        assert!(endings.left_on(&[(8, 17), (9, 15)].into()).is_empty());
        endings.ended(1);
        assert!(endings.left_on(&[(8, 16)].into()).is_empty());
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
        assert_eq!(endings.0.lock().waiting.len(), MAX_WAITING);
        let used = guests.last().unwrap().used();
        assert!(!used.is_empty() && guests[0].used().is_empty());
        assert_eq!(guests.last().unwrap().reply(used[0].0).0, REPLY_NO_RESOURCES);
    }
}
