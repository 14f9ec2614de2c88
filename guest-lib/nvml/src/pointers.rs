// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass ([`cuda_abi::pointers`]).

use core::ffi::c_char;

use cuda_abi::pointers::{self, NullPointer};

use crate::error::{NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, Result, nvmlReturn_t};

/// NVML's answer to a null pointer.
#[derive(Clone, Copy, Debug)]
pub struct Nvml;

impl NullPointer for Nvml {
    type Error = nvmlReturn_t;
    const ERROR: nvmlReturn_t = NVML_ERROR_INVALID_ARGUMENT;
}

/// A pointer to a result, or to a parameter for both directions.
pub type Out<T> = pointers::Out<T, Nvml>;

/// Writes `text` and a NUL into a buffer of `length` bytes. Refuses null and text that does not fit.
///
/// # Safety
/// `buffer` is null or valid for writing `length` bytes.
pub unsafe fn store_text(buffer: *mut c_char, length: u32, text: &[u8]) -> Result {
    if buffer.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: text and NUL fit into the `length` bytes that there are by this function's contract.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}
