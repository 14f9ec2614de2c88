// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds the host memory that one guest's outstanding requests occupy, in the daemon and (once more) in its workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of outstanding requests of one connection. A request needs up to 0.6 MB (64 MiB of scattered
/// pages in both directions), usually far less than 1 KB.
const MAX_BYTES: usize = 256 << 20;

/// What the outstanding requests of one connection occupy.
#[derive(Debug, Default)]
pub struct Budget {
    used: AtomicUsize,
}

/// A share of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// Takes `bytes`; `None` if that exceeds the limit.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let add = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= MAX_BYTES);
        self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Charge { budget: self.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_bounded_and_given_back() {
        let budget = Arc::new(Budget::default());
        let most = budget.charge(MAX_BYTES).unwrap();
        assert!(budget.charge(1).is_none());
        assert!(budget.charge(usize::MAX).is_none());
        drop(most);
        assert!(budget.charge(MAX_BYTES).is_some());
    }
}
