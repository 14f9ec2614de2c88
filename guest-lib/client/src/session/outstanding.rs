// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Keeps a session within its maximum number of outstanding calls: further threads wait here instead of being
//! refused by the device.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Permits for outstanding calls.
#[derive(Debug)]
pub struct Outstanding {
    limit: u32,
    taken: AtomicU32,
    waiting: AtomicU32,
    lock: Mutex<()>,
    given_back: Condvar,
}

/// The right to have one call outstanding; goes back when dropped.
#[derive(Debug)]
pub struct Permit<'a>(&'a Outstanding);

impl Outstanding {
    /// Allows `limit` calls at once, at least one.
    pub fn new(limit: u32) -> Self {
        Self {
            limit: limit.max(1),
            taken: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            given_back: Condvar::new(),
        }
    }

    fn try_take(&self) -> bool {
        let next = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken.try_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Waits for a permit.
    pub fn take(&self) -> Permit<'_> {
        if !self.try_take() {
            let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // The thread that gives back reads `waiting` after `taken`, this side in reverse order (both SeqCst):
            // one of the two sees the other.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            while !self.try_take() {
                guard = self.given_back.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            let _guard = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.given_back.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_limit_and_all_get_their_turn() {
        let permits = Outstanding::new(3);
        let (now, most, turns) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let permit = permits.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 16 * 200);
        assert!(most.into_inner() <= 3);
    }
}
