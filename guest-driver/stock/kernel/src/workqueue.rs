// SPDX-License-Identifier: GPL-2.0-only

//! Deferred work.

pub use crate::impl_has_work;
use crate::{
    bindings,
    ffi::CStr,
    glue,
    str::CStrExt as _,
    sync::{Arc, LockClassKey},
    types::Opaque,
};
use core::{marker::PhantomData, pin::Pin};
use pinned_init::{pin_data, pin_init, PinInit};

/// A workqueue.
#[repr(transparent)]
pub struct Queue(Opaque<bindings::workqueue_struct>);

// SAFETY: A workqueue may be used by any task.
unsafe impl Send for Queue {}
// SAFETY: Queueing work takes the workqueue's own lock.
unsafe impl Sync for Queue {}

impl Queue {
    /// # Safety
    ///
    /// `raw` is valid during `'a`.
    pub unsafe fn from_raw<'a>(raw: *const bindings::workqueue_struct) -> &'a Self {
        // SAFETY: `# Safety` promises that the workqueue is valid during `'a`; the type is transparent.
        unsafe { &*raw.cast() }
    }

    /// Queues a call of [`WorkItem::run`]. Returns the reference if it is already queued.
    pub fn enqueue<T, const ID: u64>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
    {
        let raw = Arc::into_raw(item);
        // SAFETY: Valid by the reference.
        let work = unsafe { T::raw_get_work(raw.cast_mut()) };
        // SAFETY: Initialised by `Work::new`; the reference keeps it until it has run.
        if unsafe {
            glue::stock_queue_work(self.0.get(), Opaque::cast_into(&raw const (*work).work))
        } {
            Ok(())
        } else {
            // SAFETY: From `into_raw` above; the queue has not taken it.
            Err(unsafe { Arc::from_raw(raw) })
        }
    }
}

/// A type that can be queued as work.
pub trait WorkItem<const ID: u64 = 0> {
    /// The reference type with which it is queued.
    type Pointer;

    /// Runs the work.
    fn run(this: Self::Pointer);
}

/// A type with a [`Work`] field. Use [`impl_has_work!`](crate::impl_has_work).
///
/// # Safety
///
/// The two functions are inverse to each other.
pub unsafe trait HasWork<T, const ID: u64 = 0> {
    /// Returns the field.
    ///
    /// # Safety
    ///
    /// `ptr` is valid.
    unsafe fn raw_get_work(ptr: *mut Self) -> *mut Work<T, ID>;

    /// Returns the value that contains the field.
    ///
    /// # Safety
    ///
    /// `ptr` is the field of a valid value.
    unsafe fn work_container_of(ptr: *mut Work<T, ID>) -> *mut Self;
}

/// An entry of a workqueue.
#[pin_data]
#[repr(transparent)]
pub struct Work<T, const ID: u64 = 0> {
    #[pin]
    work: Opaque<bindings::work_struct>,
    _type: PhantomData<fn() -> T>,
}

// SAFETY: Only C uses it.
unsafe impl<T, const ID: u64> Send for Work<T, ID> {}
// SAFETY: Rust code has no access to the contents.
unsafe impl<T, const ID: u64> Sync for Work<T, ID> {}

impl<T, const ID: u64> Work<T, ID>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    /// Use [`new_work!`](crate::new_work).
    pub fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid; `name` and `key` are static.
            work <- Opaque::ffi_init(|slot| unsafe {
                glue::stock_work_init(slot, Self::run, name.as_char_ptr(), key.as_ptr())
            }),
            _type: PhantomData,
        })
    }

    /// # Safety
    ///
    /// `work` is the field of a value that [`Queue::enqueue`] has taken.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: `Work` is transparent over it, and inside a `T`, by the caller.
        let item = unsafe { T::work_container_of(work.cast()) };
        // SAFETY: `enqueue` gave its reference up.
        T::run(unsafe { Arc::from_raw(item) });
    }
}

/// Declares which field of a type is its [`Work`].
#[macro_export]
macro_rules! impl_has_work {
    ($(impl HasWork<$work:ty $(, $id:tt)?> for $self:ty { self.$field:ident })*) => {$(
        // SAFETY: Both add or subtract the offset of the same field.
        unsafe impl $crate::workqueue::HasWork<$work $(, $id)?> for $self {
            unsafe fn raw_get_work(
                ptr: *mut Self,
            ) -> *mut $crate::workqueue::Work<$work $(, $id)?> {
                // SAFETY: `ptr` is valid, by the caller.
                unsafe { &raw mut (*ptr).$field }
            }

            unsafe fn work_container_of(
                ptr: *mut $crate::workqueue::Work<$work $(, $id)?>,
            ) -> *mut Self {
                // SAFETY: `ptr` is the field of a valid value, by the caller.
                unsafe { ptr.byte_sub(::core::mem::offset_of!(Self, $field)).cast() }
            }
        }
    )*};
}

/// Initialises a [`Work`] with a separate lock class.
#[macro_export]
macro_rules! new_work {
    ($name:literal) => {
        $crate::workqueue::Work::new($crate::c_str!($name), $crate::static_lock_class!())
    };
}
