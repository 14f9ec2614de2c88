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

    /// Takes `amount`, or as much of it as is left, which may be nothing.
    pub fn charge_up_to(self: &Arc<Self>, amount: usize) -> Charge {
        let part = |used: usize| amount.min(self.limit.saturating_sub(used));
        let add = |used: usize| Some(used + part(used));
        // The closure never returns `None`.
        let before = self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, add).unwrap_or(self.limit);
        Charge { budget: self.clone(), amount: part(before) }
    }

    /// Returns the amount in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// Returns the amount that it holds.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes over what `other`, a share of the same budget, holds.
    pub fn merge(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
    }

    /// Gives back what it holds beyond `amount`.
    pub fn shrink_to(&mut self, amount: usize) {
        let rest = self.amount.saturating_sub(amount);
        self.amount -= rest;
        self.budget.used.fetch_sub(rest, Ordering::Relaxed);
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

    #[test]
    fn a_charge_takes_what_is_left_and_gives_parts_back() {
        let budget = Budget::new(1000);
        let mut first = budget.charge_up_to(700);
        let second = budget.charge_up_to(usize::MAX);
        assert_eq!((first.amount(), second.amount(), budget.used()), (700, 300, 1000));
        assert_eq!(budget.charge_up_to(1).amount(), 0);
        first.shrink_to(800);
        assert_eq!(first.amount(), 700);
        first.shrink_to(100);
        assert_eq!(budget.used(), 400);
        first.merge(second);
        assert_eq!((first.amount(), budget.used()), (400, 400));
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
