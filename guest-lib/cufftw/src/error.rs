// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reasons for plans that are NULL and for transforms that fail. FFTW has no error codes, so they are printed.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The reason for a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The arguments are wrong, or this library does not support them.
    Arguments(&'static str),
    /// A library is missing.
    Library(String),
    /// A library lacks a function.
    Function(&'static str),
    /// A `CUresult`.
    Cuda(c_int),
    /// A `cufftResult`.
    Fft(c_int),
    /// A bug in this library.
    Internal,
    /// No host memory is left for a copy of an array.
    Memory,
}

/// The result of a step.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(reason) => to.write_str(reason),
            Self::Library(name) => write!(to, "{name} cannot be loaded"),
            Self::Function(name) => write!(to, "the library has no function {name}"),
            Self::Cuda(result) => write!(to, "CUDA error {result}"),
            Self::Fft(result) => write!(to, "cuFFT result {result}"),
            Self::Internal => to.write_str("internal error"),
            Self::Memory => to.write_str("no host memory is left for a copy of the array"),
        }
    }
}

/// Prints a reason to stderr, each once: a program may try many plans.
pub fn report(what: &str, error: &Error) {
    static PRINTED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let line = format!("vhost-cuda: {what}: {error}.");
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.get_or_insert_default().insert(line.clone()) {
        eprintln!("{line}");
    }
}
