// SPDX-License-Identifier: GPL-2.0-only

//! Atomic values.

use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Relaxed ordering: no order among accesses to different values.
pub struct Relaxed;

/// Types that can be atomic.
pub trait AtomicType: Copy {
    #[doc(hidden)]
    type Core;
    #[doc(hidden)]
    fn load(core: &Self::Core) -> Self;
    #[doc(hidden)]
    fn store(core: &Self::Core, value: Self);
}

/// Implements types of `Atomic` by types of `core`.
macro_rules! atomic_types {
    ($($name:ident: $core:ident,)*) => {$(
        impl AtomicType for $name {
            type Core = $core;

            fn load(core: &$core) -> Self {
                core.load(Ordering::Relaxed)
            }

            fn store(core: &$core, value: Self) {
                core.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

atomic_types! { bool: AtomicBool, u32: AtomicU32, u64: AtomicU64, }

/// An atomic value.
#[repr(transparent)]
pub struct Atomic<T>(UnsafeCell<T>);

// SAFETY: Each use is atomic.
unsafe impl<T: Send> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    /// Returns an atomic with this value.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}

impl<T: AtomicType> Atomic<T> {
    fn core(&self) -> &T::Core {
        // SAFETY: `core`'s atomics have size and layout of their types, and on x86-64 their alignment.
        unsafe { &*self.0.get().cast() }
    }

    /// Reads.
    pub fn load(&self, _order: Relaxed) -> T {
        T::load(self.core())
    }

    /// Writes.
    pub fn store(&self, value: T, _order: Relaxed) {
        T::store(self.core(), value);
    }
}
