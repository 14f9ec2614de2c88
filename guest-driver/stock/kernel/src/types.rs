// SPDX-License-Identifier: GPL-2.0-only

//! Wrappers for values that C owns or accesses.

use crate::ffi::c_void;
use core::{
    cell::UnsafeCell,
    marker::PhantomPinned,
    mem::MaybeUninit, //
};
use pinned_init::PinInit;

/// A value that can be passed through C as a pointer.
///
/// # Safety
///
/// [`Self::into_foreign`] returns a pointer that is valid for [`Self::from_foreign`].
pub unsafe trait ForeignOwnable: Sized {
    /// The result of [`Self::borrow`].
    type Borrowed<'a>
    where
        Self: 'a;

    /// Passes the value to C.
    fn into_foreign(self) -> *mut c_void;

    /// Takes the value back from C.
    ///
    /// # Safety
    ///
    /// `ptr` comes from [`Self::into_foreign`], and is not used after this.
    unsafe fn from_foreign(ptr: *mut c_void) -> Self;

    /// Borrows the value.
    ///
    /// # Safety
    ///
    /// `ptr` comes from [`Self::into_foreign`] and is not taken back during `'a`.
    unsafe fn borrow<'a>(ptr: *mut c_void) -> Self::Borrowed<'a>;
}

/// Memory that C may change at any time.
#[repr(transparent)]
pub struct Opaque<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    _pin: PhantomPinned,
}

impl<T> Opaque<T> {
    /// Returns uninitialised memory.
    pub const fn uninit() -> Self {
        Self {
            value: UnsafeCell::new(MaybeUninit::uninit()),
            _pin: PhantomPinned,
        }
    }

    /// Returns a pointer for C.
    pub const fn get(&self) -> *mut T {
        UnsafeCell::get(&self.value).cast::<T>()
    }

    /// Like [`Self::get`], without creating a reference.
    pub const fn cast_into(this: *const Self) -> *mut T {
        UnsafeCell::raw_get(this.cast::<UnsafeCell<MaybeUninit<T>>>()).cast::<T>()
    }

    /// Initialises the value with a C function, which gets the final address.
    pub fn ffi_init(init: impl FnOnce(*mut T)) -> impl PinInit<Self> {
        // SAFETY: The closure initialises the slot as far as C needs it; to Rust the content is opaque.
        unsafe {
            pinned_init::pin_init_from_closure::<_, core::convert::Infallible>(
                move |slot: *mut Self| {
                    init(Self::cast_into(slot));
                    Ok(())
                },
            )
        }
    }
}
