// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The number of streams that capture, and waits that would end a capture.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The driver refuses to wait for a context with a stream that captures, and ends the capture. It looks when the wait begins, so a
/// capture that follows lets waits of other threads come so far. They may then wait for what follows the capture.
const LONGEST_BEGIN: Duration = Duration::from_millis(5);
/// The time between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// Captures that have begun and not ended.
#[derive(Debug, Default)]
pub struct Captures {
    count: AtomicUsize,
    /// Waits of this library's own.
    waits: AtomicUsize,
}

impl Captures {
    /// Returns whether any stream could be capturing.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Begins a capture by `call`.
    pub(super) fn begin<E>(&self, call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // It counts before the device knows of it, so that no wait comes in between.
        self.count.fetch_add(1, Ordering::SeqCst);
        let asked = Instant::now();
        while self.waits.load(Ordering::SeqCst) > 0 && asked.elapsed() < LONGEST_BEGIN {
            thread::sleep(PAUSE);
        }
        call().inspect_err(|_| self.ended())
    }

    pub(super) fn ended(&self) {
        let _ = self.count.try_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }

    /// Calls `wait`, which waits for a context; `None` if it could end a capture.
    pub fn beside_none<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let waited = (!self.any()).then(wait);
        self.waits.fetch_sub(1, Ordering::SeqCst);
        waited
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_capture_counts_while_it_begins() {
        let captures = Captures::default();
        let begun = captures.begin(|| {
            assert!(captures.any() && captures.beside_none(|| ()).is_none());
            Ok::<_, ()>(())
        });
        assert!(begun.is_ok() && captures.any());
        assert!(captures.begin(|| Err(())).is_err() && captures.any(), "the first one goes on");
        captures.ended();
        assert!(!captures.any() && captures.beside_none(|| ()).is_some());
        captures.ended();
        assert!(!captures.any());
    }

    #[test]
    fn a_capture_follows_a_wait_that_has_begun() {
        let (captures, waiting, waited) =
            (Captures::default(), AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                captures.beside_none(|| {
                    waiting.store(true, Ordering::SeqCst);
                    thread::sleep(PAUSE);
                    waited.store(true, Ordering::SeqCst);
                })
            });
            while !waiting.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let asked = Instant::now();
            let begun = captures.begin(|| {
                let follows = waited.load(Ordering::SeqCst) || asked.elapsed() >= LONGEST_BEGIN;
                follows.then_some(()).ok_or(())
            });
            assert_eq!(begun, Ok(()));
        });
        // One that takes long has looked for captures by then, and may wait for what comes after the next one.
        captures.ended();
        captures.beside_none(|| assert_eq!(captures.begin(|| Ok::<_, ()>(())), Ok(())));
    }
}
