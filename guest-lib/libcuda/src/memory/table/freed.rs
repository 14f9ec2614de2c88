// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory that the program has freed and that work may still use, because a wait for the work would have ended a capture.
//!
//! It has no bound but that of all such memory: a program that frees without end while it captures without end is told that there is
//! no more.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// An allocation that the table of addresses has no more.
#[derive(Debug)]
pub struct Freed<R> {
    /// The context whose work may use it; 0 if that has been destroyed.
    pub used_in: u64,
    /// The context that it goes with; 0 if it goes with none.
    pub context: u64,
    /// The allocation.
    pub range: R,
}

/// The freed memory of a process, with what `R` tells of each allocation.
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

    /// Adds some.
    pub fn add(&self, freed: impl IntoIterator<Item = Freed<R>>) {
        self.lock().extend(freed);
    }

    /// Takes what no work may use but that of this context.
    pub fn take(&self, context: u64) -> Vec<Freed<R>> {
        self.lock().extract_if(.., |freed| freed.used_in == context || freed.used_in == 0).collect()
    }

    /// A context has been destroyed. Takes what goes with it; the rest is not used in it any more.
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
