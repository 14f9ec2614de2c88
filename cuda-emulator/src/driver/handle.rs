// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles: numbers by which C code refers to objects. A handle is looked up, never followed, and never reused, so
//! that a forged or stale one is only an error. Only textures and surfaces get numbers again, as on a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub(super) use cuda_abi::kinds::Kind;
use cuda_abi::prototypes::{Parameter, Shape};

use super::result::CUresult;
use crate::checks::checks;

/// An object that handles refer to.
pub(super) trait Object {
    /// The kind that handles carry, if any.
    const KIND: Option<Kind>;
}

impl Object for () {
    const KIND: Option<Kind> = None;
}

/// A C handle for a `T`, with the size of a pointer.
#[repr(transparent)]
pub struct Handle<T>(pub usize, PhantomData<fn() -> T>);

impl<T> Parameter for Handle<T> {
    const SHAPE: Shape = Shape::Integer(size_of::<usize>());
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Handle<T> {}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl<T> Handle<T> {
    /// The NULL handle.
    pub const NULL: Handle<T> = Handle(0, PhantomData);

    /// Creates the handle with this value.
    pub const fn new(value: usize) -> Handle<T> {
        Handle(value, PhantomData)
    }

    /// Returns a value that no other handle of any kind ever had, for an object of this kind.
    pub(super) fn unique_of(kind: Option<Kind>) -> Handle<T> {
        /// Far from small constants such as CU_STREAM_LEGACY, and aligned like a pointer.
        static NEXT: AtomicUsize = AtomicUsize::new(0x5000_0000);
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        Handle::new(kind.map_or(number, |kind| kind.handle(number as u64) as usize))
    }

    /// Returns the same value as a handle of another kind (CUkernel as CUfunction).
    pub(super) fn cast<U>(self) -> Handle<U> {
        Handle::new(self.0)
    }
}

impl<T: Object> Handle<T> {
    /// Returns a value that no other handle of any kind ever had.
    pub(super) fn unique() -> Handle<T> {
        Self::unique_of(T::KIND)
    }

    /// As [`Self::unique`], but as high as NVIDIA's handles: above the numbers that guests of the daemon choose.
    pub(super) fn unique_high() -> Handle<T> {
        const HIGH: usize = 0x5000_0000_0000;
        Handle::new(Self::unique_of(None).0 + HIGH)
    }

    /// Returns the error of a call that gets this handle, if there is no such object.
    pub(super) fn refusal(self) -> CUresult {
        let code = T::KIND.map(|kind| kind.refusal(self.0 as u64));
        code.map_or(CUresult::CUDA_ERROR_INVALID_HANDLE, |code| CUresult(code as u32))
    }
}

/// `CUDA_EMULATOR_CHECK=handles`: ends the process where NVIDIA's library would follow a pointer into freed memory.
/// Threads pause before they look a handle up, so that a race between two of them shows.
mod stale {
    use super::*;

    static DESTROYED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    const LINGER: Duration = Duration::from_micros(20);

    pub(super) fn linger() {
        if checks().handles {
            std::thread::sleep(LINGER);
        }
    }

    /// Numbers of textures and surfaces are given again.
    pub(super) fn made(handle: usize) {
        if checks().handles {
            DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        }
    }

    pub(super) fn destroyed(handle: usize) {
        if checks().handles {
            DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
        }
    }

    pub(super) fn check(handle: usize) {
        if checks().handles && DESTROYED.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle) {
            log::error!("handle {handle:#x} is used after it was destroyed");
            std::process::abort();
        }
    }
}

/// All live objects of one kind.
pub(super) struct Registry<T> {
    objects: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Registry<T> {
    pub(super) const fn new() -> Registry<T> {
        Registry { objects: RwLock::new(BTreeMap::new()) }
    }

    pub(super) fn insert(&self, handle: Handle<T>, object: Arc<T>) {
        stale::made(handle.0);
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(handle.0, object);
    }

    pub(super) fn get(&self, handle: Handle<T>) -> Option<Arc<T>> {
        stale::linger();
        let found = self.objects.read().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned();
        if found.is_none() {
            stale::check(handle.0);
        }
        found
    }

    pub(super) fn remove(&self, handle: Handle<T>) -> Option<Arc<T>> {
        let removed = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        match removed {
            Some(_) => stale::destroyed(handle.0),
            None => stale::check(handle.0),
        }
        removed
    }

    /// Returns the handle of the first object that `wanted` selects.
    pub(super) fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Handle<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.iter().find(|(_, object)| wanted(object)).map(|(handle, _)| Handle::new(*handle))
    }

    /// All live objects.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Removes the objects that `unwanted` selects.
    pub(super) fn remove_where(&self, unwanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let removed = objects.extract_if(.., |_, object| unwanted(object));
        let removed = removed.map(|(handle, object)| {
            stale::destroyed(handle);
            object
        });
        removed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Object for u32 {
        const KIND: Option<Kind> = None;
    }

    #[test]
    fn stale_and_forged_handles_find_nothing() {
        let registry = Registry::<u32>::new();
        let handle = Handle::unique();
        registry.insert(handle, Arc::new(7));
        assert_eq!(registry.get(handle).as_deref(), Some(&7));
        assert_eq!(registry.remove(handle).as_deref(), Some(&7));
        assert_eq!(registry.get(handle), None);
        assert_eq!(registry.get(Handle::new(0xdead)), None);
        assert_ne!(Handle::<u32>::unique(), handle);
    }
}
