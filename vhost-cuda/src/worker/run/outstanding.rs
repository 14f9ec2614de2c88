// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the calls whose effects nobody has waited for.

use virtio_cuda_ring::Outstanding;

/// The code that a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Code that the program loaded. It matters only if that code may print.
    LoadedCode,
    /// Anything else.
    Other,
}

/// Calls of a session that have not ended.
#[derive(Debug, Default)]
pub struct OutstandingCalls {
    code: Outstanding,
    others: Outstanding,
}

/// The calls that had been counted at some moment. By default, no calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    code: u64,
    others: u64,
}

impl OutstandingCalls {
    /// Calls so far. Taken before a call that waits, and passed to [`Self::end`] after it.
    pub fn so_far(&self) -> SoFar {
        SoFar { code: self.code.so_far(), others: self.others.so_far() }
    }

    /// Counts a call. To be called after it: a call of another thread that waits meanwhile would otherwise end it.
    pub fn count(&self, runs: Runs) {
        match runs {
            Runs::LoadedCode => self.code.begin(),
            Runs::Other => self.others.begin(),
        };
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
}
