// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of a limited resource: descriptors, files that sessions share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limited resource, and the amount in use.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// A share of a [`Budget`], released when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    amount: usize,
}

impl Budget {
    /// Returns an unused budget.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Takes `amount`, or returns `None` if that exceeds the limit.
    pub fn charge(self: &Arc<Self>, amount: usize) -> Option<Charge> {
        let add = |used: usize| used.checked_add(amount).filter(|&sum| sum <= self.limit);
        self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Charge { budget: self.clone(), amount })
    }

    /// Returns the amount in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_bounded_and_given_back() {
        let budget = Budget::new(1000);
        let most = budget.charge(1000).unwrap();
        assert!(budget.charge(1).is_none());
        assert!(budget.charge(usize::MAX).is_none());
        drop(most);
        assert_eq!(budget.used(), 0);
        assert!(budget.charge(1000).is_some());
    }
}
