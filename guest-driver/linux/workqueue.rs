// SPDX-License-Identifier: GPL-2.0-only

//! The module's workqueue. Work on a system queue could still run after the module's code was unloaded.

use crate::linux::bindings as glue;
use core::ptr::NonNull;
use kernel::{
    bindings,
    prelude::*,
    workqueue::Queue, //
};

/// An unbound workqueue; dropping it waits for its work.
///
/// # Invariants
///
/// Points to a workqueue that only [`Drop`] destroys.
pub(crate) struct WorkQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A workqueue may be used and destroyed by any task.
unsafe impl Send for WorkQueue {}
// SAFETY: Queueing work takes the workqueue's own lock.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Allocates a workqueue with the visible name `name`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a C string; the kernel copies it.
        let raw = unsafe { glue::virtio_cuda_alloc_workqueue(name.as_char_ptr()) };
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Returns the queue for work.
    pub(crate) fn queue(&self) -> &Queue {
        // SAFETY: Valid as long as `self`, by the invariant.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }

    /// Waits until all currently queued work is done.
    pub(crate) fn flush(&self) {
        // SAFETY: Valid by the invariant.
        unsafe { glue::virtio_cuda_flush_workqueue(self.0.as_ptr()) }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: Valid by the invariant, and no more work can be queued.
        unsafe { glue::virtio_cuda_destroy_workqueue(self.0.as_ptr()) }
    }
}
