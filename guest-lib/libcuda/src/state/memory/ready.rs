// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The stock of short allocations (`ahead`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum bytes of one size in stock. Longer allocations are never in stock.
pub const MAX_BYTES: u64 = 1 << 20;
/// Up to this size, many allocations share the memory that the driver reserves at once, so cuMemGetInfo rarely shows a
/// single one.
const UNSEEN_BYTES: u64 = 64 << 10;
/// Number of allocations of a size that are made one by one. After that the number per request doubles each time, …
const ONE_BY_ONE: u32 = 4;
/// … up to this maximum.
const MAX_AT_ONCE: u64 = 64;

/// The allocations in stock.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The stocks by context and size.
    pub stocks: Mutex<HashMap<(u64, u64), Stock>>,
    /// Set if other processes may use some allocation: nothing is added to the stock then.
    pub shared: AtomicBool,
    /// Set after the device has permitted this library to keep freed memory.
    pub ours: AtomicBool,
}

/// Allocations of one size.
#[derive(Debug, Default)]
pub struct Stock {
    pub ready: Vec<u64>,
    /// Number of requests to the device.
    pub asked: u32,
}

impl Stock {
    /// Returns the number of allocations to request next.
    pub fn count(&self, bytes: u64) -> u64 {
        let doubled = 1_u64 << self.asked.saturating_sub(ONE_BY_ONE - 1).min(10);
        doubled.min(MAX_AT_ONCE).min(MAX_BYTES / bytes).max(1)
    }
}

impl Ahead {
    pub fn stocks(&self) -> MutexGuard<'_, HashMap<(u64, u64), Stock>> {
        self.stocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an allocation is exported to other processes.
    pub fn share(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// Returns whether a freed allocation of this size is worth keeping.
    pub fn wants(&self, context: u64, bytes: u64) -> bool {
        let stocks = self.stocks();
        let stock = stocks.get(&(context, bytes));
        let room = |stock: &Stock| (stock.ready.len() as u64) < MAX_BYTES / bytes;
        !self.shared.load(Ordering::Relaxed)
            && stock.is_some_and(|stock| stock.asked >= ONE_BY_ONE && room(stock))
    }

    /// Removes the stock, all of it or what cuMemGetInfo would show.
    pub fn take_ready(&self, all: bool) -> Vec<u64> {
        let mut stocks = self.stocks();
        let wanted = stocks.iter_mut().filter(|((_, bytes), _)| all || *bytes > UNSEEN_BYTES);
        wanted.flat_map(|(_, stock)| std::mem::take(&mut stock.ready)).collect()
    }

    /// Removes the stock of a destroyed context.
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
