// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The table of contexts, and each thread's stack of them. Both are local: the current context is sent with every call.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use virtio_cuda_client::{CudaError, broken};

use crate::handles::{Kind, new_handle, refusal};

thread_local! {
    // Neither has a destructor, so that they outlive the thread's other variables, whose destructors may still make
    // calls. Few threads ever have contexts below the top.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    static BELOW: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Returns the calling thread's current context; 0 if there is none.
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

/// Pushes a context onto the calling thread's stack.
pub fn push(context: u64) {
    let top = CURRENT.replace(context);
    if top != 0 {
        BELOW.with(|below| below.borrow_mut().push(top));
    }
}

/// Pops the top of the calling thread's stack; returns 0 if it is empty.
pub fn pop() -> u64 {
    let next = BELOW.with(|below| below.borrow_mut().pop()).unwrap_or(0);
    CURRENT.replace(next)
}

/// A device's primary context.
#[derive(Clone, Copy, Debug)]
pub struct Primary {
    /// Handle of the context, which never changes.
    pub context: u64,
    /// Number of times that the program has retained it.
    pub retains: u32,
    /// True while it exists: retained, and not reset since it was first retained.
    pub active: bool,
    /// Flags for the next activation.
    pub flags: u32,
}

/// All contexts of the process.
#[derive(Debug)]
pub struct Contexts {
    primaries: Vec<Mutex<Primary>>,
    /// The device of every context, and whether the context still exists.
    devices: RwLock<FxHashMap<u64, (u32, bool)>>,
    /// True once any context was destroyed.
    any_destroyed: AtomicBool,
    /// Usage counts that `cuCtxAttach` added to a context.
    attached: Mutex<HashMap<u64, u32>>,
}

impl Contexts {
    /// Returns a table for `count` devices without contexts.
    pub fn new(count: u32) -> Self {
        let primary = |_| {
            Mutex::new(Primary { context: new_handle(Kind::Context), retains: 0, active: false, flags: 0 })
        };
        Self {
            primaries: (0..count).map(primary).collect(),
            devices: RwLock::default(),
            any_destroyed: AtomicBool::new(false),
            attached: Mutex::default(),
        }
    }

    /// Locks the primary context of a device: retain and release happen one at a time.
    pub fn primary(&self, device: i32) -> Result<MutexGuard<'_, Primary>, CudaError> {
        let slot = usize::try_from(device).ok().and_then(|device| self.primaries.get(device));
        Ok(slot.ok_or(CudaError::INVALID_DEVICE)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a new context.
    pub fn add(&self, context: u64, device: u32) {
        self.devices.write().unwrap_or_else(PoisonError::into_inner).insert(context, (device, true));
    }

    /// Increments the usage count of a context.
    pub fn attach(&self, context: u64) -> Result<(), CudaError> {
        if self.is_destroyed(context) {
            return Err(CudaError::CONTEXT_IS_DESTROYED);
        }
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner).entry(context).or_default() += 1;
        Ok(())
    }

    /// Decrements the usage count of a context. Returns false if cuCtxAttach did not increment it.
    pub fn detach(&self, context: u64) -> bool {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = attached.get_mut(&context) else { return false };
        *count -= 1;
        if *count == 0 {
            attached.remove(&context);
        }
        true
    }

    /// Records that a context has been destroyed. Threads in which it is current keep it, and get errors.
    pub fn destroyed(&self, context: u64) {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, exists)) = devices.get_mut(&context) {
            *exists = false;
            self.any_destroyed.store(true, Ordering::Release);
        }
        drop(devices);
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
        broken::context_ended(context);
    }

    /// Returns whether a call in `context` may fail because an error has broken a context: NVIDIA's driver then returns the
    /// error in all contexts of that device. Without a context, any broken one counts.
    pub fn may_fail(&self, context: u64) -> bool {
        let device = |context| self.device_of(context).ok();
        broken::any()
            && broken::contexts().into_iter().any(|broken| context == 0 || device(broken) == device(context))
    }

    /// Returns the context, if there is exactly one.
    pub fn only_one(&self) -> Option<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        let mut existing = devices.iter().filter(|&(_, &(_, exists))| exists).map(|(&context, _)| context);
        existing.next().filter(|_| existing.next().is_none())
    }

    /// Returns any existing context.
    pub fn any(&self) -> Option<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|&(_, &(_, exists))| exists).map(|(&context, _)| context)
    }

    /// Returns all existing contexts.
    pub fn existing(&self) -> Vec<u64> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().filter(|&(_, &(_, exists))| exists).map(|(&context, _)| context).collect()
    }

    /// Returns whether the context existed and was destroyed.
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

    /// Returns the device of a context. Errors: those for handles of other objects.
    pub fn device_of(&self, context: u64) -> Result<u32, CudaError> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.get(&context).map(|&(device, _)| device).ok_or_else(|| refusal(Kind::Context, context))
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
