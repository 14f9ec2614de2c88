// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass.
//!
//! # Invariants
//!
//! An [`In`] is null or valid for a read of its type while the call of the exported function lasts. An [`Out`] is null
//! or valid for a write, and also for a read where the parameter has both directions. Nothing in this library creates
//! such a value: each is a parameter of an exported function, and the program that passed it promises this (`# Safety`
//! of the macro `api`).

use crate::error::{self, Result};

/// A pointer to a result; null or valid.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Returns the pointer for a driver call.
    pub fn as_ptr(&self) -> *mut T {
        self.0
    }

    /// Returns whether the program passed null.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Refuses a null pointer with the runtime's error.
    pub fn not_null(&self) -> Result {
        not_null(self.0)
    }

    /// Returns the value of a parameter for both directions. Refuses null with the runtime's error.
    pub fn get(&self) -> Result<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// Stores `value`. Refuses null with the runtime's error.
    pub fn set(&self, value: T) -> Result {
        self.not_null()?;
        // SAFETY: not null, so valid for a write by the type's invariant.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// A pointer to an argument; null or valid.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Returns whether the program passed null.
    #[cfg(cuda_major = "13")]
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the argument. Refuses null with the runtime's error.
    pub fn get(&self) -> Result<T> {
        not_null(self.0)?;
        // SAFETY: not null, so valid for a read by the type's invariant.
        Ok(unsafe { self.0.read() })
    }
}

/// Refuses a null pointer with the runtime's error.
pub fn not_null<T>(pointer: *const T) -> Result {
    if pointer.is_null() { Err(error::cudaErrorInvalidValue) } else { Ok(()) }
}
