// SPDX-License-Identifier: GPL-2.0-only

//! Mappings.

use crate::{
    bindings,
    error::{code::*, to_result, Result},
    ffi::{c_uint, c_ulong},
    glue,
    page::Page,
    types::Opaque,
};

/// Flags of a mapping. The numbers are shared by Rust and `glue.c`; they are not the kernel's.
pub mod flags {
    use crate::ffi::c_uint;

    /// `VM_SHARED`.
    pub const SHARED: c_uint = 1;
    /// `VM_EXEC`.
    pub(super) const EXEC: c_uint = 2;
    /// `VM_DONTEXPAND`.
    pub(super) const DONTEXPAND: c_uint = 4;
    /// `VM_DONTCOPY`.
    pub(super) const DONTCOPY: c_uint = 8;
    /// `VM_MIXEDMAP`.
    pub(super) const MIXEDMAP: c_uint = 16;
}

/// A mapping that mmap(2) is setting up.
#[repr(transparent)]
pub struct VmaNew(Opaque<bindings::vm_area_struct>);

/// A mapping into which single pages can be inserted.
#[repr(transparent)]
pub struct VmaMixedMap(Opaque<bindings::vm_area_struct>);

impl VmaNew {
    /// # Safety
    ///
    /// The mapping is being set up during `'a`.
    pub unsafe fn from_raw<'a>(vma: *mut bindings::vm_area_struct) -> &'a Self {
        // SAFETY: `# Safety` promises that the mapping is being set up during `'a`; the type is transparent.
        unsafe { &*vma.cast() }
    }

    /// Returns the first address.
    pub fn start(&self) -> usize {
        // SAFETY: The mapping is valid.
        unsafe { glue::stock_vma_start(self.0.get()) }
    }

    /// Returns the address after the last one.
    pub fn end(&self) -> usize {
        // SAFETY: The mapping is valid.
        unsafe { glue::stock_vma_end(self.0.get()) }
    }

    /// Returns the flags; see [`flags`].
    pub fn flags(&self) -> c_uint {
        // SAFETY: The mapping is valid.
        unsafe { glue::stock_vma_flags(self.0.get()) }
    }

    /// Prevents mprotect(2) from making the mapping executable. `EINVAL`: it is executable.
    pub fn try_clear_mayexec(&self) -> Result {
        if self.flags() & flags::EXEC != 0 {
            return Err(EINVAL);
        }
        // SAFETY: The mapping is being set up: no other code uses its flags.
        unsafe { glue::stock_vma_clear_mayexec(self.0.get()) };
        Ok(())
    }

    fn set(&self, flag: c_uint) {
        // SAFETY: The mapping is being set up: no other code uses its flags.
        unsafe { glue::stock_vma_set(self.0.get(), flag) }
    }

    /// Prevents mremap(2) from enlarging the mapping.
    pub fn set_dontexpand(&self) {
        self.set(flags::DONTEXPAND);
    }

    /// Prevents fork(2) from copying the mapping.
    pub fn set_dontcopy(&self) {
        self.set(flags::DONTCOPY);
    }

    /// Makes it a mapping into which single pages can be inserted.
    pub fn set_mixedmap(&self) -> &VmaMixedMap {
        self.set(flags::MIXEDMAP);
        // SAFETY: Both types are transparent over the same.
        unsafe { &*self.0.get().cast() }
    }
}

impl VmaMixedMap {
    /// Maps a page. The mapping holds a separate reference to the page.
    pub fn vm_insert_page(&self, address: usize, page: &Page) -> Result {
        // SAFETY: The mapping is valid and of this kind; the page is held by the caller.
        to_result(unsafe {
            glue::stock_vm_insert_page(self.0.get(), address as c_ulong, page.as_ptr())
        })
    }
}
