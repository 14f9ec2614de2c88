// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The number of streams that capture.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Captures that have begun and not ended.
#[derive(Debug, Default)]
pub struct Captures(AtomicUsize);

impl Captures {
    /// Returns whether any stream could be capturing.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Begins a capture by `call`.
    pub(super) fn begin<E>(&self, call: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // It counts before the device knows of it: what other threads do meanwhile could be captured.
        self.0.fetch_add(1, Ordering::AcqRel);
        call().inspect_err(|_| self.ended())
    }

    pub(super) fn ended(&self) {
        let _ = self.0.try_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_counts_while_it_begins() {
        let captures = Captures::default();
        let begun = captures.begin(|| {
            assert!(captures.any());
            Ok::<_, ()>(())
        });
        assert!(begun.is_ok() && captures.any());
        assert!(captures.begin(|| Err(())).is_err() && captures.any(), "the first one goes on");
        captures.ended();
        assert!(!captures.any());
        captures.ended();
        assert!(!captures.any());
    }
}
