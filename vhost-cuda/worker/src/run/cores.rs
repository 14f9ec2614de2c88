// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decision between watching and sleeping: a thread does not watch if that takes the core of the thread that does the
//! work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Fewer cores than this are few.
const FEW: usize = 4;

/// Returns whether there are few cores for this process.
pub fn are_few() -> bool {
    number() < FEW
}

fn number() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(usize::MAX, usize::from))
}

/// The time to watch where there are few cores.
const WATCH_FEW_CORES: Duration = Duration::from_micros(20);
/// Looks between two at the clock.
const LOOKS: u32 = 64;

/// Looks until `is_there` returns true: for `long` at most, and where there are few cores for a shorter time. Returns whether it did.
pub fn watch(long: Duration, is_there: impl Fn() -> bool) -> bool {
    let long = if are_few() { long.min(WATCH_FEW_CORES) } else { long };
    let begun = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begun.elapsed() >= long {
            return false;
        }
    }
}

/// Threads that watch for longer than it takes to wake one up.
static WATCHING: AtomicUsize = AtomicUsize::new(0);

/// A permit to watch for long, given back when dropped. A session has no more of them than there are cores: a guest could
/// otherwise keep a core busy for each of its lanes, with one thread that feeds one after the other.
#[derive(Debug)]
pub struct Watching(());

impl Watching {
    /// Takes a permit, if one is left.
    pub fn begin() -> Option<Self> {
        let cores = number();
        let more = |watching: usize| (watching < cores).then_some(watching + 1);
        WATCHING.try_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(()))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        WATCHING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of executors that had work a moment ago.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// Counts an executor until dropped.
#[derive(Debug)]
pub struct Awake(());

impl Awake {
    /// Counts one more executor.
    pub fn begin() -> Self {
        AWAKE.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        AWAKE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of executors that had work a moment ago.
pub fn awake() -> usize {
    AWAKE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_watch_than_there_are_cores() {
        let cores = thread::available_parallelism().unwrap().get();
        let watching: Vec<_> = std::iter::from_fn(Watching::begin).take(cores + 1).collect();
        assert_eq!(watching.len(), cores);
        drop(watching);
        assert!(Watching::begin().is_some());
    }
}
