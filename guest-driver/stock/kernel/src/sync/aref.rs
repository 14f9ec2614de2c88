// SPDX-License-Identifier: GPL-2.0-only

//! References to objects whose reference count C code manages.

use core::{marker::PhantomData, ops::Deref, ptr::NonNull};

/// A type whose reference count C code manages.
///
/// # Safety
///
/// The value is valid while it has a reference.
pub unsafe trait AlwaysRefCounted {
    /// Adds a reference.
    fn inc_ref(&self);

    /// Releases a reference.
    ///
    /// # Safety
    ///
    /// The caller owns a reference, and does not use it afterwards.
    unsafe fn dec_ref(this: NonNull<Self>);
}

/// An owned reference.
pub struct ARef<T: AlwaysRefCounted>(NonNull<T>, PhantomData<T>);

// SAFETY: Shared, and given back by anybody.
unsafe impl<T: AlwaysRefCounted + Send + Sync> Send for ARef<T> {}
// SAFETY: Shared references only count, which is atomic, and lend a `T`, which is `Sync`.
unsafe impl<T: AlwaysRefCounted + Send + Sync> Sync for ARef<T> {}

impl<T: AlwaysRefCounted> From<&T> for ARef<T> {
    fn from(value: &T) -> Self {
        value.inc_ref();
        Self(NonNull::from(value), PhantomData)
    }
}

impl<T: AlwaysRefCounted> Deref for ARef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: There is a reference.
        unsafe { self.0.as_ref() }
    }
}

impl<T: AlwaysRefCounted> Drop for ARef<T> {
    fn drop(&mut self) {
        // SAFETY: The reference that `from` took.
        unsafe { T::dec_ref(self.0) }
    }
}
