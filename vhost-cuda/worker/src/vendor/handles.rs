// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handles that a library has given out, by the guest's numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::{ArcMutexGuard, Mutex, RawMutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use vhost_cuda_common::budget::{Budget, Charge};

use super::objects::{Block, Objects};
use crate::gpu::{CuResult, CudaError};
use crate::objects::{Object, Table};

/// The state of a handle. A call that uses the handle locks it, because many kinds are not thread-safe.
#[derive(Debug, Default)]
pub struct State {
    /// True if scalars are in device memory.
    pub device_scalars: bool,
    /// Its stream, which lives at least until another one is set.
    pub stream: Option<Arc<Object>>,
    /// Memory that the library uses internally.
    pub scratch: Scratch,
    /// Host memory of earlier calls that the library may still read (`cuda_library_rows::Facts::lends`).
    pub lent: Vec<Block>,
    /// Objects that were created with it.
    pub objects: Objects,
    /// Numbers by their notes (`cuda_library_rows::Notes`).
    pub notes: HashMap<usize, i64>,
    /// The handle with which it was created, if a function ends both together (`Kind::End` beside other parameters).
    pub maker: Option<Weak<Object>>,
    /// A digest of the matrix for which it was set up (`cuda_library_rows::Notes::keeps_pattern`).
    pub pattern: Option<blake3::Hash>,
}

/// Host memory that a library uses internally while a call runs, and possibly until the queued work is done.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The last block is the longest. Those before it may be in use.
    blocks: Vec<(Vec<u128>, Charge)>,
}

/// The budget for host memory of libraries (scratch, objects and what is lent) in this process, which serves one
/// session. Bounds the host memory of a guest that creates many handles.
static LIBRARY_MEMORY: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(LIBRARY_BYTES));
const LIBRARY_BYTES: usize = 512 << 20;

/// Charges host memory that a library uses on behalf of a guest.
///
/// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn charge(bytes: usize) -> CuResult<Charge> {
    LIBRARY_MEMORY.charge(bytes).ok_or(CudaError::OUT_OF_MEMORY)
}

impl Scratch {
    /// Returns the address of memory with that many bytes.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn of(&mut self, bytes: usize) -> CuResult<u64> {
        let longest = self.blocks.last().map_or(0, |(block, _)| size_of_val(&block[..]));
        if bytes > longest || longest == 0 {
            // Twice as long as the last one, so that all of them together take at most twice the required bytes.
            let words = bytes.max(2 * longest).div_ceil(size_of::<u128>()).max(1);
            let charge = charge(words * size_of::<u128>())?;
            self.blocks.push((vec![0; words], charge));
        }
        self.blocks.last_mut().map(|(block, _)| block.as_mut_ptr() as u64).ok_or(CudaError::OUT_OF_MEMORY)
    }
}

/// A handle's state, locked.
pub type Locked = ArcMutexGuard<RawMutex, State>;
/// The locked states of some handles, by kind and name.
pub type LockedStates = SmallVec<[((usize, u64), Locked); 4]>;

/// The handles of a library.
#[derive(Debug)]
pub struct Handles {
    kinds: Vec<Table>,
    /// The functions that destroy them, by kind.
    ends: Vec<Option<usize>>,
    /// The kinds whose handles are structures: objects are made with these only.
    structures: Vec<bool>,
    states: RwLock<FxHashMap<(usize, u64), Known>>,
}

/// A handle's state and end.
#[derive(Debug, Default)]
struct Known {
    state: Arc<Mutex<State>>,
    /// The address of the function that destroys it, or 0 for the usual one.
    end: Arc<AtomicUsize>,
}

impl Handles {
    /// Returns an empty table. `ends` has the function that destroys handles of each kind. `structures` is true for
    /// kinds that are structures.
    pub fn new(ends: Vec<Option<usize>>, structures: Vec<bool>) -> Self {
        let kinds = ends.iter().map(|_| Table::default()).collect();
        Self { kinds, ends, structures, states: RwLock::default() }
    }

