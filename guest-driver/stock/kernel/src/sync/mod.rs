// SPDX-License-Identifier: GPL-2.0-only

//! Synchronisation of tasks.

mod arc;
pub mod aref;
pub mod atomic;
mod condvar;
mod global;
pub mod lock;
pub mod poll;

pub use crate::global_lock;
use crate::{bindings, types::Opaque};
pub use arc::{Arc, ArcBorrow};
pub use condvar::{CondVar, CondVarTimeoutResult};
use core::pin::Pin;
pub use global::GlobalMutex;
pub use lock::Mutex;

/// A lock class for lockdep; always a static.
#[repr(transparent)]
pub struct LockClassKey(Opaque<bindings::lock_class_key>);

// SAFETY: Only C code uses it, under its own locks.
unsafe impl Sync for LockClassKey {}

impl LockClassKey {
    /// Use [`static_lock_class!`](crate::static_lock_class).
    ///
    /// # Safety
    ///
    /// `raw` is a static.
    #[doc(hidden)]
    pub const unsafe fn from_static(raw: &'static StaticKey) -> Pin<&'static Self> {
        // SAFETY: `StaticKey` is transparent over the same; a static never moves.
        unsafe { Pin::new_unchecked(&*(&raw const *raw).cast()) }
    }

    /// Returns a pointer for C.
    pub fn as_ptr(&self) -> *mut bindings::lock_class_key {
        self.0.get()
    }
}

/// A zeroed key.
#[doc(hidden)]
#[repr(transparent)]
pub struct StaticKey(core::cell::UnsafeCell<bindings::lock_class_key>);

// SAFETY: Only lockdep reads and writes the key, under its own lock.
unsafe impl Sync for StaticKey {}

impl StaticKey {
    #[doc(hidden)]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(core::cell::UnsafeCell::new(bindings::lock_class_key::new()))
    }
}

/// Returns a separate lock class for each place in the source.
#[macro_export]
macro_rules! static_lock_class {
    () => {{
        static KEY: $crate::sync::StaticKey = $crate::sync::StaticKey::new();
        // SAFETY: A static.
        unsafe { $crate::sync::LockClassKey::from_static(&KEY) }
    }};
}
