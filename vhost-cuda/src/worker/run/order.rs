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

use virtio_cuda_ring::layout::{HEAD_BYTES, RECORDS_BYTES};

use super::executor::MAX_THREADS;

/// Records that can be outstanding at most: as many of the shortest as fit into the lanes of all threads.
const MAX_AHEAD: u64 = (MAX_THREADS * (RECORDS_BYTES / HEAD_BYTES)) as u64;
/// How long to watch for a turn before sleeping: the executor whose turn it is, is awake or being woken.
const WATCH: Duration = Duration::from_micros(50);

/// A number that is further ahead than records can be outstanding: its turn would never come.
#[derive(Debug, thiserror::Error)]
#[error("record {number} is more than {MAX_AHEAD} ahead of record {next}, whose turn it is")]
pub struct TooFarAhead {
    number: u64,
    next: u64,
}

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
    /// Waits until every record before `number` has passed its turn on.
    ///
    /// A guest that skips numbers waits until its session ends, and only itself: no time can be set for that, since
    /// a process or a virtual machine may be stopped between taking a number and sending its record.
    pub fn wait_for(&self, number: u64) -> Result<(), TooFarAhead> {
        let next = self.next.load(Ordering::Acquire);
        if next >= number {
            return Ok(());
        }
        if number - next > MAX_AHEAD {
            return Err(TooFarAhead { number, next });
        }
        let until = Instant::now() + WATCH;
        while Instant::now() < until {
            if self.next.load(Ordering::Acquire) >= number {
                return Ok(());
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
        Ok(())
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
                        turns.wait_for(number).unwrap();
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

    #[test]
    fn a_turn_that_cannot_come_is_not_waited_for() {
        let turns = Turns::default();
        for number in [1 << 60, u64::MAX, MAX_AHEAD + 2] {
            assert!(turns.wait_for(number).is_err(), "{number}");
        }
        turns.pass(1);
        assert!(turns.wait_for(MAX_AHEAD + 3).is_err());
        assert!(turns.wait_for(2).is_ok());
    }
}
