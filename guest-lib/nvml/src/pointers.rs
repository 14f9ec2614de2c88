// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass.
//!
//! # Invariants
//!
//! An [`Out`] is null or valid for a write of its type while the call of the exported function lasts, and also for a
//! read where the parameter has both directions. Each is a parameter of an exported function, and the program that
//! passed it promises this (`# Safety` of the macro `api`), or the caller of [`Out::new`] does.

use core::ffi::c_char;

use crate::error::{NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, Result};

/// A pointer to a result, or to a parameter for both directions.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// # Safety
    /// `pointer` is null or valid for reads and writes of `T` while the value is used.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns the pointer, for fields after the value.
    pub fn as_ptr(self) -> *mut T {
        self.0
    }

    /// Returns whether the program passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Refuses null.
    pub fn not_null(self) -> Result {
        if self.is_null() { Err(NVML_ERROR_INVALID_ARGUMENT) } else { Ok(()) }
    }

    /// Stores `value`; refuses null.
    pub fn set(self, value: T) -> Result {
        self.not_null()?;
        // SAFETY: not null, so valid for a write by the type's invariant.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Returns the value of a parameter for both directions. Refuses null.
    pub fn get(self) -> Result<T>
    where
        T: Copy,
    {
        self.not_null()?;
        // SAFETY: not null, so valid for a read by the type's invariant.
        Ok(unsafe { self.0.read() })
    }

    /// Returns the version in the first field of a structure. Refuses null. The other fields need not be initialised.
    pub fn version(self) -> Result<u32> {
        const { assert!(size_of::<T>() >= size_of::<u32>() && align_of::<T>() >= align_of::<u32>()) };
        Out(self.0.cast::<u32>()).get()
    }

    /// Stores the result of `value`. Refuses null before calling it.
    pub fn give(self, value: impl FnOnce() -> Result<T>) -> Result {
        self.not_null()?;
        self.set(value()?)
    }
}

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
