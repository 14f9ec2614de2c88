// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass ([`cuda_abi::pointers`]).

use core::mem::MaybeUninit;
use core::ptr;

use cuda_abi::pointers::{self, NullPointer};

use crate::error::{self, Result, cudaError_t};

/// The runtime's answer to a null pointer.
#[derive(Clone, Copy, Debug)]
pub struct Runtime;

impl NullPointer for Runtime {
    type Error = cudaError_t;
    const ERROR: cudaError_t = error::cudaErrorInvalidValue;
}

/// A pointer to a result; null or valid.
pub type Out<T> = pointers::Out<T, Runtime>;
/// A pointer to an argument; null or valid.
pub type In<T> = pointers::In<T, Runtime>;

/// Reads the first `bytes` of a struct, of which an older version of CUDA has no more. The other members are 0. Refuses
/// null.
///
/// # Safety
/// `given` is null or valid for reading `bytes` bytes, and 0 is a value of every member of `T`.
pub unsafe fn read_start<T: Copy>(given: *const T, bytes: usize) -> Result<T> {
    not_null(given)?;
    let mut whole = MaybeUninit::<T>::zeroed();
    let bytes = bytes.min(size_of::<T>());
    // SAFETY: `given` is not null, so by this function's contract it has `bytes` bytes; `whole` has room for a `T`. Zeros
    // and what the program stored in members are values of `T`.
    unsafe {
        ptr::copy_nonoverlapping(given.cast::<u8>(), whole.as_mut_ptr().cast(), bytes);
        Ok(whole.assume_init())
    }
}

/// Stores the first `bytes` of a struct, of which an older version of CUDA has no more. Refuses null.
///
/// # Safety
/// `target` is null or valid for writing `bytes` bytes.
pub unsafe fn store_start<T: Copy>(target: *mut T, value: &T, bytes: usize) -> Result {
    not_null(target)?;
    let bytes = bytes.min(size_of::<T>());
    // SAFETY: `target` is not null, so by this function's contract it has room; `value` is not shorter than `bytes`.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), target.cast(), bytes) };
    Ok(())
}

/// Refuses a null pointer with the runtime's error.
pub fn not_null<T>(pointer: *const T) -> Result {
    if pointer.is_null() { Err(error::cudaErrorInvalidValue) } else { Ok(()) }
}
