// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracks calls for whose effects no thread has waited yet.

use std::sync::atomic::{AtomicU64, Ordering};

/// The code that a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Code that the program loaded. It matters only if that code may print.
    LoadedCode,
    /// Anything else.
    Other,
}

/// Tracks whether all calls of one sort have ended. Time is divided into periods: a thread that waits for all calls begins a new
/// one. This records the last period with a call, and the last period that was waited for. So a call writes nothing unless it is
/// the first of its period: all executors come here with each launch, and the cache line of a counter would move from processor
/// to processor.
#[derive(Debug)]
struct Calls {
    period: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Default for Calls {
    fn default() -> Self {
        Self { period: AtomicU64::new(1), begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }
}

impl Calls {
    /// Counts a call that was made. If a period ends after this looks at it, the thread that waits then waits for the call, too.
    fn count(&self) {
        let period = self.period.load(Ordering::SeqCst);
        if self.begun.load(Ordering::SeqCst) < period {
            self.begun.fetch_max(period, Ordering::SeqCst);
        }
    }

    /// Ends a period that has a call. Returns the last period that has ended.
    fn so_far(&self) -> u64 {
        let period = self.period.load(Ordering::SeqCst);
        if self.begun.load(Ordering::SeqCst) < period {
            return period - 1;
        }
        self.period.fetch_add(1, Ordering::SeqCst)
    }

    fn end(&self, so_far: u64) {
        if self.ended.load(Ordering::SeqCst) < so_far {
            self.ended.fetch_max(so_far, Ordering::SeqCst);
        }
    }

    fn is_none(&self) -> bool {
        self.begun.load(Ordering::SeqCst) <= self.ended.load(Ordering::SeqCst)
    }
}

/// Calls of a session that have not ended.
#[derive(Debug, Default)]
pub struct OutstandingCalls {
    code: Calls,
    others: Calls,
}

/// The calls that had been counted at one time. By default, no calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    code: u64,
    others: u64,
}

impl OutstandingCalls {
    /// Returns the calls so far. To be taken before a call that waits, and passed to [`Self::end`] after it.
    pub fn so_far(&self) -> SoFar {
        SoFar { code: self.code.so_far(), others: self.others.so_far() }
    }

    /// Notes a call. Must be called after it: a call of another thread that waits meanwhile would otherwise end it.
    pub fn count(&self, runs: Runs) {
        match runs {
            Runs::LoadedCode => self.code.count(),
            Runs::Other => self.others.count(),
        }
    }

    /// Ends all calls of `so_far`.
    pub fn end(&self, so_far: SoFar) {
        self.code.end(so_far.code);
        self.others.end(so_far.others);
    }

    /// Returns whether all calls have ended. Calls that run loaded code count only if `code_prints`.
    pub fn is_none(&self, code_prints: bool) -> bool {
        self.others.is_none() && (!code_prints || self.code.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_up_to_the_point_that_was_waited_for() {
        let calls = OutstandingCalls::default();
        assert!(calls.is_none(true));
        for runs in [Runs::LoadedCode, Runs::Other] {
            calls.count(runs);
            assert!(!calls.is_none(true));
            assert_eq!(calls.is_none(false), runs == Runs::LoadedCode);
            calls.end(calls.so_far());
            assert!(calls.is_none(true));
        }
        let so_far = calls.so_far();
        calls.count(Runs::LoadedCode);
        calls.end(so_far);
        calls.end(SoFar::default());
        assert!(!calls.is_none(true), "it came later");
    }

    #[test]
    fn a_period_without_calls_goes_on() {
        let calls = Calls::default();
        let before = calls.so_far();
        assert_eq!(calls.so_far(), before);
        calls.count();
        let first = calls.so_far();
        calls.count();
        calls.count();
        calls.end(before);
        calls.end(first);
        assert!(!calls.is_none(), "two came in the period after it");
        calls.end(calls.so_far());
        assert!(calls.is_none());
    }

    /// Threads make calls, numbered, and some wait for all that were made. A call that counts as ended was waited for.
    #[test]
    fn no_call_counts_as_ended_before_it_was_waited_for() {
        let (calls, made, waited) = (Calls::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3_u32 {
                let (calls, made, waited) = (&calls, &made, &waited);
                scope.spawn(move || {
                    for round in 0..20_000_u32 {
                        if round % 3 == thread {
                            let so_far = calls.so_far();
                            waited.fetch_max(made.load(Ordering::SeqCst), Ordering::SeqCst);
                            calls.end(so_far);
                            continue;
                        }
                        let number = made.fetch_add(1, Ordering::SeqCst) + 1;
                        calls.count();
                        if calls.is_none() {
                            assert!(waited.load(Ordering::SeqCst) >= number);
                        }
                    }
                });
            }
        });
        calls.end(calls.so_far());
        assert!(calls.is_none());
    }
}
