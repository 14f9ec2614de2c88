// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointers that programs pass ([`cuda_abi::pointers`]).

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

/// Refuses a null pointer with the runtime's error.
pub fn not_null<T>(pointer: *const T) -> Result {
    if pointer.is_null() { Err(error::cudaErrorInvalidValue) } else { Ok(()) }
}
