// SPDX-License-Identifier: GPL-2.0-only

//! Open files.

use crate::{bindings, types::Opaque};

/// An open file.
#[repr(transparent)]
pub struct File(Opaque<bindings::file>);

impl File {
    /// # Safety
    ///
    /// `file` is open during `'a`.
    pub unsafe fn from_raw_file<'a>(file: *const bindings::file) -> &'a Self {
        // SAFETY: `# Safety` promises that the file is open during `'a`; the type is transparent.
        unsafe { &*file.cast() }
    }

    /// Returns a pointer for C.
    pub fn as_ptr(&self) -> *mut bindings::file {
        self.0.get()
    }
}
