// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Contexts: which there are, and each thread's stack of them. Both are local: the current context travels
//! with every call.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use virtio_cuda_client::CudaError;

use crate::handles::new_handle;

thread_local! {
    // Neither has a destructor, so that they outlive the thread's others, which may still make calls. The
    // contexts below the top are few, and rare.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    static BELOW: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// The calling thread's current context; 0 is none.
pub fn current() -> u64 {
    CURRENT.get()
}

/// Replaces the top of the calling thread's stack; 0 removes it.
pub fn set_current(context: u64) {
    if context == 0 {
        pop();
    } else {
        CURRENT.set(context);
    }
}

/// Pushes onto the calling thread's stack.
pub fn push(context: u64) {
    let top = CURRENT.replace(context);
    if top != 0 {
        BELOW.with(|below| below.borrow_mut().push(top));
    }
}

/// Takes the top off the calling thread's stack; 0 if it is empty.
pub fn pop() -> u64 {
    let next = BELOW.with(|below| below.borrow_mut().pop()).unwrap_or(0);
    CURRENT.replace(next)
}

/// A device's primary context.
#[derive(Clone, Copy, Debug)]
pub struct Primary {
    /// Its name, the same each time.
    pub context: u64,
    /// The number of times that the program holds it.
    pub retains: u32,
    /// It exists: held, and not reset since it was first held.
    pub active: bool,
    /// Flags for the next time it becomes active.
    pub flags: u32,
}

/// All contexts of the process.
#[derive(Debug)]
pub struct Contexts {
    primaries: Vec<Mutex<Primary>>,
    /// The device of every context, and whether the context still exists.
    devices: RwLock<HashMap<u64, (u32, bool)>>,
    /// True if any of them was destroyed so far.
    any_destroyed: AtomicBool,
    /// The number of holders that `cuCtxAttach` added to a context.
    attached: Mutex<HashMap<u64, u32>>,
    /// A context in which no call is served any more (0: none), and the code.
    broken: (AtomicU64, AtomicI32),
}

impl Contexts {
    /// No context yet, on `count` devices.
    pub fn new(count: u32) -> Self {
        let primary = |_| Mutex::new(Primary { context: new_handle(), retains: 0, active: false, flags: 0 });
        Self {
            primaries: (0..count).map(primary).collect(),
            devices: RwLock::default(),
            any_destroyed: AtomicBool::new(false),
            attached: Mutex::default(),
            broken: Default::default(),
        }
    }

    /// The primary context of a device, locked: retain and release happen one at a time.
    pub fn primary(&self, device: i32) -> Result<MutexGuard<'_, Primary>, CudaError> {
        let slot = usize::try_from(device).ok().and_then(|device| self.primaries.get(device));
        Ok(slot.ok_or(CudaError::INVALID_DEVICE)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a context that now exists.
    pub fn add(&self, context: u64, device: u32) {
        self.devices.write().unwrap_or_else(PoisonError::into_inner).insert(context, (device, true));
    }

    /// One more who holds a context.
    pub fn attach(&self, context: u64) -> Result<(), CudaError> {
        if self.is_destroyed(context) {
            return Err(CudaError::CONTEXT_IS_DESTROYED);
        }
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner).entry(context).or_default() += 1;
        Ok(())
    }

    /// One less of those who hold a context; `false` if nobody was added.
    pub fn detach(&self, context: u64) -> bool {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = attached.get_mut(&context) else { return false };
        *count -= 1;
        if *count == 0 {
            attached.remove(&context);
        }
        true
    }

    /// Notes that a context has been destroyed. Threads that have it current keep it, and get errors.
    pub fn destroyed(&self, context: u64) {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, exists)) = devices.get_mut(&context) {
            *exists = false;
            self.any_destroyed.store(true, Ordering::Release);
        }
        drop(devices);
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
        let _ = self.broken.0.compare_exchange(context, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes an error after which nothing works in a context.
    pub fn set_broken(&self, context: u64, error: CudaError) {
        self.broken.1.store(error.code(), Ordering::Relaxed);
        self.broken.0.store(context, Ordering::Release);
    }

    /// The error after which nothing works in a context.
    pub fn broken(&self, context: u64) -> Option<CudaError> {
        if context == 0 || self.broken.0.load(Ordering::Acquire) != context {
            return None;
        }
        CudaError::check(self.broken.1.load(Ordering::Relaxed)).err()
    }

    /// The context, if there is just one.
    pub fn only_one(&self) -> Option<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        let mut existing = devices.iter().filter(|&(_, &(_, exists))| exists).map(|(&context, _)| context);
        existing.next().filter(|_| existing.next().is_none())
    }

    /// A context that exists.
    pub fn any(&self) -> Option<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|&(_, &(_, exists))| exists).map(|(&context, _)| context)
    }

    /// All contexts that exist.
    pub fn existing(&self) -> Vec<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().filter(|&(_, &(_, exists))| exists).map(|(&context, _)| context).collect()
    }

    /// Returns whether there was such a context, and is no more.
    pub fn is_destroyed(&self, context: u64) -> bool {
        if !self.any_destroyed.load(Ordering::Acquire) {
            return false;
        }
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.get(&context).is_some_and(|&(_, exists)| !exists)
    }

    /// Returns whether at most one context exists.
    pub fn is_only_one(&self) -> bool {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.values().filter(|&&(_, exists)| exists).count() <= 1
    }

    /// The device of a context; `CUDA_ERROR_INVALID_CONTEXT` if there is no such context.
    pub fn device_of(&self, context: u64) -> Result<u32, CudaError> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.get(&context).map(|&(device, _)| device).ok_or(CudaError::INVALID_CONTEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_is_that_of_the_driver() {
        assert_eq!(pop(), 0);
        set_current(1);
        push(2);
        push(3);
        assert_eq!(current(), 3);
        set_current(4);
        assert_eq!(pop(), 4);
        set_current(0);
        assert_eq!(current(), 1, "setting no context pops");
        assert_eq!((pop(), pop(), current()), (1, 0, 0));
    }

    #[test]
    fn destroyed_context_is_remembered() {
        let contexts = Contexts::new(1);
        contexts.add(7, 0);
        assert!(!contexts.is_destroyed(7));
        contexts.destroyed(7);
        assert!(contexts.is_destroyed(7) && !contexts.is_destroyed(8));
        contexts.add(7, 0);
        assert!(!contexts.is_destroyed(7), "a primary context comes back under its name");
    }

    #[test]
    fn holders_are_counted() {
        let contexts = Contexts::new(1);
        contexts.add(7, 0);
        contexts.attach(7).expect("it is there");
        contexts.attach(7).expect("it is there");
        assert!(contexts.detach(7) && contexts.detach(7) && !contexts.detach(7));
        contexts.attach(7).expect("it is there");
        contexts.destroyed(7);
        assert!(contexts.attach(7).is_err() && !contexts.detach(7));
    }
}
