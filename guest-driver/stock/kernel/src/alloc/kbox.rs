// SPDX-License-Identifier: GPL-2.0-only

//! A value in separately allocated memory.

use super::{check_align, AllocError, Allocator, Flags, Kmalloc};
use crate::{ffi::c_void, types::ForeignOwnable};
use core::{
    marker::PhantomData,
    mem::{size_of, ManuallyDrop, MaybeUninit},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
};

/// A value in separately allocated memory.
///
/// # Invariants
///
/// Points to a valid value that only this box owns. It is in memory of [`Kmalloc`] unless the type has no bytes.
pub struct KBox<T>(NonNull<T>, PhantomData<T>);

// SAFETY: It owns the value.
unsafe impl<T: Send> Send for KBox<T> {}
// SAFETY: It owns the value.
unsafe impl<T: Sync> Sync for KBox<T> {}

// The value does not move with the box.
impl<T> Unpin for KBox<T> {}

impl<T> KBox<T> {
    /// Allocates memory for a value without initialising it.
    pub fn new_uninit(flags: Flags) -> Result<KBox<MaybeUninit<T>>, AllocError> {
        const { check_align::<T>() };
        let memory = match size_of::<T>() {
            0 => NonNull::<T>::dangling(),
            bytes => NonNull::new(Kmalloc::alloc(bytes, flags).cast()).ok_or(AllocError)?,
        };
        // INVARIANT: Anything is a valid `MaybeUninit`.
        Ok(KBox(memory.cast(), PhantomData))
    }

    /// Moves `value` into newly allocated memory.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        Ok(Self::write(Self::new_uninit(flags)?, value))
    }

    /// Initialises the memory of a box.
    pub fn write(place: KBox<MaybeUninit<T>>, value: T) -> Self {
        let place = KBox::into_raw(place);
        // SAFETY: By the invariant of `place`.
        unsafe { (*place).write(value) };
        // SAFETY: From `into_raw`; the value is valid now.
        unsafe { Self::from_raw(place.cast()) }
    }

    /// Gives up ownership. Returns a pointer to the value.
    pub fn into_raw(this: Self) -> *mut T {
        ManuallyDrop::new(this).0.as_ptr()
    }

    /// Takes ownership.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`Self::into_raw`], once.
    pub unsafe fn from_raw(raw: *mut T) -> Self {
        // INVARIANT: By the caller. SAFETY: `into_raw` never gives null.
        Self(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }

    /// Returns the value and frees the memory.
    pub fn into_inner(this: Self) -> T {
        let raw = Self::into_raw(this);
        // SAFETY: Valid by the invariant, and not used after this.
        let value = unsafe { ptr::read(raw) };
        // SAFETY: From `into_raw`; as `MaybeUninit`, dropping it frees the memory only.
        drop(unsafe { KBox::<MaybeUninit<T>>::from_raw(raw.cast()) });
        value
    }
}

impl<T> Drop for KBox<T> {
    fn drop(&mut self) {
        // SAFETY: A box points to a valid value that it alone owns (invariant).
        unsafe { ptr::drop_in_place(self.0.as_ptr()) };
        if size_of::<T>() != 0 {
            // SAFETY: A type with bytes lies in memory of `Kmalloc` (invariant), and the box is no longer used.
            unsafe { Kmalloc::free(self.0.as_ptr().cast()) };
        }
    }
}

impl<T> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: A box points to a valid value that it alone owns (invariant).
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: A box points to a valid value that it alone owns (invariant).
        unsafe { self.0.as_mut() }
    }
}

// SAFETY: `into_raw` gives what `from_raw` takes.
unsafe impl<T: 'static> ForeignOwnable for KBox<T> {
    type Borrowed<'a> = &'a T;

    fn into_foreign(self) -> *mut c_void {
        Self::into_raw(self).cast()
    }

    unsafe fn from_foreign(ptr: *mut c_void) -> Self {
        // SAFETY: `ForeignOwnable::from_foreign` takes only what `into_foreign` gave, once.
        unsafe { Self::from_raw(ptr.cast()) }
    }

    unsafe fn borrow<'a>(ptr: *mut c_void) -> &'a T {
        // SAFETY: `ForeignOwnable::borrow` takes what `into_foreign` gave, which is not taken back during `'a`.
        unsafe { &*ptr.cast() }
    }
}
