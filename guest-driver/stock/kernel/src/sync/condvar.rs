// SPDX-License-Identifier: GPL-2.0-only

//! Waits for changes that other tasks make under a lock.

use super::{
    lock::{Backend, Guard},
    LockClassKey,
};
use crate::{
    bindings,
    ffi::{c_long, CStr},
    glue,
    str::CStrExt as _,
    task::MAX_SCHEDULE_TIMEOUT,
    time::Jiffies,
    types::Opaque,
};
use core::{marker::PhantomPinned, pin::Pin};
use pinned_init::{pin_data, pin_init, PinInit};

/// A condition variable: a set of waiting tasks.
#[pin_data]
pub struct CondVar {
    #[pin]
    pub(crate) head: Opaque<bindings::wait_queue_head>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The wait queue has its own lock.
unsafe impl Send for CondVar {}
// SAFETY: All access to the wait queue takes its lock.
unsafe impl Sync for CondVar {}

/// The reason why a wait with a limit ended.
pub enum CondVarTimeoutResult {
    /// The time has expired.
    Timeout,
    /// There was a notification, or a spurious wake-up.
    Woken {
        /// The remaining time.
        jiffies: Jiffies,
    },
    /// There was a signal.
    Signal {
        /// The remaining time.
        jiffies: Jiffies,
    },
}

impl CondVar {
    /// Use [`new_condvar!`](crate::new_condvar).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            _pin: PhantomPinned,
            // SAFETY: `slot` is valid; `name` and `key` are static.
            head <- Opaque::ffi_init(|slot| unsafe {
                glue::stock_wait_init(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// Waits without the lock. Returns the remaining jiffies.
    fn sleep<T, B: Backend>(&self, guard: &mut Guard<'_, T, B>, limit: c_long) -> c_long {
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` has room for an entry, which leaves the queue before this function returns.
        unsafe { glue::stock_wait_prepare(self.head.get(), entry.get()) };
        // SAFETY: No lock is held in there.
        let left = guard.do_unlocked(|| unsafe { glue::stock_schedule_timeout(limit) });
        // SAFETY: `entry` was put into this queue above and is taken out here, before it goes out
        // of scope.
        unsafe { glue::stock_wait_finish(self.head.get(), entry.get()) };
        left
    }

    /// Unlocks, waits for a notification or a signal, and locks again. Returns whether a signal is pending.
    #[must_use = "a signal ends the wait"]
    pub fn wait_interruptible<T, B: Backend>(&self, guard: &mut Guard<'_, T, B>) -> bool {
        self.sleep(guard, MAX_SCHEDULE_TIMEOUT);
        // SAFETY: Reads flags of the current task.
        unsafe { glue::stock_signal_pending() }
    }

    /// Like [`Self::wait_interruptible`], with a limit.
    #[must_use = "a signal ends the wait"]
    pub fn wait_interruptible_timeout<T, B: Backend>(
        &self,
        guard: &mut Guard<'_, T, B>,
        jiffies: Jiffies,
    ) -> CondVarTimeoutResult {
        let limit = jiffies.try_into().unwrap_or(MAX_SCHEDULE_TIMEOUT);
        let left = self.sleep(guard, limit);
        let jiffies = Jiffies::try_from(left).unwrap_or(0);
        // SAFETY: Reads flags of the current task.
        match (left, unsafe { glue::stock_signal_pending() }) {
            (_, true) => CondVarTimeoutResult::Signal { jiffies },
            (0, false) => CondVarTimeoutResult::Timeout,
            (_, false) => CondVarTimeoutResult::Woken { jiffies },
        }
    }

    /// Wakes all waiting tasks. For any context.
    pub fn notify_all(&self) {
        // SAFETY: Initialised by `new`.
        unsafe { glue::stock_wake_all(self.head.get()) }
    }
}

/// Initialises a [`CondVar`] with a separate lock class.
#[macro_export]
macro_rules! new_condvar {
    ($name:literal) => {
        $crate::sync::CondVar::new($crate::c_str!($name), $crate::static_lock_class!())
    };
}
