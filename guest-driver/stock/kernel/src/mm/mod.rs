// SPDX-License-Identifier: GPL-2.0-only

//! Address spaces.

pub mod virt;

use crate::{
    bindings,
    glue,
    sync::aref::AlwaysRefCounted,
    types::Opaque, //
};
use core::ptr::NonNull;

/// An address space, whose mappings may already have been removed.
#[repr(transparent)]
pub struct Mm(Opaque<bindings::mm_struct>);

// SAFETY: The counter is atomic, and the functions used here may be called by any task.
unsafe impl Send for Mm {}
// SAFETY: The functions used here take the locks of the address space.
unsafe impl Sync for Mm {}

impl Mm {
    /// # Safety
    ///
    /// `mm` is valid during `'a`.
    pub(crate) unsafe fn from_raw<'a>(mm: *mut bindings::mm_struct) -> &'a Self {
        // SAFETY: `# Safety` promises that `mm` is valid during `'a`; the type is transparent.
        unsafe { &*mm.cast() }
    }

    /// Returns a pointer for C.
    pub fn as_raw(&self) -> *mut bindings::mm_struct {
        self.0.get()
    }
}

// SAFETY: `mmgrab` and `mmdrop` count references.
unsafe impl AlwaysRefCounted for Mm {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid.
        unsafe { glue::stock_mm_grab(self.as_raw()) }
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: `AlwaysRefCounted::dec_ref` demands a reference that is not used any more.
        unsafe { glue::stock_mm_drop(this.as_ptr().cast()) }
    }
}
