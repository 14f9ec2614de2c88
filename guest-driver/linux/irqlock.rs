// SPDX-License-Identifier: GPL-2.0-only

//! A spinlock with interrupts disabled, for data that virtqueue callbacks use, too. The kernel crate of Linux 7.2 has
//! only `SpinLock`, which must not be taken in an interrupt.

use crate::linux::bindings as glue;
use core::mem::MaybeUninit;
use kernel::{
    bindings,
    prelude::*,
    sync::lock::{
        Backend,
        Lock, //
    },
};

/// The lock's [`Backend`].
pub(crate) struct IrqSave;

/// A value protected by a spinlock with interrupts disabled.
pub(crate) type IrqLock<T> = Lock<T, IrqSave>;

/// Creates an [`IrqLock`] initialiser with a separate lock class.
macro_rules! new_irq_lock {
    ($value:expr, $name:literal) => {
        $crate::linux::irqlock::IrqLock::new(
            $value,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_irq_lock;

// SAFETY: `spin_lock_irqsave` gives exclusion, `relock` is the default that takes the lock the same way.
unsafe impl Backend for IrqSave {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: `ptr` is valid for writes, `name` and `key` for ever, by the caller.
        unsafe { glue::virtio_cuda_spin_lock_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `init` has run, by the caller.
        unsafe { glue::virtio_cuda_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = MaybeUninit::uninit();
        // SAFETY: `init` has run, by the caller; `flags` is valid for writes.
        let locked = unsafe { glue::virtio_cuda_spin_trylock_irqsave(ptr, flags.as_mut_ptr()) };
        // SAFETY: A successful try has written the flags.
        locked.then(|| unsafe { flags.assume_init() })
    }

    unsafe fn unlock(ptr: *mut Self::State, flags: &Self::GuardState) {
        // SAFETY: The caller owns the lock; `flags` are those of its taking.
        unsafe { glue::virtio_cuda_spin_unlock_irqrestore(ptr, *flags) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `init` has run, by the caller.
        unsafe { glue::virtio_cuda_spin_assert_is_held(ptr) }
    }
}
