// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ordered queues of work. Each is served by one thread at a time, and many are served at the same time. A stream is
//! one such queue.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::threads;

/// Work that waits in a queue.
type Job = Box<dyn FnOnce() + Send>;
/// An object that a job keeps alive. The queue drops it after it has counted the job as ended. So a thread that no
/// longer finds the object does not have to wait for the job.
type Kept = Arc<dyn Any + Send + Sync>;

/// The maximum number of waiting jobs. A thread that pushes more waits, as for a full hardware queue.
const MAX_WAITING: u64 = 1024;

/// `CUDA_EMULATOR_DELAY`: the time that each job waits for before it starts.
static DELAY: LazyLock<Duration> = LazyLock::new(|| {
    let text = std::env::var("CUDA_EMULATOR_DELAY").unwrap_or_default();
    if text.is_empty() {
        return Duration::ZERO;
    }
    let micros = text.parse().unwrap_or_else(|_| {
        log::error!("CUDA_EMULATOR_DELAY={text}: not a number of microseconds; ignored");
        0
    });
    Duration::from_micros(micros)
});

/// A queue of jobs that run one after the other, in the order in which they were pushed.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of jobs that were ever pushed.
    pushed: u64,
    /// The number of jobs that have ended.
    ended: u64,
    waiting: VecDeque<(Vec<Mark>, Job, Kept)>,
    /// True if a thread serves the queue.
    served: bool,
}

/// A point in a queue: after its first `count` jobs.
#[derive(Clone)]
pub(crate) struct Mark {
    queue: Arc<Queue>,
    count: u64,
}

impl Mark {
    /// Returns whether all jobs before this point have ended.
    pub(crate) fn reached(&self) -> bool {
        self.queue.lock().ended >= self.count
    }

    /// Waits until all jobs before this point have ended.
    pub(crate) fn wait(&self) {
        let state = self.queue.lock();
        drop(
            self.queue
                .changed
                .wait_while(state, |state| state.ended < self.count)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Returns the number of jobs of its queue that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.queue.lock().ended
    }

    /// Waits until more than `seen` jobs have ended. Returns false if all jobs before this point have ended already,
    /// or `latest` is reached.
    pub(crate) fn wait_past(&self, seen: u64, latest: Instant) -> bool {
        let left = latest.saturating_duration_since(Instant::now());
        let waits = |state: &mut State| state.ended <= seen && state.ended < self.count;
        let waited = self.queue.changed.wait_timeout_while(self.queue.lock(), left, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended > seen
    }

    /// Returns whether it is a point of this queue.
    pub(crate) fn is_of(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.queue, queue)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the point after all jobs pushed so far.
    pub(crate) fn end(self: &Arc<Self>) -> Mark {
        Mark { queue: Arc::clone(self), count: self.lock().pushed }
    }

    /// Waits until fewer than [`MAX_WAITING`] jobs have not ended.
    pub(crate) fn wait_for_room(&self) {
        let full = |state: &mut State| state.pushed - state.ended >= MAX_WAITING;
        drop(self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner));
    }

    /// Appends a job that starts once `after` is reached as well. Returns the point after it.
    pub(crate) fn push(self: &Arc<Self>, after: Vec<Mark>, job: Job, kept: Kept) -> Mark {
        let mut state = self.lock();
        state.pushed += 1;
        let mark = Mark { queue: Arc::clone(self), count: state.pushed };
        state.waiting.push_back((after, job, kept));
        self.start_serving(&mut state);
        mark
    }

    fn start_serving(self: &Arc<Self>, state: &mut State) {
        if !state.served && !state.waiting.is_empty() {
            state.served = true;
            let queue = Arc::clone(self);
            threads::run(Box::new(move || queue.serve()));
        }
    }

    /// Returns a permit to run one job on this thread when no job waits or runs here, so that short work needs no
    /// thread switch. Jobs pushed meanwhile wait for it.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Entered> {
        let mut state = self.lock();
        if state.served || !state.waiting.is_empty() || !DELAY.is_zero() {
            return None;
        }
        state.served = true;
        state.pushed += 1;
        Some(Entered { queue: Arc::clone(self) })
    }

