// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The host memory of the generators' states.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits the bytes that all states take. A program can otherwise fill the host's memory with generators, each of up to 4 MB.
pub struct Budget {
    held: AtomicUsize,
    max: usize,
}

/// The budget of all generators of a process.
pub static BUDGET: Budget = Budget::new(512 << 20);

impl Budget {
    /// A budget of as many bytes.
    pub const fn new(max: usize) -> Self {
        Self { held: AtomicUsize::new(0), max }
    }
}

/// The bytes of one state. They are given back when it drops.
pub struct Share {
    budget: &'static Budget,
    bytes: usize,
}

impl Share {
    /// A share without bytes.
    pub fn new(budget: &'static Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Grows to at least `bytes`. Returns whether the budget sufficed.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = |held: usize| held.checked_add(more).filter(|held| *held <= self.budget.max);
        let has_grown = self.budget.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if has_grown {
            self.bytes += more;
        }
        has_grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
