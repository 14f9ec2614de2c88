// SPDX-License-Identifier: GPL-2.0-only

//! References to what C counts.

use core::{marker::PhantomData, ops::Deref, ptr::NonNull};

/// A type whose references C counts.
///
/// # Safety
///
/// The value is valid while there is a reference.
pub unsafe trait AlwaysRefCounted {
    /// One more.
    fn inc_ref(&self);

    /// One fewer.
    ///
    /// # Safety
    ///
    /// The caller has one, and does not use it any more.
    unsafe fn dec_ref(this: NonNull<Self>);
}

/// A reference.
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
