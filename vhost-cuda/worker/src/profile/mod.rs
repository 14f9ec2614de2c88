// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of what a session does, for a profile that the operator takes of a program that runs already.
//!
//! While nothing is recorded, a call costs one look at a flag. While it is, each executor adds a record per call, and one for each
//! wait at a gate. The daemon fetches them a few times per second, with the GPU's work, which [`super::trace`] measures.

mod relay;
pub mod requests;

#[cfg(test)]
mod cost_test;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuda_abi::TraceWork;
use parking_lot::Mutex;
use vhost_cuda_common::gates::now;
use vhost_cuda_common::recording::{GATE, MOVE, Record};

pub use relay::Relay;

/// The maximum number of records that wait (3.5 MiB), and of those that are being handed out: the daemon may stop fetching them.
const MAX_RECORDS: usize = 1 << 16;
/// The shortest wait at a gate that is recorded, in nanoseconds. Each look at a gate takes a part of it.
const SHORTEST_WAIT: u64 = 1000;

/// The recording of a session.
#[derive(Debug, Default)]
pub struct Profile {
    on: AtomicBool,
    waiting: Mutex<Waiting>,
    handed: Mutex<Handed>,
    /// The `CUresult` with which measuring the GPU's work was refused, or 0.
    no_gpu: AtomicU32,
    /// The recording that a profiler in the guest reads, of this session or another one.
    pub relay: Relay,
}

/// What was recorded. Executors lock it for a moment.
#[derive(Debug, Default)]
struct Waiting {
    /// Empty, without memory, while nothing is recorded.
    records: VecDeque<Record>,
    dropped: u64,
}

/// What is being handed out, by one thread.
#[derive(Debug, Default)]
struct Handed {
    /// As in [`Waiting`], with which it changes places when all are handed out.
    records: VecDeque<Record>,
    /// The number of names that the daemon has.
    names: u32,
    /// The GPU's work that did not fit into the last answer.
    work: VecDeque<TraceWork>,
    /// The time of CUPTI's clock at the beginning of [`now`]'s, modulo 2^64.
    offset: u64,
}

impl Profile {
    /// Returns whether calls are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns the time if calls are recorded.
    #[inline]
    pub fn begin(&self) -> Option<u64> {
        self.is_on().then(now)
    }

    /// Adds a record that ends now.
    #[cold]
    pub fn add(&self, record: Record) {
        let record = Record { end: now(), ..record };
        let mut waiting = self.waiting.lock();
        // It may have been switched off since the record began.
        if !self.is_on() {
            return;
        }
        if waiting.records.len() < MAX_RECORDS {
            waiting.records.push_back(record);
        } else {
            waiting.dropped += 1;
        }
    }

    /// Adds the part of a call of thread `row` in which it has waited at a gate since `begin`, if that is worth a record.
    #[cold]
    pub fn add_wait(&self, row: u32, name: u32, begin: u64) {
        if now().saturating_sub(begin) >= SHORTEST_WAIT {
            self.add(Record { kind: GATE, row, name, begin, ..Record::default() });
        }
    }

    /// Adds a move of `bytes` bytes.
    pub fn add_move(&self, name: u32, begin: u64, bytes: u64) {
        self.add(Record { kind: MOVE, name, begin, bytes, ..Record::default() });
    }

    fn set(&self, on: bool) {
        self.on.store(false, Ordering::Relaxed);
        *self.waiting.lock() = Waiting::default();
        *self.handed.lock() = Handed::default();
        self.on.store(on, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::recording::CALL;

    use super::*;

    fn call(row: u32) -> Record {
        Record { kind: CALL, row, ..Record::default() }
    }

    #[test]
    fn nothing_is_recorded_and_no_memory_taken_before_and_after() {
        let profile = Profile::default();
        assert_eq!(profile.begin(), None);
        profile.add(call(1));
        assert_eq!(profile.waiting.lock().records.capacity(), 0);
        profile.set(true);
        let begin = profile.begin().unwrap();
        profile.add(Record { begin, ..call(1) });
        profile.add_wait(1, 0, now() - 2 * SHORTEST_WAIT);
        profile.add_wait(1, 0, now());
        profile.add_move(0, now(), 5);
        let kinds: Vec<_> = profile.waiting.lock().records.iter().map(|record| record.kind).collect();
        assert_eq!(kinds[..2], [CALL, GATE]);
        assert_eq!(kinds.last(), Some(&MOVE));
        profile.set(false);
        profile.add(call(1));
        assert_eq!(profile.waiting.lock().records.capacity(), 0);
    }

    #[test]
    fn records_that_nobody_fetches_are_counted_and_not_kept() {
        let profile = Profile::default();
        profile.set(true);
        for _ in 0..MAX_RECORDS + 3 {
            profile.add(call(1));
        }
        let waiting = profile.waiting.lock();
        assert_eq!((waiting.records.len(), waiting.dropped), (MAX_RECORDS, 3));
    }
}
