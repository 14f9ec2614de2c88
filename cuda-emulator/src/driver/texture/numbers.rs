// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers by which kernels know textures and surfaces.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::handle::Handle;

/// The numbers of textures and surfaces. As on an H200, a new one of both gets the lowest one that is free, from 1 on. There each
/// context has numbers of its own.
pub(super) struct Numbers(Mutex<State>);

struct State {
    /// The numbers below `next` that no object has any longer.
    free: BTreeSet<usize>,
    next: usize,
}

impl Numbers {
    pub(super) const fn new() -> Numbers {
        Numbers(Mutex::new(State { free: BTreeSet::new(), next: 1 }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lowest free number.
    pub(super) fn take<T>(&self) -> Handle<T> {
        let mut state = self.lock();
        let number = state.free.pop_first().unwrap_or(state.next);
        state.next = state.next.max(number + 1);
        Handle::new(number)
    }

    /// Gives back the number of an object that nothing finds any longer.
    pub(super) fn give_back<T>(&self, handle: Handle<T>) {
        self.lock().free.insert(handle.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken() {
        let numbers = Numbers::new();
        let all: Vec<usize> = (0..4).map(|_| numbers.take::<()>().0).collect();
        assert_eq!(all, [1, 2, 3, 4]);
        numbers.give_back(Handle::<()>::new(3));
        numbers.give_back(Handle::<()>::new(2));
        assert_eq!([(); 3].map(|()| numbers.take::<()>().0), [2, 3, 5]);
    }
}
