// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory that the program has freed and that work may still use, because waiting for the work would have ended a
//! capture.
//!
//! Its size is bounded by the total of such memory only: a program that frees memory endlessly during an endless
//! capture runs out of memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// An allocation that was removed from the table of addresses.
#[derive(Debug)]
pub struct Freed<R> {
    /// The context whose work may use it; 0 if that has been destroyed.
    pub used_in: u64,
    /// The context that owns it; 0 if there is none.
    pub context: u64,
    /// The allocation.
    pub range: R,
}

/// The freed memory of a process. `R` describes an allocation.
#[derive(Debug)]
pub struct FreedList<R>(Mutex<Vec<Freed<R>>>);

impl<R> Default for FreedList<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R> FreedList<R> {
    fn lock(&self) -> MutexGuard<'_, Vec<Freed<R>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Adds allocations.
    pub fn add(&self, freed: impl IntoIterator<Item = Freed<R>>) {
        self.lock().extend(freed);
    }

    /// Takes the allocations that at most the work of this context uses.
    pub fn take(&self, context: u64) -> Vec<Freed<R>> {
        self.lock().extract_if(.., |freed| freed.used_in == context || freed.used_in == 0).collect()
    }

    /// Handles the destruction of a context. Takes the allocations that it owns; the others are no longer used in it.
    pub fn forget_context(&self, context: u64) -> Vec<Freed<R>> {
        let mut list = self.lock();
        for freed in list.iter_mut().filter(|freed| freed.used_in == context) {
            freed.used_in = 0;
        }
        list.extract_if(.., |freed| freed.context == context).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(used_in: u64, context: u64, range: char) -> Freed<char> {
        Freed { used_in, context, range }
    }

    fn ranges(freed: Vec<Freed<char>>) -> Vec<char> {
        freed.into_iter().map(|freed| freed.range).collect()
    }

    #[test]
    fn memory_waits_for_the_context_that_may_use_it() {
        let list = FreedList::default();
        assert!(list.is_empty());
        list.add([freed(1, 1, 'a'), freed(2, 1, 'b'), freed(1, 0, 'c'), freed(3, 0, 'd')]);
        assert_eq!(ranges(list.take(1)), ['a', 'c']);
        assert_eq!(ranges(list.forget_context(1)), ['b'], "it goes with the context");
        assert!(list.take(1).is_empty() && list.forget_context(3).is_empty());
        assert_eq!(ranges(list.take(1)), ['d'], "no work uses it any more");
        assert!(list.is_empty());
    }
}
