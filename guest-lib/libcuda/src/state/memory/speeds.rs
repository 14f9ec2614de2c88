// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The measured speed of copies of pageable memory: staged copies, which this process's processors move, and copies of
//! pages, which the worker moves directly. Which one is faster depends on the processors (number, emulated or not) and
//! on their other load. It is therefore measured, unless staged copies alone prove fast enough.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Minimum bytes of a long copy. Long copies are measured separately.
pub const LONG_BYTES: usize = 4 << 20;
/// Minimum bytes of a measured copy. Shorter copies take as long as their calls.
const MEASURED_BYTES: usize = 256 << 10;
/// Bytes per microsecond at which staged copies, short and long ones, are fast enough.
const GOOD: [u64; 2] = [3000, 12000];
/// One in this many copies uses the slower method, which may have become the faster one.
const PERIOD: u32 = 32;
/// The number of staged copies before copies of pages are tried. The first staged copies also start threads, and the
/// first copy of pages creates pinned memory in the worker, which takes as long as several copies.
const STAGED_FIRST: u32 = 4;

/// Index of the speed of staged copies, and of copies of pages.
const STAGED: usize = 0;
const PAGES: usize = 1;

/// The speed of copies of one length class.
#[derive(Debug, Default)]
struct Rates {
    /// The best recent speed in bytes per microsecond; 0 before the first copy. The best one counts because a copy may
    /// have waited for earlier work.
    best: [AtomicU64; 2],
    /// The number of copies that were decided while staged ones were not fast enough.
    copies: AtomicU32,
}

/// The measurements of this process.
#[derive(Debug, Default)]
pub struct Speeds([Rates; 2]);

impl Rates {
    fn prefers_staged(&self, good: u64) -> bool {
        let [staged, pages] = [STAGED, PAGES].map(|kind| self.best[kind].load(Ordering::Relaxed));
        if staged == 0 || staged >= good {
            return true;
        }
        let count = self.copies.fetch_add(1, Ordering::Relaxed);
        if count < STAGED_FIRST - 1 {
            return true;
        }
        let is_better = pages != 0 && pages <= staged;
        if count % PERIOD == PERIOD - 1 { !is_better } else { is_better }
    }

    fn note(&self, kind: usize, rate: u64) {
        let best = &self.best[kind];
        // Slower copies reduce the value gradually.
        let before = best.load(Ordering::Relaxed);
        best.store(rate.max(before - before / 16), Ordering::Relaxed);
    }
}

impl Speeds {
    fn class(bytes: usize) -> usize {
        usize::from(bytes >= LONG_BYTES)
    }

    /// Returns whether the next copy of `bytes` bytes should be staged.
    pub fn prefers_staged(&self, bytes: usize) -> bool {
        let class = Self::class(bytes);
        self.0[class].prefers_staged(GOOD[class])
    }

    /// Runs and measures a staged copy of `bytes` bytes.
    pub fn measure_staged<T>(&self, bytes: usize, copy: impl FnOnce() -> T) -> T {
        self.measure(STAGED, bytes, copy)
    }

    /// Runs and measures a copy of pages of `bytes` bytes.
    pub fn measure_pages<T>(&self, bytes: usize, copy: impl FnOnce() -> T) -> T {
        self.measure(PAGES, bytes, copy)
    }

    fn measure<T>(&self, kind: usize, bytes: usize, copy: impl FnOnce() -> T) -> T {
        if bytes < MEASURED_BYTES {
            return copy();
        }
        let begun = Instant::now();
        let outcome = copy();
        let nanoseconds = (begun.elapsed().as_nanos() as u64).max(1);
        self.0[Self::class(bytes)].note(kind, (bytes as u64).saturating_mul(1000) / nanoseconds);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_staged_copies_stay_and_otherwise_the_better_kind_is_found() {
        let rates = Rates::default();
        assert!(rates.prefers_staged(1000), "nothing is known");
        rates.note(STAGED, 1000);
        assert!((0..100).all(|_| rates.prefers_staged(1000)));
        // A copy that had to wait has little weight.
        rates.note(STAGED, 10);
        assert_eq!(rates.best[0].load(Ordering::Relaxed), 938);
        assert!((1..STAGED_FIRST).all(|_| rates.prefers_staged(1000)), "the first copies may be slow");
        assert!(!rates.prefers_staged(1000), "the other kind is to be tried");
        rates.note(PAGES, 500);
        let chosen: Vec<_> = (0..PERIOD).map(|_| rates.prefers_staged(1000)).collect();
        assert_eq!(chosen.iter().filter(|&&staged| !staged).count(), 1);
        rates.note(PAGES, 2000);
        let chosen: Vec<_> = (0..PERIOD).map(|_| rates.prefers_staged(1000)).collect();
        assert_eq!(chosen.iter().filter(|&&staged| staged).count(), 1);
    }

    #[test]
    fn lengths_are_apart() {
        let speeds = Speeds::default();
        speeds.measure_staged(LONG_BYTES, || std::thread::sleep(std::time::Duration::from_millis(10)));
        let staged = (0..STAGED_FIRST).filter(|_| speeds.prefers_staged(LONG_BYTES)).count();
        assert_eq!(staged, STAGED_FIRST as usize - 1);
        assert!(speeds.prefers_staged(LONG_BYTES - 1));
    }
}
