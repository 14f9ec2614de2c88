// SPDX-License-Identifier: GPL-2.0-only

//! Memory. Every allocation can fail.

mod kbox;
mod kvec;

use crate::{ffi::c_void, glue};
pub use kbox::KBox;
pub use kvec::{PushError, RemoveError, Vec};

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

/// How to allocate. Numbers between Rust and `glue.c`, not the kernel's.
#[derive(Clone, Copy)]
pub struct Flags(pub(crate) u32);

/// The usual flags.
pub mod flags {
    use super::Flags;

    /// May sleep.
    pub const GFP_KERNEL: Flags = Flags(0);
    /// May sleep, and counts for the process's control group.
    pub const GFP_KERNEL_ACCOUNT: Flags = Flags(1);
}

/// Where memory comes from.
///
/// # Safety
///
/// `alloc` returns null or memory of that size, aligned for any type of Rust that the driver has, until `free`.
pub unsafe trait Allocator {
    /// Allocates `bytes` bytes, at least 1.
    fn alloc(bytes: usize, flags: Flags) -> *mut c_void;
    /// Frees.
    ///
    /// # Safety
    ///
    /// `memory` comes from `alloc`, and is not used any more.
    unsafe fn free(memory: *mut c_void);
}

/// kmalloc: contiguous in physical memory.
pub struct Kmalloc;

// SAFETY: kmalloc aligns to 8 bytes at least, and to their size if that is a power of 2; `glue.c` checks the former,
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

/// kvmalloc: the same, or pages from anywhere.
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

/// What kmalloc aligns everything to.
const KMALLOC_ALIGN: usize = 8;

/// Refuses types, at build time, that need more than [`KMALLOC_ALIGN`].
pub(crate) const fn check_align<T>() {
    assert!(
        align_of::<T>() <= KMALLOC_ALIGN,
        "kmalloc does not align that far"
    );
}

/// A vector of kmalloc.
pub type KVec<T> = Vec<T, Kmalloc>;
/// A vector of kvmalloc.
pub type KVVec<T> = Vec<T, KVmalloc>;
