// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of records across the lanes of a process.
//!
//! A guest thread that has posted a record (which nobody waits for) may tell another thread so, whose next record
//! must then come after it. The guest numbers the records of all its lanes, from 1, and they begin here in that
//! order. A posted record passes the turn on when it is done; a record that its thread waits for passes it on as
//! it begins, since nobody can know yet that it was done: long waits hold nobody else up.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to watch for a turn before sleeping: the executor whose turn it is, is awake or being woken.
const WATCH: Duration = Duration::from_micros(50);

/// Whose turn it is.
#[derive(Debug)]
pub struct Turns {
    next: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }
}

impl Turns {
    /// Waits until every record before `number` has passed its turn on. A guest that skips numbers waits for
    /// ever, and only itself.
    pub fn wait_for(&self, number: u64) {
        if self.next.load(Ordering::Acquire) >= number {
            return;
        }
        let until = Instant::now() + WATCH;
        while Instant::now() < until {
            if self.next.load(Ordering::Acquire) >= number {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // `pass` changes `next` and then looks for sleepers, this side the other way round (all SeqCst).
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.next.load(Ordering::SeqCst) < number {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Record `number` passes its turn on.
    pub fn pass(&self, number: u64) {
        self.next.fetch_max(number.saturating_add(1), Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_several_lanes_begin_in_the_order_of_their_numbers() {
        let (turns, begun) = (Turns::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for lane in 0..4_u64 {
                let (turns, begun) = (&turns, &begun);
                scope.spawn(move || {
                    for number in (1..400).filter(|number| number % 4 == lane) {
                        turns.wait_for(number);
                        begun.lock().unwrap().push(number);
                        if number % 37 == 0 {
                            std::thread::sleep(WATCH * 3);
                        }
                        turns.pass(number);
                    }
                });
            }
        });
        assert!(begun.into_inner().unwrap().is_sorted());
    }
}
