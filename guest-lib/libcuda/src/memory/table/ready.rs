// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Short allocations that lie ready (`ahead`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum bytes of one size that lie ready. Longer allocations never do.
pub const MAX_BYTES: u64 = 1 << 20;
/// Up to this length, many allocations share what the driver takes of the device at once, and cuMemGetInfo rarely sees a single one.
const UNSEEN_BYTES: u64 = 64 << 10;
/// Allocations of a size that are made one by one before more are made at once: twice as many each time, …
const ONE_BY_ONE: u32 = 4;
/// … up to this.
const MAX_AT_ONCE: u64 = 64;

/// The allocations that are ready.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The stocks by context and size.
    pub(in crate::memory) stocks: Mutex<HashMap<(u64, u64), Stock>>,
    /// Other processes may have some of what is allocated: nothing is kept.
    pub(in crate::memory) shared: AtomicBool,
    /// The device leaves it to us to keep what is freed: it has done so before.
    pub(in crate::memory) ours: AtomicBool,
}

/// Allocations of one size.
#[derive(Debug, Default)]
pub(in crate::memory) struct Stock {
    pub(in crate::memory) ready: Vec<u64>,
    /// Times that the device was asked.
    pub(in crate::memory) asked: u32,
}

impl Stock {
    /// Returns the number of allocations to request now.
    pub(in crate::memory) fn count(&self, bytes: u64) -> u64 {
        let doubled = 1_u64 << self.asked.saturating_sub(ONE_BY_ONE - 1).min(10);
        doubled.min(MAX_AT_ONCE).min(MAX_BYTES / bytes).max(1)
    }
}

impl Ahead {
    pub(in crate::memory) fn stocks(&self) -> MutexGuard<'_, HashMap<(u64, u64), Stock>> {
        self.stocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some allocation is offered to other processes.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Returns whether an allocation of that size is worth keeping.
    pub(in crate::memory) fn wants(&self, context: u64, bytes: u64) -> bool {
        let stocks = self.stocks();
        let stock = stocks.get(&(context, bytes));
        let room = |stock: &Stock| (stock.ready.len() as u64) < MAX_BYTES / bytes;
        !self.shared.load(Ordering::Relaxed)
            && stock.is_some_and(|stock| stock.asked >= ONE_BY_ONE && room(stock))
    }

    /// Takes out what lies ready, all of it or what cuMemGetInfo would see.
    pub(in crate::memory) fn take_ready(&self, all: bool) -> Vec<u64> {
        let mut stocks = self.stocks();
        let wanted = stocks.iter_mut().filter(|((_, bytes), _)| all || *bytes > UNSEEN_BYTES);
        wanted.flat_map(|(_, stock)| std::mem::take(&mut stock.ready)).collect()
    }

    /// Forgets what was made in a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.stocks().retain(|(of, _), _| *of != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_often_is_kept_up_to_a_limit() {
        let ahead = Ahead::default();
        assert!(!ahead.wants(1, 4096));
        let stock = |asked, count| Stock { ready: vec![0; count], asked };
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE - 1, 0));
        assert!(!ahead.wants(1, 4096), "a few only");
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 255));
        assert!(ahead.wants(1, 4096) && !ahead.wants(2, 4096) && !ahead.wants(1, 8192));
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 256));
        assert!(!ahead.wants(1, 4096), "a mebibyte lies ready");
        ahead.stocks().insert((1, MAX_BYTES), stock(ONE_BY_ONE, 0));
        assert!(ahead.wants(1, MAX_BYTES));
        ahead.stocks().insert((1, MAX_BYTES), stock(ONE_BY_ONE, 1));
        assert!(!ahead.wants(1, MAX_BYTES), "one");
        assert_eq!((ahead.take_ready(false).len(), ahead.take_ready(true).len()), (1, 256));
        ahead.stocks().insert((1, 4096), stock(ONE_BY_ONE, 0));
        ahead.share();
        assert!(!ahead.wants(1, 4096));
    }

    #[test]
    fn more_are_made_at_once_the_more_are_asked_for() {
        let counts = |bytes| -> Vec<u64> {
            (1..13).map(|asked| Stock { asked, ..Stock::default() }.count(bytes)).collect()
        };
        assert_eq!(counts(4096), [1, 1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
        assert_eq!(counts(UNSEEN_BYTES), [1, 1, 1, 2, 4, 8, 16, 16, 16, 16, 16, 16]);
        assert_eq!(counts(MAX_BYTES), [1; 12]);
    }
}
