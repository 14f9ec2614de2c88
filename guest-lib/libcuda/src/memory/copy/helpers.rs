// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Threads that help with long copies. They are started at the first need and sleep while there is nothing to do.
//!
//! The thread that requests help works too. At the end it waits only for helpers that have begun, because other helpers
//! may be busy with another thread's copy for as long as that takes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use virtio_cuda_client::thread::without_signals;

/// Number of checks whether the others have ended, before sleeping.
const LOOKS: u32 = 2000;

/// The work of helpers: the same call may run in several threads at once.
type Work<'a> = dyn Fn() + Sync + 'a;

/// Work that several threads may run.
///
/// # Invariants
///
/// `work` may be called while the job is in [`State::wanted`], or `running` counts the caller.
struct Job {
    work: *const Work<'static>,
    running: Mutex<usize>,
    /// The same number, for reading without the lock.
    shown: AtomicUsize,
    changed: Condvar,
}

// SAFETY: the work may be called from any thread (it is `Sync`) while the invariant holds; all else is
// `Send` and `Sync` by itself.
unsafe impl Send for Job {}
// SAFETY: the work is `Sync`, and all other fields are protected by locks and atomics.
unsafe impl Sync for Job {}

impl Job {
    fn count(&self, change: isize) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = running.wrapping_add_signed(change);
        self.shown.store(*running, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct State {
    /// Requests for a helper; a job has one entry per helper.
    wanted: VecDeque<Arc<Job>>,
    threads: usize,
    idle: usize,
}

/// The helpers of this process.
pub struct Helpers {
    most: usize,
    state: Mutex<State>,
    some: Condvar,
}

impl Helpers {
    /// Returns helpers with at most `most` threads, none of which is started yet.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), some: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` here and in up to `count` helpers. Returns when all have returned from it.
    pub fn run(&'static self, count: usize, work: &Work<'_>) {
        self.run_beside(count, work, work);
    }

    /// Runs `own` here, and `work` in up to `count` helpers at the same time. Returns when all have returned.
    pub fn run_beside<T>(&'static self, count: usize, work: &Work<'_>, own: impl FnOnce() -> T) -> T {
        // SAFETY: only the lifetime changes. The job leaves `wanted` and `running` falls to 0 before `work` is
        // given back, below, also when it panics.
        let work_for_ever = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let job = Arc::new(Job {
            work: work_for_ever,
            running: Mutex::new(0),
            shown: AtomicUsize::new(0),
            changed: Condvar::new(),
        });
        let _end = End { helpers: self, job: &job };
        self.ask(&job, count);
        own()
    }

    fn ask(&'static self, job: &Arc<Job>, count: usize) {
        if count == 0 {
            return;
        }
        let mut state = self.state();
        for _ in 0..count {
            state.wanted.push_back(job.clone());
            if state.wanted.len() > state.idle && state.threads < self.most {
                let name = format!("cuda-copy-{}", state.threads);
                let started = without_signals(|| thread::Builder::new().name(name).spawn(|| self.serve()));
                // If the thread did not start, the existing ones do its part.
                state.threads += usize::from(started.is_ok());
            }
        }
        drop(state);
        self.some.notify_all();
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            match state.wanted.pop_front() {
                Some(job) => {
                    // Counted under the lock of `state`: a thread that takes the job back sees it either wanted or
                    // running.
                    job.count(1);
                    drop(state);
                    let running = Running(&job);
                    // SAFETY: `running` counts this thread (invariant).
                    unsafe { (*job.work)() };
                    drop(running);
                    state = self.state();
                }
                None => {
                    state.idle += 1;
                    state = self.some.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }
}

/// Decrements the number of running helpers when one is done with a job.
struct Running<'a>(&'a Job);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.count(-1);
        self.0.changed.notify_all();
    }
}

/// Takes a job back, and waits for the helpers that have begun it.
struct End<'a> {
    helpers: &'static Helpers,
    job: &'a Arc<Job>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.helpers.state().wanted.retain(|job| !Arc::ptr_eq(job, self.job));
        // The helpers usually end at the same time; sleeping would take longer.
        let mut looks = 0;
        while self.job.shown.load(Ordering::Relaxed) > 0 && looks < LOOKS {
            std::hint::spin_loop();
            looks += 1;
        }
        let mut running = self.job.running.lock().unwrap_or_else(PoisonError::into_inner);
        while *running > 0 {
            running = self.job.changed.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_that_is_held_up_holds_no_other_up() {
        static HELPERS: LazyLock<Helpers> = LazyLock::new(|| Helpers::new(2));
        let (first, gate) = (AtomicUsize::new(0), Mutex::new(()));
        let closed = gate.lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                HELPERS.run(2, &|| {
                    first.fetch_add(1, Ordering::SeqCst);
                    drop(gate.lock().unwrap());
                })
            });
            while first.load(Ordering::SeqCst) < 3 {
                thread::yield_now();
            }
            // All helpers wait at the gate: this thread does the second job alone.
            let second = AtomicUsize::new(0);
            HELPERS.run(2, &|| {
                second.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(second.into_inner(), 1);
            drop(closed);
        });
        assert_eq!(HELPERS.state().threads, 2);
        assert!(HELPERS.state().wanted.is_empty());
    }
}
