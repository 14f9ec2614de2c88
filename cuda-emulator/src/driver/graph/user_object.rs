// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User objects: objects of the program that graphs keep alive.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::handle::{Handle, Registry};

/// A user object's handle.
pub type CUuserObject = Handle<UserObject>;

pub(super) static OBJECTS: Registry<UserObject> = Registry::new();

impl crate::driver::handle::Object for UserObject {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::User);
}

/// An object with a count of references; at 0 it is destroyed.
pub struct UserObject {
    pub(super) handle: CUuserObject,
    pub(super) argument: usize,
    pub(super) destroy: unsafe extern "C" fn(*mut c_void),
    pub(super) references: AtomicU64,
}

impl UserObject {
    pub(super) fn retain(&self, count: u64) {
        self.references.fetch_add(count, Ordering::AcqRel);
    }

    /// Releases references. Releasing more than exist is not an error, as on an H200.
    pub(super) fn release(&self, count: u64) {
        let less = |references: u64| Some(references.saturating_sub(count));
        let before = self.references.try_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0);
        if (1..=count).contains(&before) {
            OBJECTS.remove(self.handle);
            // SAFETY: the program passed a function that may be called with this argument when no reference is left.
            unsafe { (self.destroy)(self.argument as *mut c_void) };
        }
    }
}

/// A graph's references.
#[derive(Default)]
pub(super) struct References(Mutex<BTreeMap<usize, (Arc<UserObject>, u64)>>);

impl References {
    pub(super) fn add(&self, object: &Arc<UserObject>, count: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(object.handle.0).or_insert_with(|| (Arc::clone(object), 0)).1 += count;
    }

    /// Removes references. A reference that the graph does not have is ignored, as on an H200.
    pub(super) fn remove(&self, object: &UserObject, count: u64) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = held.get_mut(&object.handle.0) else { return };
        let count = count.min(entry.1);
        entry.1 -= count;
        if entry.1 == 0 {
            held.remove(&object.handle.0);
        }
        drop(held);
        object.release(count);
    }

    /// Adds one reference to each object that another graph refers to.
    pub(super) fn share(&self, other: &References) {
        let held = other.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (object, _) in held.values() {
            object.retain(1);
            self.add(object, 1);
        }
    }
}

impl Drop for References {
    fn drop(&mut self) {
        for (object, count) in
            std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)).into_values()
        {
            object.release(count);
        }
    }
}
