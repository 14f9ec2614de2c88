// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The known completion of events.

use std::sync::atomic::{AtomicU64, Ordering};

/// The state of an event's latest record.
#[derive(Debug, Default)]
pub struct Reached {
    records: AtomicU64,
    /// The latest record that is known to be reached, counting from 1. An event that was never recorded counts as
    /// reached, but the device is queried once.
    reached: AtomicU64,
}

impl Reached {
    /// Must be called when a record was sent, before the call returns: earlier knowledge is invalid. Not before it was
    /// sent: another thread's query could then count the record and overtake it.
    pub fn recorded(&self) {
        self.records.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the latest record. Must be called before the device is queried.
    pub fn latest(&self) -> u64 {
        self.records.load(Ordering::SeqCst) + 1
    }

    /// Sets that the record that was the latest at the time of the query is reached.
    pub fn set(&self, latest: u64) {
        self.reached.fetch_max(latest, Ordering::SeqCst);
    }

    /// Returns whether the latest record is known to be reached.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst) == self.latest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_a_record_overtakes_is_void() {
        let reached = Reached::default();
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
    }
}