    /// Runs the waiting jobs until none is left.
    fn serve(self: &Arc<Self>) {
        loop {
            let (after, job, kept) = {
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some(next) => next,
                    None => {
                        state.served = false;
                        return;
                    }
                }
            };
            for mark in &after {
                mark.wait();
            }
            if !DELAY.is_zero() {
                std::thread::sleep(*DELAY);
            }
            // A panicking job reports the damage itself, and the queue must continue.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("a job of a stream panicked");
            }
            let mut state = self.lock();
            state.ended += 1;
            drop(state);
            self.changed.notify_all();
            drop(kept);
        }
    }
}

/// The permit of [`Queue::enter`]; the job ends when it is dropped.
pub(crate) struct Entered {
    queue: Arc<Queue>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.ended += 1;
        state.served = false;
        self.queue.start_serving(&mut state);
        drop(state);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn push(queue: &Arc<Queue>, after: Vec<Mark>, job: impl FnOnce() + Send + 'static) -> Mark {
        queue.push(after, Box::new(job), Arc::new(()))
    }

    #[test]
    fn jobs_keep_their_order_within_and_across_queues() {
        let (one, two) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
        let count = Arc::new(AtomicU32::new(0));
        let mut marks = Vec::new();
        for round in 0..50 {
            let (first, second) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
            for (index, queue) in [first, second].into_iter().enumerate() {
                let count = Arc::clone(&count);
                let expected = round * 2 + index as u32;
                let job = move || assert_eq!(count.swap(expected + 1, Ordering::SeqCst), expected);
                let after = marks.last().cloned().into_iter().collect();
                marks.push(push(queue, after, job));
            }
        }
        marks.iter().for_each(Mark::wait);
        assert_eq!(count.load(Ordering::SeqCst), 100);
        assert!(one.end().reached() && two.end().reached());
    }

    #[test]
    fn an_idle_queue_can_be_entered_and_later_jobs_wait() {
        let queue = Arc::new(Queue::default());
        let entered = queue.enter().unwrap();
        assert!(queue.enter().is_none());
        let mark = push(&queue, Vec::new(), || ());
        std::thread::sleep(Duration::from_millis(5));
        assert!(!mark.reached());
        drop(entered);
        mark.wait();
    }

    #[test]
    fn a_full_queue_makes_the_pusher_wait() {
        let queue = Arc::new(Queue::default());
        let entered = queue.enter().unwrap();
        for _ in 1..MAX_WAITING {
            queue.wait_for_room();
            push(&queue, Vec::new(), || ());
        }
        let other = Arc::clone(&queue);
        let waiting = std::thread::spawn(move || other.wait_for_room());
        std::thread::sleep(Duration::from_millis(5));
        assert!(!waiting.is_finished());
        drop(entered);
        waiting.join().unwrap();
    }

    #[test]
    fn a_wait_for_the_next_job_ends_with_it_or_without() {
        let queue = Arc::new(Queue::default());
        assert!(!queue.end().wait_past(0, Instant::now() + Duration::from_secs(60)), "nothing is under way");
        let entered = queue.enter().unwrap();
        let end = push(&queue, Vec::new(), || ());
        assert!(!end.wait_past(0, Instant::now() + Duration::from_millis(5)), "nothing ends");
        drop(entered);
        assert!(end.wait_past(0, Instant::now() + Duration::from_secs(60)));
        end.wait();
        assert!(end.wait_past(1, Instant::now()) && !end.wait_past(2, Instant::now()));
    }

    #[test]
    fn a_panic_does_not_stop_the_queue() {
        let queue = Arc::new(Queue::default());
        push(&queue, Vec::new(), || panic!("expected in this test"));
        push(&queue, Vec::new(), || ()).wait();
    }

    #[test]
    fn a_job_has_ended_when_what_it_keeps_is_let_go() {
        struct Kept(Arc<Queue>, Arc<AtomicU32>);
        impl Drop for Kept {
            fn drop(&mut self) {
                self.1.store(1 + u32::from(self.0.end().reached()), Ordering::SeqCst);
            }
        }
        for panics in [false, true] {
            let (queue, seen) = (Arc::new(Queue::default()), Arc::new(AtomicU32::new(0)));
            let kept = Arc::new(Kept(Arc::clone(&queue), Arc::clone(&seen)));
            queue.push(Vec::new(), Box::new(move || assert!(!panics, "expected in this test")), kept);
            while seen.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(seen.load(Ordering::SeqCst), 2);
        }
    }
}
