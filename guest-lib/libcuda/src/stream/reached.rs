// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Events that are known to be reached.

use std::sync::atomic::{AtomicU64, Ordering};

/// The state of an event's latest record.
#[derive(Debug, Default)]
pub struct Reached {
    records: AtomicU64,
    /// The latest record that was found reached, counting from 1; an event that was never recorded counts as
    /// reached, but the device is asked once.
    reached: AtomicU64,
}

impl Reached {
    /// To be called when the record was sent, before the call returns: what was known is void. Not before it was sent: another
    /// thread's question could then count the record and overtake it.
    pub fn recorded(&self) {
        self.records.fetch_add(1, Ordering::SeqCst);
    }

    /// The latest record, before the device is asked whether it is reached.
    pub fn latest(&self) -> u64 {
        self.records.load(Ordering::SeqCst) + 1
    }

    /// The record that was the latest when the device was asked is reached.
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
