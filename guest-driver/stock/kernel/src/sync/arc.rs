// SPDX-License-Identifier: GPL-2.0-only

//! Reference-counted values.

use crate::{
    alloc::{AllocError, Flags, KBox},
    ffi::c_void,
    types::ForeignOwnable,
};
use core::{
    marker::PhantomData,
    mem::{offset_of, ManuallyDrop, MaybeUninit},
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{fence, AtomicUsize, Ordering},
};
use pinned_init::PinInit;

#[repr(C)]
struct Inner<T> {
    references: AtomicUsize,
    value: T,
}

/// A reference to a shared, pinned value.
///
/// # Invariants
///
/// Points to a valid value of a [`KBox`], and owns one of its references.
pub struct Arc<T>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

/// A borrowed reference, which other code owns.
pub struct ArcBorrow<'a, T>(ManuallyDrop<Arc<T>>, PhantomData<&'a ()>);

// SAFETY: Shared, and dropped by the owner of the last reference.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: Shared references only read the atomic counter and lend a `T`, which is `Sync`.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

// The value does not move with the reference.
impl<T> Unpin for Arc<T> {}

impl<T> Arc<T> {
    /// Allocates a shared value.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        let inner = Inner {
            references: AtomicUsize::new(1),
            value,
        };
        // INVARIANT: The first reference.
        Ok(Self::of(KBox::into_raw(KBox::new(inner, flags)?)))
    }

    /// Allocates a shared value that is initialised in place.
    pub fn pin_init<E>(init: impl PinInit<T, E>, flags: Flags) -> Result<Self, crate::error::Error>
    where
        crate::error::Error: From<E>,
    {
        let place = KBox::into_raw(KBox::<Inner<T>>::new_uninit(flags)?);
        let inner: *mut Inner<T> = place.cast();
        // SAFETY: Room for an `Inner`, which never moves from now on.
        let made = unsafe {
            (&raw mut (*inner).references).write(AtomicUsize::new(1));
            init.__pinned_init(&raw mut (*inner).value)
        };
        if let Err(error) = made {
            // SAFETY: From `into_raw`; only the memory is freed.
            drop(unsafe { KBox::<MaybeUninit<Inner<T>>>::from_raw(place) });
            return Err(error.into());
        }
        // INVARIANT: The first reference; the value is valid.
        Ok(Self::of(inner))
    }

    fn of(inner: *mut Inner<T>) -> Self {
        // SAFETY: Of a box, never null.
        Self(unsafe { NonNull::new_unchecked(inner) }, PhantomData)
    }

    /// Gives up the reference. Returns a pointer to the value.
    pub fn into_raw(self) -> *const T {
        let this = ManuallyDrop::new(self);
        // SAFETY: A reference points to a valid value (invariant).
        unsafe { &raw const (*this.0.as_ptr()).value }
    }

    /// Takes the reference of a pointer back.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`Self::into_raw`], once.
    pub unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: `into_raw` gave the address of the field.
        let inner = unsafe { raw.byte_sub(offset_of!(Inner<T>, value)) };
        // INVARIANT: The reference that `into_raw` gave up.
        Self::of(inner.cast_mut().cast())
    }

    /// Returns whether both are the same value.
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // SAFETY: A reference points to a valid value (invariant).
        let before = unsafe { self.0.as_ref() }
            .references
            .fetch_add(1, Ordering::Relaxed);
        // So many references do not fit into memory, unless some are leaked in a loop.
        assert!(before < isize::MAX as usize, "too many references");
        // INVARIANT: Just counted.
        Self(self.0, PhantomData)
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        // SAFETY: A reference points to a valid value (invariant).
        let before = unsafe { self.0.as_ref() }
            .references
            .fetch_sub(1, Ordering::Release);
        if before == 1 {
            fence(Ordering::Acquire);
            // SAFETY: The last reference: the box is ours, and it is dropped where it is.
            drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: A reference points to a valid value (invariant).
        unsafe { &self.0.as_ref().value }
    }
}

impl<T> ArcBorrow<'_, T> {
    /// # Safety
    ///
    /// `raw` comes from [`Arc::into_raw`], and is not taken back while the value exists.
    pub unsafe fn from_raw(raw: *const T) -> Self {
        // SAFETY: `raw` comes from `into_raw`, by the caller. The reference that it stands for stays with the caller:
        // `ManuallyDrop` keeps this one from being given back.
        let arc = ManuallyDrop::new(unsafe { Arc::from_raw(raw) });
        Self(arc, PhantomData)
    }
}

impl<T> From<ArcBorrow<'_, T>> for Arc<T> {
    fn from(borrow: ArcBorrow<'_, T>) -> Self {
        Arc::clone(&borrow.0)
    }
}

// SAFETY: `into_raw` gives what `from_raw` takes.
unsafe impl<T: 'static> ForeignOwnable for Arc<T> {
    type Borrowed<'a> = ArcBorrow<'a, T>;

    fn into_foreign(self) -> *mut c_void {
        self.into_raw().cast_mut().cast()
    }

    unsafe fn from_foreign(ptr: *mut c_void) -> Self {
        // SAFETY: `ForeignOwnable::from_foreign` takes only what `into_foreign` gave, once.
        unsafe { Self::from_raw(ptr.cast()) }
    }

    unsafe fn borrow<'a>(ptr: *mut c_void) -> ArcBorrow<'a, T> {
        // SAFETY: `ForeignOwnable::borrow` takes what `into_foreign` gave, which is not taken back during `'a`.
        unsafe { ArcBorrow::from_raw(ptr.cast()) }
    }
}
