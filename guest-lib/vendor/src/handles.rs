// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles that the program has, and what this side must know of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// Numbers look like addresses of 16 aligned bytes, because programs check that. Each library has a table of its own in the
/// worker, so the files of several libraries may give the same ones.
static NEXT: AtomicU64 = AtomicU64::new(0x7fc0_0000_0000);

/// A number for a new handle.
pub fn mint() -> u64 {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// What a library's functions do with a handle depends on this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Scalars are in device memory.
    pub device_scalars: bool,
    /// The stream that its work goes to.
    pub stream: u64,
}

/// States of the handles of a library that are not the usual one.
#[derive(Debug)]
pub struct Handles(RwLock<Option<HashMap<u64, State>>>);

impl Handles {
    /// No handles.
    pub const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// The state of a handle.
    pub fn state(&self, handle: u64) -> State {
        self.0.read().as_ref().and_then(|states| states.get(&handle)).copied().unwrap_or_default()
    }

    /// Changes the state of a handle.
    pub fn change(&self, handle: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.state(handle);
        change(&mut state);
        let mut states = self.0.write();
        let states = states.get_or_insert_default();
        if state == State::default() {
            states.remove(&handle);
        } else {
            states.insert(handle, state);
        }
    }

    /// A handle has ended.
    pub fn forget(&self, handle: u64) {
        if let Some(states) = self.0.write().as_mut() {
            states.remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_belong_to_handles() {
        let handles = Handles::new();
        let (first, second) = (mint(), mint());
        assert_ne!(first, second);
        handles.change(first, |state| state.stream = 7);
        handles.change(first, |state| state.device_scalars = true);
        assert_eq!(handles.state(first), State { device_scalars: true, stream: 7 });
        assert_eq!(handles.state(second), State::default());
        handles.forget(first);
        assert_eq!(handles.state(first), State::default());
    }
}
