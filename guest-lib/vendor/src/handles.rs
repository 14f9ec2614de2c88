// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles that the program has, and what this side must know of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// Numbers look like addresses of 16 aligned bytes, because programs check that.
const STEP: u64 = 16;
/// Handles of the first library; each library has [`OF_LIBRARY`] of its own, because some take the handles of another.
const BASE: u64 = 0x7000_0000_0000;
const OF_LIBRARY: u64 = 1 << 36;

/// Numbers of new handles.
#[derive(Debug)]
pub struct Mint(AtomicU64);

impl Mint {
    /// None was given out.
    pub const fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// A new handle of a library, as the program has it.
    pub fn next(&self, library: u32, is_int: bool) -> u64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        if is_int { number } else { first_of(library) + number * STEP }
    }
}

fn first_of(library: u32) -> u64 {
    BASE + u64::from(library) * OF_LIBRARY
}

/// The number by which the worker knows a handle of the program's.
pub fn crossing(library: u32, is_int: bool, handle: u64) -> u64 {
    if is_int { first_of(library) + handle } else { handle }
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
        let mint = Mint::new();
        let (first, second) = (mint.next(1, false), mint.next(1, false));
        assert_ne!(first, second);
        assert_eq!(crossing(1, false, first), first);
        let plan = mint.next(1, true);
        assert_eq!((plan, crossing(1, true, plan)), (3, first_of(1) + 3));
        handles.change(first, |state| state.stream = 7);
        handles.change(first, |state| state.device_scalars = true);
        assert_eq!(handles.state(first), State { device_scalars: true, stream: 7 });
        assert_eq!(handles.state(second), State::default());
        handles.forget(first);
        assert_eq!(handles.state(first), State::default());
    }
}
