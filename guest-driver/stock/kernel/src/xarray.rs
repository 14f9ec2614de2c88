// SPDX-License-Identifier: GPL-2.0-only

//! Tables of values by number.

use crate::{alloc::Flags, bindings, error::Error, glue, types::ForeignOwnable, types::Opaque};
use core::{
    marker::{PhantomData, PhantomPinned},
    ops::DerefMut,
    pin::Pin,
    ptr::{self, NonNull},
};
use pinned_init::{pin_data, pin_init, pinned_drop, PinInit};

/// The first number that the kernel's allocation of numbers would use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllocKind {
    /// 0.
    Alloc,
    /// 1.
    Alloc1,
}

/// A table.
///
/// # Invariants
///
/// Each entry comes from [`ForeignOwnable::into_foreign`] of `T`.
#[pin_data(PinnedDrop)]
pub struct XArray<T: ForeignOwnable> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    _type: PhantomData<T>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: It owns its values.
unsafe impl<T: ForeignOwnable + Send> Send for XArray<T> {}
// SAFETY: One at a time has them.
unsafe impl<T: ForeignOwnable + Send> Sync for XArray<T> {}

/// A value that could not be stored.
pub struct StoreError<T> {
    /// The reason.
    pub error: Error,
    /// The value that was not stored.
    pub value: T,
}

impl<T: ForeignOwnable> XArray<T> {
    /// Returns an empty table.
    pub fn new(kind: AllocKind) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid.
            xa <- Opaque::ffi_init(move |slot| unsafe {
                glue::stock_xa_init(slot, kind == AllocKind::Alloc1)
            }),
            _type: PhantomData,
            _pin: PhantomPinned,
        })
    }

    /// Locks.
    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: Initialised by `new`.
        unsafe { glue::stock_xa_lock(self.xa.get()) };
        Guard(self, PhantomData)
    }
}

#[pinned_drop]
impl<T: ForeignOwnable> PinnedDrop for XArray<T> {
    fn drop(self: Pin<&mut Self>) {
        loop {
            // SAFETY: Initialised by `new`, and no longer in use.
            let value = unsafe { glue::stock_xa_take_first(self.xa.get()) };
            if value.is_null() {
                break;
            }
            // SAFETY: By the invariant; it is not in the table any more.
            drop(unsafe { T::from_foreign(value) });
        }
        // SAFETY: The table was initialised with the value, and is no longer used.
        unsafe { glue::stock_xa_destroy(self.xa.get()) }
    }
}

/// Exclusive access to a table. It must not be sent to another task: the lock is a spinlock.
#[must_use = "the lock is unlocked at once"]
pub struct Guard<'a, T: ForeignOwnable>(&'a XArray<T>, PhantomData<*mut ()>);

impl<T: ForeignOwnable> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `lock` has locked.
        unsafe { glue::stock_xa_unlock(self.0.xa.get()) }
    }
}

impl<T: ForeignOwnable> Guard<'_, T> {
    fn load(&self, index: usize) -> Option<NonNull<crate::ffi::c_void>> {
        // SAFETY: Initialised by `new`.
        NonNull::new(unsafe { glue::stock_xa_load(self.0.xa.get(), index) })
    }

    /// Returns the value at `index`.
    pub fn get(&self, index: usize) -> Option<T::Borrowed<'_>> {
        // SAFETY: By the invariant; it stays while the table is locked.
        Some(unsafe { T::borrow(self.load(index)?.as_ptr()) })
    }

    /// Removes and returns the value at `index`.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        // SAFETY: Initialised by `new`, locked.
        let old = unsafe { glue::stock_xa_erase(self.0.xa.get(), index) };
        // SAFETY: By the invariant; it is not in the table any more.
        NonNull::new(old).map(|old| unsafe { T::from_foreign(old.as_ptr()) })
    }

    /// Stores a value at `index`. Returns the previous one. May unlock meanwhile, as the kernel's function does.
    pub fn store(
        &mut self,
        index: usize,
        value: T,
        flags: Flags,
    ) -> Result<Option<T>, StoreError<T>> {
        let new = value.into_foreign();
        let mut old = ptr::null_mut();
        // SAFETY: Initialised by `new`, locked. INVARIANT: `new` is of `into_foreign`.
        let errno = unsafe { glue::stock_xa_store(self.0.xa.get(), index, new, flags.0, &mut old) };
        if errno < 0 {
            return Err(StoreError {
                error: Error::from_errno(errno),
                // SAFETY: From `into_foreign` above; the table has not taken it.
                value: unsafe { T::from_foreign(new) },
            });
        }
        // SAFETY: By the invariant; it is not in the table any more.
        Ok(NonNull::new(old).map(|old| unsafe { T::from_foreign(old.as_ptr()) }))
    }
}

impl<T: 'static> Guard<'_, crate::alloc::KBox<T>>
where
    crate::alloc::KBox<T>: DerefMut<Target = T>,
{
    /// Returns a mutable reference to the value at `index`.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        // SAFETY: By the invariant a box's pointer; while the table is locked, there is no other reference.
        Some(unsafe { self.load(index)?.cast::<T>().as_mut() })
    }
}
