// SPDX-License-Identifier: GPL-2.0-only

//! Locks.

use super::LockClassKey;
use crate::{
    bindings,
    ffi::{c_char, CStr},
    glue,
    str::CStrExt as _,
    types::Opaque,
};
use core::{
    cell::UnsafeCell,
    marker::{PhantomData, PhantomPinned},
    ops::{Deref, DerefMut},
    pin::Pin,
};
use pinned_init::{pin_data, pin_init, PinInit};

/// A kind of lock.
///
/// # Safety
///
/// No other task is between `lock` and `unlock` at the same time.
pub unsafe trait Backend {
    /// The lock itself.
    type State;
    /// State that unlocking needs.
    type GuardState;

    /// Initialises a lock.
    ///
    /// # Safety
    ///
    /// `ptr` is valid for writes; `name` and `key` are valid for ever.
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key);

    /// Locks.
    ///
    /// # Safety
    ///
    /// [`Self::init`] has run.
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState;

    /// Locks if that is possible without waiting.
    ///
    /// # Safety
    ///
    /// [`Self::init`] has run.
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState>;

    /// Unlocks.
    ///
    /// # Safety
    ///
    /// The caller has locked it.
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState);

    /// With lockdep, warns if it is not locked.
    ///
    /// # Safety
    ///
    /// [`Self::init`] has run.
    unsafe fn assert_is_held(ptr: *mut Self::State);
}

/// A value protected by a lock.
#[pin_data]
pub struct Lock<T, B: Backend> {
    #[pin]
    state: Opaque<B::State>,
    #[pin]
    _pin: PhantomPinned,
    data: UnsafeCell<T>,
}

// SAFETY: It owns the value; a lock of C's may be used by any task.
unsafe impl<T: Send, B: Backend> Send for Lock<T, B> {}
// SAFETY: One at a time has the value.
unsafe impl<T: Send, B: Backend> Sync for Lock<T, B> {}

impl<T, B: Backend> Lock<T, B> {
    /// Returns a lock that protects `value`.
    pub fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            data: UnsafeCell::new(value),
            _pin: PhantomPinned,
            // SAFETY: `slot` is valid; `name` and `key` are static.
            state <- Opaque::ffi_init(|slot| unsafe {
                B::init(slot, name.as_char_ptr(), key.as_ptr())
            }),
        })
    }

    /// Locks.
    pub fn lock(&self) -> Guard<'_, T, B> {
        // SAFETY: `new` has initialised it.
        let state = unsafe { B::lock(self.state.get()) };
        Guard {
            lock: self,
            state,
            _not_send: PhantomData,
        }
    }
}

/// Exclusive access to the value. It must not be sent to another task, which has not locked it.
#[must_use = "the lock is unlocked at once"]
pub struct Guard<'a, T, B: Backend> {
    lock: &'a Lock<T, B>,
    state: B::GuardState,
    _not_send: PhantomData<*mut ()>,
}

impl<T, B: Backend> Guard<'_, T, B> {
    /// Runs `work` without the lock.
    pub(crate) fn do_unlocked<R>(&mut self, work: impl FnOnce() -> R) -> R {
        // SAFETY: A guard has locked.
        unsafe { B::unlock(self.lock.state.get(), &self.state) };
        let result = work();
        // SAFETY: `new` has initialised it.
        self.state = unsafe { B::lock(self.lock.state.get()) };
        result
    }
}

impl<T, B: Backend> Deref for Guard<'_, T, B> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: A guard has the value alone.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: Unpin, B: Backend> DerefMut for Guard<'_, T, B> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: A guard has the value alone.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, B: Backend> Drop for Guard<'_, T, B> {
    fn drop(&mut self) {
        // SAFETY: A guard has locked.
        unsafe { B::unlock(self.lock.state.get(), &self.state) }
    }
}

/// The kernel's mutex.
pub struct MutexBackend;

/// A value protected by a mutex.
pub type Mutex<T> = Lock<T, MutexBackend>;

// SAFETY: A mutex excludes others.
unsafe impl Backend for MutexBackend {
    type State = bindings::mutex;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: `Backend::init` demands a `ptr` valid for writes, and a name and a key that stay for ever.
        unsafe { glue::stock_mutex_init(ptr, name, key) }
    }

    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: `Backend` demands that `init` has run.
        unsafe { glue::stock_mutex_lock(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: `Backend` demands that `init` has run.
        unsafe { glue::stock_mutex_trylock(ptr) }.then_some(())
    }

    unsafe fn unlock(ptr: *mut Self::State, _: &()) {
        // SAFETY: `Backend::unlock` demands that the caller has locked.
        unsafe { glue::stock_mutex_unlock(ptr) }
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `Backend` demands that `init` has run.
        unsafe { glue::stock_mutex_assert_is_held(ptr) }
    }
}

/// Initialises a [`Mutex`] with a separate lock class.
#[macro_export]
macro_rules! new_mutex {
    ($value:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::Mutex::new(
            $value,
            $crate::c_str!(concat!($($name,)? ":", file!(), ":", line!())),
            $crate::static_lock_class!(),
        )
    };
}
