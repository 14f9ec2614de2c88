// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass.
//!
//! # Invariants
//!
//! An [`In`] is null or valid for a read of its type while the call of the exported function lasts, an [`Out`] for a write,
//! and for a read before where the parameter has both directions.
//! Nothing in this library makes such a value: each is a parameter of an exported function, and the program that passed it
//! promises this (`# Safety` of the macro `api`).

use crate::error::{self, Result};

/// The place of a result.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// The pointer for a call of the driver.
    pub fn as_ptr(&self) -> *mut T {
        self.0
    }

    /// Returns whether the program passed null.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Refuses a null pointer as the runtime does.
    pub fn not_null(&self) -> Result {
        not_null(self.0)
    }

    /// The value of a parameter for both directions, refusing a null pointer as the runtime does.
    pub fn get(&self) -> Result<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// Stores `value`, refusing a null pointer as the runtime does.
    pub fn set(&self, value: T) -> Result {
        self.not_null()?;
        // SAFETY: not null, so valid for a write by the type's invariant.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// The place of an argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Returns whether the program passed null.
    #[cfg(cuda_major = "13")]
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The argument, refusing a null pointer as the runtime does.
    pub fn get(&self) -> Result<T> {
        not_null(self.0)?;
        // SAFETY: not null, so valid for a read by the type's invariant.
        Ok(unsafe { self.0.read() })
    }
}

/// Refuses a null pointer as the runtime does.
pub fn not_null<T>(pointer: *const T) -> Result {
    if pointer.is_null() { Err(error::cudaErrorInvalidValue) } else { Ok(()) }
}
