// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass.

use crate::error::{self, Result};

/// `*pointer = value`, refusing a null pointer as the runtime does.
///
/// # Safety
/// `pointer` is null or valid for a write of `T`.
pub unsafe fn store<T>(pointer: *mut T, value: T) -> Result {
    if pointer.is_null() {
        return Err(error::cudaErrorInvalidValue);
    }
    // SAFETY: not null, so valid by this function's contract.
    unsafe { pointer.write(value) };
    Ok(())
}

/// The argument behind `pointer`, refusing a null pointer as the runtime does.
///
/// # Safety
/// `pointer` is null or valid for a read of `T`.
pub unsafe fn load<T: Copy>(pointer: *const T) -> Result<T> {
    if pointer.is_null() {
        return Err(error::cudaErrorInvalidValue);
    }
    // SAFETY: not null, so valid by this function's contract.
    Ok(unsafe { pointer.read() })
}

/// Refuses a null pointer as the runtime does.
pub fn not_null<T>(pointer: *const T) -> Result {
    if pointer.is_null() { Err(error::cudaErrorInvalidValue) } else { Ok(()) }
}
