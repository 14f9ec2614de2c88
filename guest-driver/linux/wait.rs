// SPDX-License-Identifier: GPL-2.0-only

//! Waits for a change that an interrupt makes. `CondVar` of the kernel crate cannot wait killably, and its waiters are
//! exclusive.

use crate::linux::{
    bindings as glue,
    irqlock::IrqLock, //
};
use core::marker::PhantomPinned;
use kernel::{
    bindings,
    prelude::*,
    sync::LockClassKey,
    task::MAX_SCHEDULE_TIMEOUT,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
};

/// The signals that may end a wait early.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Any signal.
    Interruptible,
    /// A fatal signal. A worker thread gets none.
    Killable,
}

impl Mode {
    fn is_killable(self) -> bool {
        matches!(self, Self::Killable)
    }

    fn signalled(self) -> bool {
        // SAFETY: Reads flags of the current task.
        unsafe { glue::virtio_cuda_signalled(self.is_killable()) }
    }
}

/// The reason why a wait ended early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A signal that the [`Mode`] admits.
    Signal,
    /// The time has expired.
    Timeout,
}

impl From<Cut> for Error {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Signal => EINTR,
            Cut::Timeout => ETIMEDOUT,
        }
    }
}

/// A time budget that several waits share.
pub(crate) struct Patience(Option<c_long>);

impl Patience {
    /// Returns a budget without a limit.
    pub(crate) fn endless() -> Self {
        Self(None)
    }

    /// Returns a budget of `ms` milliseconds in total.
    pub(crate) fn millis(ms: Msecs) -> Self {
        Self(Some(
            msecs_to_jiffies(ms)
                .try_into()
                .unwrap_or(MAX_SCHEDULE_TIMEOUT),
        ))
    }
}

/// A `wait_queue_head`.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The wait queue has its own lock.
unsafe impl Send for WaitQueue {}
// SAFETY: All access to the head takes the lock of the wait queue.
unsafe impl Sync for WaitQueue {}

/// Creates a [`WaitQueue`] initialiser with a separate lock class.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::linux::wait::WaitQueue::new(::kernel::c_str!($name), ::kernel::static_lock_class!())
    };
}
pub(crate) use new_wait_queue;

impl WaitQueue {
    /// Use [`new_wait_queue!`].
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid while the closure runs, `name` and `key` are static.
            head <- Opaque::ffi_init(|slot| unsafe {
                glue::virtio_cuda_wait_init(slot, name.as_char_ptr(), key.as_ptr())
            }),
            _pin: PhantomPinned,
        })
    }

    /// Wakes all waiters, which then check their condition. For any context.
    pub(crate) fn notify_all(&self) {
        // SAFETY: The wait queue is initialised and lives as long as `self`.
        unsafe { glue::virtio_cuda_wait_wake_all(self.head.get()) }
    }

    /// Waits until `ready` returns a value. It is called with `lock` held and must not sleep. Code that changes its
    /// condition must do so under `lock` and then notify.
    pub(crate) fn wait<T: Unpin, R>(
        &self,
        lock: &IrqLock<T>,
        mode: Mode,
        patience: &mut Patience,
        mut ready: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<R, Cut> {
        if let Some(answer) = ready(&mut lock.lock()) {
            return Ok(answer);
        }
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is memory for a wait queue entry; it stays where it is until `finish_wait`.
        unsafe { glue::virtio_cuda_wait_entry_init(entry.get()) };
        let result = loop {
            // SAFETY: Both are initialised; the entry leaves the queue before this function returns.
            unsafe {
                glue::virtio_cuda_wait_prepare(self.head.get(), entry.get(), mode.is_killable());
            }
            // The task state is set, so a notification from here on makes `schedule_timeout` return.
            let answer = ready(&mut lock.lock());
            if let Some(answer) = answer {
                break Ok(answer);
            }
            if mode.signalled() {
                break Err(Cut::Signal);
            }
            match patience.0 {
                Some(0) => break Err(Cut::Timeout),
                Some(left) => {
                    // SAFETY: No lock is held; sleeping is allowed in the context of a waiter.
                    let left = unsafe { glue::virtio_cuda_schedule_timeout(left) };
                    patience.0 = Some(left);
                }
                // SAFETY: No lock is held; a waiter's task may sleep without a limit, because a
                // wake-up ends the sleep.
                None => unsafe {
                    glue::virtio_cuda_schedule_timeout(MAX_SCHEDULE_TIMEOUT);
                },
            }
        };
        // SAFETY: Both are initialised; this takes the entry out of the queue.
        unsafe { glue::virtio_cuda_wait_finish(self.head.get(), entry.get()) };
        result
    }
}
