// SPDX-License-Identifier: GPL-2.0-only

//! Memory allocation. Every allocation may fail.

mod kbox;
mod kvec;

use crate::{ffi::c_void, glue};
pub use kbox::KBox;
pub use kvec::{PushError, RemoveError, Vec};

/// The error for a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// Allocation flags. The numbers are shared by Rust and `glue.c`; they are not the kernel's.
#[derive(Clone, Copy)]
pub struct Flags(pub(crate) u32);

/// The flags that the driver uses.
pub mod flags {
    use super::Flags;

    /// The allocation may sleep.
    pub const GFP_KERNEL: Flags = Flags(0);
    /// The allocation may sleep, and is charged to the process's control group.
    pub const GFP_KERNEL_ACCOUNT: Flags = Flags(1);
}

/// A source of memory.
///
/// # Safety
///
/// `alloc` returns null or memory of that size, which is aligned for every type that the driver uses, until `free`.
pub unsafe trait Allocator {
    /// Allocates `bytes` bytes, at least 1.
    fn alloc(bytes: usize, flags: Flags) -> *mut c_void;
    /// Frees memory.
    ///
    /// # Safety
    ///
    /// `memory` comes from `alloc`, and is not used any more.
    unsafe fn free(memory: *mut c_void);
}

/// kmalloc: contiguous in physical memory.
pub struct Kmalloc;

// SAFETY: kmalloc aligns to at least 8 bytes, and to the size if that is a power of 2. `glue.c` checks the former;
// `check_align` limits types to it.
unsafe impl Allocator for Kmalloc {
    fn alloc(bytes: usize, flags: Flags) -> *mut c_void {
        // SAFETY: Allocating has no condition.
        unsafe { glue::stock_kmalloc(bytes, flags.0) }
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: `Allocator::free` takes memory of `alloc` that is not used any more.
        unsafe { glue::stock_kfree(memory) }
    }
}

/// kvmalloc: like kmalloc, but falls back to physically scattered pages.
pub struct KVmalloc;

// SAFETY: kvmalloc returns memory of that many bytes, aligned as kmalloc's or to a page.
unsafe impl Allocator for KVmalloc {
    fn alloc(bytes: usize, flags: Flags) -> *mut c_void {
        // SAFETY: Allocating has no condition.
        unsafe { glue::stock_kvmalloc(bytes, flags.0) }
    }

    unsafe fn free(memory: *mut c_void) {
        // SAFETY: `Allocator::free` takes memory of `alloc` that is not used any more.
        unsafe { glue::stock_kvfree(memory) }
    }
}

/// Minimum alignment of kmalloc in bytes.
const KMALLOC_ALIGN: usize = 8;

/// Refuses, at build time, types that need a larger alignment than [`KMALLOC_ALIGN`].
pub(crate) const fn check_align<T>() {
    assert!(
        align_of::<T>() <= KMALLOC_ALIGN,
        "kmalloc does not align that far"
    );
}

/// A vector in memory of kmalloc.
pub type KVec<T> = Vec<T, Kmalloc>;
/// A vector in memory of kvmalloc.
pub type KVVec<T> = Vec<T, KVmalloc>;
