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
    pub(super) fn begun(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
    pub(super) fn ended(&self) {
        let _ = self.0.try_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
}
