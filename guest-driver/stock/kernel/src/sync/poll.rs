// SPDX-License-Identifier: GPL-2.0-only

//! poll(2).

use super::{CondVar, LockClassKey};
use crate::{bindings, ffi::CStr, fs::File, glue};
use core::{marker::PhantomData, ops::Deref, pin::Pin};
use pinned_init::{pin_data, pin_init, pinned_drop, PinInit};

/// The table in which poll(2) records its wait queues.
pub struct PollTable<'a>(*mut bindings::poll_table_struct, PhantomData<&'a ()>);

impl PollTable<'_> {
    /// # Safety
    ///
    /// `table` is null, or valid while the value exists.
    pub unsafe fn from_raw(table: *mut bindings::poll_table_struct) -> Self {
        Self(table, PhantomData)
    }

    /// Makes notifications of `condvar` end the poll.
    pub fn register_wait(&self, file: &File, condvar: &PollCondVar) {
        // SAFETY: All are valid; the end of `condvar` waits for those who poll.
        unsafe { glue::stock_poll_wait(file.as_ptr(), condvar.head.get(), self.0) }
    }
}

/// A [`CondVar`] for poll(2).
#[pin_data(PinnedDrop)]
pub struct PollCondVar {
    #[pin]
    inner: CondVar,
}

impl PollCondVar {
    /// Use [`new_poll_condvar!`](crate::new_poll_condvar).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- CondVar::new(name, key),
        })
    }
}

impl Deref for PollCondVar {
    type Target = CondVar;

    fn deref(&self) -> &CondVar {
        &self.inner
    }
}

#[pinned_drop]
impl PinnedDrop for PollCondVar {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised by `new`. epoll may still refer to it: this takes it out, and waits for readers.
        unsafe { glue::stock_wake_pollfree(self.inner.head.get()) }
    }
}

/// Initialises a [`PollCondVar`] with a separate lock class.
#[macro_export]
macro_rules! new_poll_condvar {
    ($name:literal) => {
        $crate::sync::poll::PollCondVar::new($crate::c_str!($name), $crate::static_lock_class!())
    };
}
