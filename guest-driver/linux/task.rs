// SPDX-License-Identifier: GPL-2.0-only

//! Properties of the current task that the kernel crate does not provide.

use crate::linux::bindings as glue;
use kernel::{
    prelude::*,
    sync::aref::ARef,
    task::Task, //
};

/// The running process: a reference to its thread group leader, so that its identity is never reused.
pub(crate) struct Process(ARef<Task>);

impl Process {
    /// Returns the current process.
    pub(crate) fn current() -> Self {
        Self(current!().group_leader().into())
    }

    /// Returns whether the current task belongs to this process.
    pub(crate) fn is_current(&self) -> bool {
        core::ptr::eq(self.0.as_ptr(), current!().group_leader().as_ptr())
    }
}

/// Returns the current task's name, NUL-padded.
pub(crate) fn current_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: `name` has the 16 bytes of `TASK_COMM_LEN`.
    unsafe { glue::virtio_cuda_current_name(name.as_mut_ptr()) };
    name
}

/// Returns whether the current task is exiting.
pub(crate) fn current_is_exiting() -> bool {
    // SAFETY: Reads flags of the current task.
    unsafe { glue::virtio_cuda_current_exiting() }
}

/// Returns the current task's real user id in the initial user namespace.
pub(crate) fn current_uid() -> u32 {
    // SAFETY: Reads the current task's credentials.
    unsafe { glue::virtio_cuda_current_uid() }
}

/// Returns the user id to which the current task's use is charged, in the initial user namespace: the owner of its user
/// namespace, or its own.
pub(crate) fn charged_uid() -> u32 {
    // SAFETY: Reads the current task's credentials and their user namespaces, which the credentials keep.
    unsafe { glue::virtio_cuda_charged_uid() }
}

/// Returns `RLIMIT_MEMLOCK` of the current process, in bytes.
pub(crate) fn memlock_bytes() -> u64 {
    // SAFETY: Reads a limit of the current process.
    unsafe { glue::virtio_cuda_memlock_bytes() }
}

/// Returns whether the current task may lock memory beyond limits: `CAP_IPC_LOCK` in the initial user namespace.
pub(crate) fn may_lock_memory() -> bool {
    // SAFETY: Reads the current task's credentials.
    unsafe { glue::virtio_cuda_may_lock_memory() }
}
