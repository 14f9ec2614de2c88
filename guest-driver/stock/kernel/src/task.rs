// SPDX-License-Identifier: GPL-2.0-only

//! Tasks.

use crate::{
    bindings,
    ffi::{c_int, c_long},
    glue,
    mm::Mm,
    sync::aref::AlwaysRefCounted,
    types::Opaque,
};
use core::{marker::PhantomData, ops::Deref, ptr::NonNull};

/// A timeout without a limit.
pub const MAX_SCHEDULE_TIMEOUT: c_long = c_long::MAX;

/// A task.
#[repr(transparent)]
pub struct Task(Opaque<bindings::task_struct>);

// SAFETY: The functions used here may be called by any task.
unsafe impl Send for Task {}
// SAFETY: The functions used here may be called by several tasks at once.
unsafe impl Sync for Task {}

impl Task {
    /// Returns a pointer for C.
    pub fn as_ptr(&self) -> *mut bindings::task_struct {
        self.0.get()
    }

    /// Returns the first task of its process.
    pub fn group_leader(&self) -> &Task {
        // SAFETY: `self` is valid, and its leader is as long.
        unsafe { &*glue::stock_task_leader(self.as_ptr()).cast() }
    }

    /// Returns the task's number.
    pub fn pid(&self) -> c_int {
        // SAFETY: `self` is valid.
        unsafe { glue::stock_task_pid(self.as_ptr()) }
    }
}

// SAFETY: `get_task_struct` and `put_task_struct` count references.
unsafe impl AlwaysRefCounted for Task {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid.
        unsafe { glue::stock_task_get(self.as_ptr()) }
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: `AlwaysRefCounted::dec_ref` demands a reference that is not used any more.
        unsafe { glue::stock_task_put(this.as_ptr().cast()) }
    }
}

/// The running task. It cannot be sent to another task.
pub struct CurrentTask(NonNull<Task>, PhantomData<*mut ()>);

impl CurrentTask {
    /// Use [`current!`](crate::current).
    #[doc(hidden)]
    pub fn get() -> Self {
        // SAFETY: There is always a current task.
        let task = unsafe { NonNull::new_unchecked(glue::stock_current()) };
        Self(task.cast(), PhantomData)
    }

    /// Returns the address space. None: a kernel thread.
    pub fn mm(&self) -> Option<&Mm> {
        // SAFETY: Reads a pointer of the current task, which holds a reference to its target.
        let mm = unsafe { glue::stock_current_mm() };
        // SAFETY: Not null, so an address space, which the current task keeps.
        (!mm.is_null()).then(|| unsafe { Mm::from_raw(mm) })
    }
}

impl Deref for CurrentTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        // SAFETY: The current task lives as long as it runs this code.
        unsafe { self.0.as_ref() }
    }
}

/// Returns the running task.
#[macro_export]
macro_rules! current {
    () => {
        $crate::task::CurrentTask::get()
    };
}
