// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Counts work that was begun and not yet waited for.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts work that was begun by any thread, and the part that is known to have ended. Work ends in the order in
/// which it began, or all of it is waited for together.
#[derive(Debug, Default)]
pub struct Outstanding {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Outstanding {
    /// Nothing.
    pub const fn new() -> Self {
        Self { begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// Counts one more beginning. Returns the value that [`Self::so_far`] would return after it.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// All that has begun, to be taken before waiting for everything.
    pub fn so_far(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Marks everything that had begun by then as ended.
    pub fn end(&self, so_far: u64) {
        self.ended.fetch_max(so_far, Ordering::SeqCst);
    }

    /// Returns whether everything has ended.
    pub fn is_none(&self) -> bool {
        self.ended.load(Ordering::SeqCst) == self.so_far()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_says_nothing_of_what_came_meanwhile() {
        let outstanding = Outstanding::new();
        assert!(outstanding.is_none());
        let first = outstanding.begin();
        assert!(!outstanding.is_none());
        let so_far = outstanding.so_far();
        assert_eq!(so_far, first);
        outstanding.begin();
        outstanding.end(so_far);
        assert!(!outstanding.is_none());
        outstanding.end(outstanding.so_far());
        outstanding.end(so_far);
        assert!(outstanding.is_none());
    }
}
