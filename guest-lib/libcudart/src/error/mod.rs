// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error codes, and the thread's last error.
//!
//! Driver codes pass through unchanged: since CUDA 10.1 `CUresult` and `cudaError_t` share their values.

use core::cell::Cell;

mod table;

pub use table::*;

/// `cudaError_t`, an `enum` in C. It is a number here because a driver may return a code that no table has.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudaError_t(pub u32);

/// The result of every function of this library.
pub type Result<T = ()> = core::result::Result<T, cudaError_t>;

impl cudaError_t {
    /// Converts a driver's return code to a result.
    pub fn check(self) -> Result {
        if self == cudaSuccess { Ok(()) } else { Err(self) }
    }
}

impl From<Result> for cudaError_t {
    fn from(result: Result) -> Self {
        result.err().unwrap_or(cudaSuccess)
    }
}

thread_local! {
    static LAST: Cell<cudaError_t> = const { Cell::new(cudaSuccess) };
}

/// Stores `error` for cudaGetLastError, except cudaErrorNotReady, which is a status and not a failure.
pub fn record(error: cudaError_t) {
    if error != cudaErrorNotReady {
        LAST.set(error);
    }
}

/// Calls `read` with the thread's last error, which it returns or replaces.
pub fn last(read: fn(&Cell<cudaError_t>) -> cudaError_t) -> cudaError_t {
    LAST.with(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_constants() {
        let name = |code| describe(cudaError_t(code)).map(|(name, _)| name.to_str().unwrap());
        assert_eq!(name(0), Some("cudaSuccess"));
        assert_eq!(name(700), Some("cudaErrorIllegalAddress"));
        assert_eq!(name(10_000), Some("cudaErrorApiFailureBase"));
        assert_eq!(name(10), None);
        assert_eq!(describe(cudaErrorMemoryAllocation).unwrap().1, c"out of memory");
    }

    #[test]
    fn table_is_complete_and_ordered() {
        assert_eq!(ALL.len(), 134);
        assert!(ALL.is_sorted());
    }

    #[test]
    fn not_ready_is_not_recorded() {
        LAST.set(cudaSuccess);
        record(cudaErrorNotReady);
        assert_eq!(LAST.get(), cudaSuccess);
        record(cudaErrorInvalidValue);
        record(cudaErrorNotReady);
        assert_eq!(LAST.get(), cudaErrorInvalidValue);
    }
}