    /// Returns the table of handles of a kind.
    pub fn kind(&self, kind: usize) -> CuResult<&Table> {
        self.kinds.get(kind).ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns the function that destroys handles of a kind.
    pub fn end(&self, kind: usize) -> Option<usize> {
        self.ends.get(kind).copied().flatten()
    }

    /// Registers a new handle, which was created with the handle `maker`. Returns the place to which [`Self::ended`] writes the address of the function that
    /// destroys it. It stays 0 if that is the kind's usual function.
    pub fn made(&self, kind: usize, id: u64, maker: Option<&Arc<Object>>) -> Arc<AtomicUsize> {
        let known = Known::default();
        known.state.lock().maker = maker.map(Arc::downgrade);
        let end = known.end.clone();
        self.states.write().insert((kind, id), known);
        end
    }

    /// Removes a handle, which the function at `end` is about to destroy. Its objects are destroyed now, before it.
    /// Returns its state, which must live until the handle is destroyed, because the library may read what is lent.
    pub fn ended(&self, kind: usize, id: u64, end: usize) -> Option<Arc<Mutex<State>>> {
        let known = self.states.write().remove(&(kind, id))?;
        known.end.store(end, Ordering::Relaxed);
        // Only handles of these kinds have objects. For the others, the lock would only wait for a running call.
        if self.structures.get(kind) == Some(&true) {
            known.state.lock().objects.end();
        }
        Some(known.state)
    }

    /// Locks the states of some handles, each of them once, in the same order in all calls.
    pub fn lock(&self, wanted: &[(usize, u64)]) -> LockedStates {
        let state_of = |states: &FxHashMap<_, Known>, key| states.get(key).map(|known| known.state.clone());
        if let [key] = wanted {
            let state = state_of(&self.states.read(), key);
            return state.map(|state| (*key, state.lock_arc())).into_iter().collect();
        }
        let states = self.states.read();
        let mut found: SmallVec<[_; 4]> =
            wanted.iter().filter_map(|key| Some((*key, state_of(&states, key)?))).collect();
        drop(states);
        found.sort_unstable_by_key(|(key, _)| *key);
        found.dedup_by(|(one, _), (other, _)| one == other);
        found.into_iter().map(|(key, state)| (key, state.lock_arc())).collect()
    }

    /// Returns whether the states that [`Self::lock`] has returned for these handles still belong to them. A name may
    /// have been given to another handle since. The state is registered before the handle can be found, so a handle
    /// that was found before this check belongs to the locked state.
    pub fn have(&self, wanted: &[(usize, u64)], locked: &[((usize, u64), Locked)]) -> bool {
        let states = self.states.read();
        wanted.iter().all(|key| {
            let now = states.get(key).map(|known| Arc::as_ptr(&known.state));
            let then = locked.iter().find(|(known, _)| known == key);
            now == then.map(|(_, state)| Arc::as_ptr(Locked::mutex(state)))
        })
    }

    /// Destroys a handle, which no call uses any more.
    pub fn end_one(&self, kind: usize, id: u64) {
        let object = self.kind(kind).and_then(|table| table.remove(id));
        let _state = self.ended(kind, id, 0);
        if let Err(error) = object.and_then(Object::destroy) {
            log::debug!("a handle of a library does not end: {error}");
        }
    }

    /// Destroys all handles, which no call uses any more: those of the kinds that others refer to last.
    pub fn end_all(&self) {
        // The library may read what is lent until its handles have ended.
        let states = std::mem::take(&mut *self.states.write());
        for ((kind, _), known) in &states {
            if self.structures.get(*kind) == Some(&true) {
                known.state.lock().objects.end();
            }
        }
        for object in self.kinds.iter().rev().flat_map(|table| table.take(|_| true)) {
            if let Err(error) = Object::destroy(object) {
                log::debug!("a handle of a library does not end: {error}");
            }
        }
    }

    /// Forgets all handles of a context that is about to be destroyed. They are not destroyed: memory that the
    /// library has allocated for them stays until this process ends.
    pub fn close_context(&self, context: u64) {
        for table in &self.kinds {
            table.take(|object| object.context() == context).into_iter().for_each(Object::end_with_parent);
        }
        let mut removed = Vec::new();
        for ((kind, id), known) in self.states.read().iter() {
            // Locked by a running call, which keeps the stream itself.
            let Some(mut state) = known.state.try_lock() else { continue };
            removed.extend(state.stream.take_if(|stream| stream.context() == context));
            if self.kinds.get(*kind).is_some_and(|table| table.get(*id).is_err()) {
                // Dropped without being destroyed, as their handle was.
                state.objects = Objects::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_locked_once_and_in_order() {
        let handles = Handles::new(vec![None, None], vec![false, true]);
        handles.made(0, 32, None);
        handles.made(1, 16, None);
        let keys = |wanted: &[(usize, u64)]| -> Vec<(usize, u64)> {
            handles.lock(wanted).into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys(&[(1, 16), (0, 32), (1, 16), (0, 48)]), [(0, 32), (1, 16)]);
        handles.ended(1, 16, 0);
        assert_eq!(keys(&[(1, 16)]), []);
    }

    #[test]
    fn a_handle_is_destroyed_beside_a_long_call() {
        let handles = Handles::new(vec![None], vec![false]);
        handles.made(0, 32, None);
        let call = handles.lock(&[(0, 32)]);
        // Returns, although the call continues.
        handles.ended(0, 32, 0);
        assert_eq!(call.len(), 1);
    }

    #[test]
    fn a_name_that_another_handle_got_is_noticed() {
        let handles = Handles::new(vec![None], vec![false]);
        handles.made(0, 32, None);
        let (one, none) = (&[(0, 32)], &[(0, 48)]);
        let call = handles.lock(&[(0, 32), (0, 48)]);
        assert!(handles.have(one, &call) && handles.have(none, &call));
        handles.ended(0, 32, 0);
        assert!(!handles.have(one, &call));
        handles.made(0, 32, None);
        assert!(!handles.have(one, &call));
        handles.made(0, 48, None);
        assert!(!handles.have(none, &call), "it has come since");
    }

    #[test]
    fn who_destroys_a_handle_is_told() {
        let handles = Handles::new(vec![None], vec![false]);
        let end = handles.made(0, 32, None);
        handles.ended(0, 32, 0x1234);
        assert_eq!(end.load(Ordering::Relaxed), 0x1234);
    }

    #[test]
    fn scratch_memory_stays_and_is_bounded() {
        let mut scratch = Scratch::default();
        let first = scratch.of(100).unwrap();
        assert_eq!(scratch.of(50), Ok(first), "there is room");
        let second = scratch.of(1000).unwrap();
        assert_ne!(first, second, "the first one may be in use");
        let third = scratch.of(1100).unwrap();
        assert_eq!(scratch.of(2000), Ok(third), "it has grown by more than was needed");
        assert_eq!(scratch.of(LIBRARY_BYTES), Err(CudaError::OUT_OF_MEMORY));
    }
}
