// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The known completion of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_environment::speed;

/// Counts the calls that may have recorded any event.
pub type AnyRecords = Arc<AtomicU64>;

/// The state of an event's latest record.
#[derive(Debug, Default)]
pub struct Reached {
    records: AtomicU64,
    any_records: AnyRecords,
    /// The latest record that is known to be reached, counting from 1. An event that was never recorded counts as
    /// reached, but the device is queried once.
    reached: AtomicU64,
}

impl Reached {
    /// Returns the state of a new event. `any_records` is the count of all events.
    pub fn new(any_records: AnyRecords) -> Self {
        Self { any_records, ..Self::default() }
    }

    /// Must be called when a record was sent, before the call returns: earlier knowledge is invalid. Not before it was
    /// sent: another thread's query could then count the record and overtake it.
    pub fn recorded(&self) {
        self.records.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the latest record. Must be called before the device is queried.
    pub fn latest(&self) -> u64 {
        self.records.load(Ordering::SeqCst) + self.any_records.load(Ordering::SeqCst) + 1
    }

    /// Sets that the record that was the latest at the time of the query is reached.
    pub fn set(&self, latest: u64) {
        self.reached.fetch_max(latest, Ordering::SeqCst);
    }

    /// Returns whether the latest record is known to be reached.
    pub fn is_reached(&self) -> bool {
        speed::is_on() && self.reached.load(Ordering::SeqCst) == self.latest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_record_overtakes_is_void() {
        let any_records = AnyRecords::default();
        let reached = Reached::new(Arc::clone(&any_records));
        assert!(!reached.is_reached());
        let asked = reached.latest();
        reached.set(asked);
        assert!(reached.is_reached());
        let asked = reached.latest();
        reached.recorded();
        reached.set(asked);
        assert!(!reached.is_reached());
        reached.set(reached.latest());
        assert!(reached.is_reached());
        any_records.fetch_add(1, Ordering::SeqCst);
        assert!(!reached.is_reached());
    }
}
