// SPDX-License-Identifier: GPL-2.0-only

//! Locks in statics.

use super::{
    lock::{Backend, MutexBackend},
    LockClassKey,
};
use crate::{bindings, ffi::CStr, str::CStrExt as _, types::Opaque};
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    pin::Pin,
};

/// A static value protected by a mutex.
pub struct GlobalMutex<T> {
    state: Opaque<bindings::mutex>,
    data: UnsafeCell<T>,
}

// SAFETY: One at a time has the value.
unsafe impl<T: Send> Sync for GlobalMutex<T> {}

impl<T> GlobalMutex<T> {
    /// Use [`global_lock!`](crate::global_lock).
    ///
    /// # Safety
    ///
    /// `init_with` is called before anything else.
    #[doc(hidden)]
    pub const unsafe fn uninit(value: T) -> Self {
        Self {
            state: Opaque::uninit(),
            data: UnsafeCell::new(value),
        }
    }

    /// Initialises the lock. Use `global_lock!`.
    ///
    /// # Safety
    ///
    /// Called once, before anything else.
    #[doc(hidden)]
    pub unsafe fn init_with(&'static self, name: &'static CStr, key: Pin<&'static LockClassKey>) {
        // SAFETY: A static never moves; name and key are static. Nobody uses it yet, by the caller.
        unsafe { MutexBackend::init(self.state.get(), name.as_char_ptr(), key.as_ptr()) }
    }

    /// Locks.
    pub fn lock(&'static self) -> GlobalGuard<T> {
        // SAFETY: It is initialised, as the creator of the static has promised.
        unsafe { MutexBackend::lock(self.state.get()) };
        GlobalGuard(self, PhantomData)
    }
}

/// Exclusive access to the value. It must not be sent to another task, which has not locked the mutex.
#[must_use = "the lock is unlocked at once"]
pub struct GlobalGuard<T: 'static>(&'static GlobalMutex<T>, PhantomData<*mut ()>);

impl<T> Deref for GlobalGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: A guard has the value alone.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for GlobalGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: A guard has the value alone.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        // SAFETY: A guard has locked.
        unsafe { MutexBackend::unlock(self.0.state.get(), &()) }
    }
}

/// Declares a static value protected by a mutex. Its function `init` must be called once before anything else.
#[macro_export]
macro_rules! global_lock {
    ($(#[$attribute:meta])* unsafe(uninit) static $name:ident: Mutex<$type:ty> = $value:expr;) => {
        $(#[$attribute])*
        static $name: GlobalLock = GlobalLock(
            // SAFETY: Whoever declares it calls `init` first.
            unsafe { $crate::sync::GlobalMutex::uninit($value) },
        );

        struct GlobalLock($crate::sync::GlobalMutex<$type>);

        impl GlobalLock {
            /// # Safety
            ///
            /// Called once, before anything else.
            unsafe fn init(&'static self) {
                // SAFETY: `# Safety` promises that this is called once, before all else.
                unsafe {
                    self.0.init_with($crate::c_str!(stringify!($name)), $crate::static_lock_class!())
                }
            }
        }

        impl ::core::ops::Deref for GlobalLock {
            type Target = $crate::sync::GlobalMutex<$type>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}
