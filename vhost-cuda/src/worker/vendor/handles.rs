// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a library has given out, by the guest's numbers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{ArcMutexGuard, Mutex, RawMutex, RwLock};

use crate::worker::gpu::{CuResult, CudaError};
use crate::worker::objects::{Object, Table};

/// What is to be known of a handle. A call that uses the handle has it locked: many kinds are not made for several threads.
#[derive(Debug, Default)]
pub struct State {
    /// Scalars are in device memory.
    pub device_scalars: bool,
    /// Its stream lives at least until another one is set.
    pub stream: Option<Arc<Object>>,
}

/// A handle's state, locked.
pub type Locked = ArcMutexGuard<RawMutex, State>;

/// The handles of a library.
#[derive(Debug)]
pub struct Handles {
    kinds: Vec<Table>,
    /// The functions that destroy them, by kind.
    ends: Vec<Option<usize>>,
    states: RwLock<HashMap<(usize, u64), Arc<Mutex<State>>>>,
}

impl Handles {
    /// No handles, of kinds that are destroyed by these functions.
    pub fn new(ends: Vec<Option<usize>>) -> Self {
        Self { kinds: ends.iter().map(|_| Table::default()).collect(), ends, states: RwLock::default() }
    }

    /// The handles of a kind.
    pub fn kind(&self, kind: usize) -> CuResult<&Table> {
        self.kinds.get(kind).ok_or(CudaError::INVALID_VALUE)
    }

    /// The function that destroys handles of a kind.
    pub fn end(&self, kind: usize) -> Option<usize> {
        self.ends.get(kind).copied().flatten()
    }

    /// A handle was made.
    pub fn made(&self, kind: usize, id: u64) {
        self.states.write().insert((kind, id), Arc::default());
    }

    /// A handle has lost its name.
    pub fn ended(&self, kind: usize, id: u64) {
        self.states.write().remove(&(kind, id));
    }

    /// Locks the states of some handles, each of them once, in an order that is the same for all calls.
    pub fn lock(&self, wanted: &[(usize, u64)]) -> Vec<((usize, u64), Locked)> {
        let states = self.states.read();
        let mut found: Vec<_> =
            wanted.iter().filter_map(|key| Some((*key, states.get(key)?.clone()))).collect();
        drop(states);
        found.sort_unstable_by_key(|(key, _)| *key);
        found.dedup_by_key(|(key, _)| *key);
        found.into_iter().map(|(key, state)| (key, state.lock_arc())).collect()
    }

    /// Takes the names from all handles of a context, which then goes without them. What the library itself keeps of them
    /// stays in this process until it ends.
    pub fn close_context(&self, context: u64) {
        for table in &self.kinds {
            table.take(|object| object.context() == context).into_iter().for_each(Object::end_with_parent);
        }
        let mut gone = Vec::new();
        for state in self.states.read().values() {
            // A call that has it locked uses the stream anyway.
            if let Some(mut state) = state.try_lock() {
                gone.extend(state.stream.take_if(|stream| stream.context() == context));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_locked_once_and_in_order() {
        let handles = Handles::new(vec![None, None]);
        handles.made(0, 32);
        handles.made(1, 16);
        let keys = |wanted: &[(usize, u64)]| -> Vec<(usize, u64)> {
            handles.lock(wanted).into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys(&[(1, 16), (0, 32), (1, 16), (0, 48)]), [(0, 32), (1, 16)]);
        handles.ended(1, 16);
        assert_eq!(keys(&[(1, 16)]), []);
    }
}
