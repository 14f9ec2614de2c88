// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The pieces of one copy, which several threads process in order. A piece may be processed once it is open. Its slot
//! is its number modulo the number of slots.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Number of checks for a change by another thread before this thread yields, and before it sleeps.
const LOOKS: u32 = 200;
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(20);

/// The progress of a copy's pieces.
pub struct Pipeline<'a> {
    count: usize,
    /// The next piece to take.
    next: AtomicUsize,
    /// Pieces below this number are open.
    open: AtomicUsize,
    /// Per slot: the number of the piece that was finished there last, plus one.
    finished: Vec<AtomicUsize>,
    ended: AtomicBool,
    work: &'a (dyn Fn(usize) + Sync),
}

impl<'a> Pipeline<'a> {
    /// Returns a pipeline of `count` pieces in `slots` slots. `work` processes the piece with a number.
    pub fn new(count: usize, slots: usize, work: &'a (dyn Fn(usize) + Sync)) -> Self {
        let finished = (0..slots).map(|_| AtomicUsize::new(0)).collect();
        let (next, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { count, next, open, finished, ended: AtomicBool::new(false), work }
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.finished.len()
    }

    /// Opens the pieces below `number`. Their slots must be free.
    pub fn open(&self, number: usize) {
        self.open.store(number, Ordering::Release);
    }

    /// Returns the number of open pieces that no thread has taken.
    pub fn waiting(&self) -> usize {
        self.open.load(Ordering::Relaxed).saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Returns whether the piece is done.
    pub fn is_finished(&self, number: usize) -> bool {
        self.finished[number % self.slots()].load(Ordering::Acquire) > number
    }

    /// Processes pieces, waiting until they are opened, until none is left.
    pub fn help(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let mut backoff = Backoff::default();
            while number < self.count && self.open.load(Ordering::Acquire) <= number {
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
                backoff.pass();
            }
            if number >= self.count {
                return;
            }
            self.perform(number);
        }
    }

    /// Processes the next piece that no thread has taken. Returns false if all are taken.
    pub fn help_once(&self) -> bool {
        let open = self.open.load(Ordering::Acquire).min(self.count);
        let taken = self
            .next
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < open).then_some(next + 1));
        taken.is_ok_and(|number| {
            self.perform(number);
            true
        })
    }

    /// Makes threads that wait for a piece return.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn perform(&self, number: usize) {
        (self.work)(number);
        self.finished[number % self.slots()].store(number + 1, Ordering::Release);
    }
}

/// A wait for another thread, which takes microseconds if that thread is running.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Waits after another check without success.
    pub fn pass(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..LOOKS => std::hint::spin_loop(),
            LOOKS..YIELDS => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_piece_is_done_once_and_no_slot_holds_two() {
        const SLOTS: usize = 3;
        let order = Mutex::new(Vec::new());
        let held = [const { AtomicBool::new(false) }; SLOTS];
        let work = |number: usize| {
            assert!(!held[number % SLOTS].swap(true, Ordering::SeqCst), "the slot of {number} was free");
            order.lock().unwrap().push(number);
        };
        let pipeline = Pipeline::new(50, SLOTS, &work);
        thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| pipeline.help())));
            let (mut opened, mut taken) = (0, 0);
            while taken < pipeline.count() {
                if pipeline.is_finished(taken) {
                    held[taken % SLOTS].store(false, Ordering::SeqCst);
                    taken += 1;
                } else if opened < taken + SLOTS && opened < pipeline.count() {
                    opened += 1;
                    pipeline.open(opened);
                } else if !pipeline.help_once() {
                    thread::yield_now();
                }
            }
        });
        let mut order = order.into_inner().unwrap();
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn nobody_waits_for_what_is_never_opened() {
        let pipeline = Pipeline::new(10, 2, &|number| assert!(number < 1));
        pipeline.open(1);
        thread::scope(|scope| {
            scope.spawn(|| pipeline.help());
            scope.spawn(|| pipeline.help());
            while !pipeline.is_finished(0) {
                thread::yield_now();
            }
            pipeline.end();
        });
        assert!(!pipeline.is_finished(1) && !pipeline.help_once() && pipeline.waiting() == 0);
    }
}
