// SPDX-License-Identifier: Apache-2.0 OR MIT

//! NVIDIA's libraries in the guest. Most of their exported functions are generated ([`exports`]), the others are
//! in [`custom`]. Each function encodes its arguments ([`encode`]) and sends them through the guest's libcuda ([`bridge`]) to the worker,
//! which calls the host's library. This package is linked once for each file that programs load: `libcublas.so.13`
//! exports only the functions of cuBLAS.
//!
//! The guest keeps this state: the pointer mode and the stream of handles ([`handles`]), the calls that the library has
//! accepted before and that need not wait ([`proven`]), the blocks of the latest of these (`front/exchange/known.rs`), and results that
//! never change ([`answers`]).

mod answers;
mod bridge;
mod custom;
mod encode;
mod exports;
mod front;
mod handles;
mod proven;

use std::ffi::c_char;

// Exports the descriptors of cuBLASLt.
use cublaslt_descriptors as _;

pub(crate) use front::Front;

/// Executes the function with this index. The result is the C function's return value, as bits.
///
/// # Safety
///
/// `slots` are the arguments of a call of the function, as its row describes them. Addresses of host memory are valid
/// as NVIDIA's manual requires.
pub(crate) unsafe fn forward(front: &'static Front, function: usize, slots: &[u64]) -> u64 {
    // SAFETY: the slots are those of a call of the function by this function's contract.
    unsafe { front.forward(function, slots) }
}

/// Like [`forward`], for the function `name`, which returns a status. Returns the library's `not_supported` for a name
/// without a row.
///
/// # Safety
///
/// The contract of [`forward`].
pub(crate) unsafe fn forward_named(front: &'static Front, name: &str, slots: &[u64]) -> i32 {
    // SAFETY: `forward` demands slots that are the arguments of a call of that function.
    unsafe { front.forward_named(name, slots) }
}

/// Returns the number of a handle that is a structure in the program's memory; 0 for null.
///
/// # Safety
///
/// `handle` is null, or has 8 readable bytes.
pub(crate) unsafe fn number_in(handle: u64) -> u64 {
    // SAFETY: null, or a word by this function's contract. A structure of bytes may be anywhere.
    if handle == 0 { 0 } else { unsafe { (handle as *const u64).read_unaligned() } }
}

/// A structure that is passed by value. It is longer than 16 bytes, so C passes it on the stack.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Structure<const BYTES: usize>([u8; BYTES]);

/// Returns the status for a function that this library does not support.
pub(crate) fn refuse(front: &'static Front, function: usize) -> i32 {
    front.refuse(function)
}

/// This symbol distinguishes this library from NVIDIA's of the same name.
#[unsafe(no_mangle)]
pub extern "C" fn vhost_cuda_in_front() -> *const c_char {
    concat!("vhost-cuda ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
