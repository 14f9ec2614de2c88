// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The worker's account of how far a lane has come, for records of other lanes that come after it.

use std::sync::PoisonError;

use crate::sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, fence};

/// Bytes of records that a lane is done with, over all threads that have had it. It only grows.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Bytes that the lane is done with.
    pub fn done(&self) -> u64 {
        // Acquire: the effects of the records come before it.
        self.done.load(Ordering::Acquire)
    }

    /// Sleeps until the lane is done with `position` bytes, or `ends` returns true after a [`Self::wake`].
    pub fn sleep_until(&self, position: u64, ends: impl Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // `wake` looks for sleepers after `done` or `ends` has changed, this side the other way round.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.done() < position && !ends() {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The lane is done with `position` bytes. A sequentially consistent fence and [`Self::wake`] must follow.
    pub fn set(&self, position: u64) {
        self.done.store(position, Ordering::Release);
    }

    /// Wakes those that sleep until the lane has come as far as it has now.
    pub fn wake(&self) {
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    /// As [`Self::set`], the fence and [`Self::wake`].
    pub fn advance(&self, position: u64) {
        self.set(position);
        fence(Ordering::SeqCst);
        self.wake();
    }
}
