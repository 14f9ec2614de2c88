// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSPARSE's operations on sparse vectors, products of a sparse matrix with a vector, a dense or a sparse matrix, products of
//! dense matrices for a sparse one, sums of sparse matrices, triangular systems, sorting and conversions.

pub(crate) mod batch;
pub(crate) mod blocks;
pub(crate) mod compress;
pub(crate) mod convert;
pub(crate) mod descriptors;
pub mod handle;
pub(crate) mod matrix;
pub(crate) mod product;
pub(crate) mod reused_product;
pub(crate) mod sampled_product;
pub(crate) mod solve;
pub(crate) mod sort;
pub(crate) mod sparse_product;
pub(crate) mod store;
pub(crate) mod sum;
pub(crate) mod vector;

use std::ffi::c_int;

use crate::cublas::operation::Operation;
use crate::handles::{self, Handle};
use crate::numbers::C64;

/// `cusparseStatus_t`
pub type Status = i32;

/// `CUSPARSE_STATUS_SUCCESS`
pub const SUCCESS: Status = 0;
/// `CUSPARSE_STATUS_NOT_INITIALIZED`
pub const NOT_INITIALIZED: Status = 1;
/// `CUSPARSE_STATUS_INVALID_VALUE`
pub const INVALID_VALUE: Status = 3;
/// `CUSPARSE_STATUS_EXECUTION_FAILED`
pub const EXECUTION_FAILED: Status = 6;
/// `CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED`
pub const MATRIX_TYPE_NOT_SUPPORTED: Status = 8;
/// `CUSPARSE_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: Status = 10;
/// `CUSPARSE_STATUS_INSUFFICIENT_RESOURCES`
pub const INSUFFICIENT_RESOURCES: Status = 11;

/// Bytes of a workspace, as the functions that ask for it answer: a program may allocate nothing for 0.
pub const WORKSPACE: usize = 16;

/// The body of an exported function, as a status.
pub fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// Reads a `cusparseOperation_t`.
fn operation(number: c_int) -> Result<Operation, Status> {
    Operation::new(number).map_err(|_| INVALID_VALUE)
}

/// Creates a handle of a value, and stores it at the program's address.
///
/// # Safety
///
/// `place` is null or has room for a handle.
unsafe fn give<T: Send + 'static>(place: *mut Handle, value: Result<T, Status>) -> Status {
    // SAFETY: null or a place for a handle, by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    match value {
        Ok(value) => {
            *place = handles::make(value);
            SUCCESS
        }
        Err(status) => status,
    }
}

/// Returns beta times an old value. Where beta is 0, the old value is ignored, even a NaN.
fn scaled(beta: C64, old: C64) -> C64 {
    if beta == C64::default() { beta } else { beta * old }
}

/// Completes a call without work. Only its handle is checked.
fn nothing(handle: usize) -> Status {
    status(handle::settings(handle).map(|_| ()))
}

/// Answers [`WORKSPACE`].
///
/// # Safety
///
/// `place` is null or has room for a number.
unsafe fn workspace(handle: usize, place: *mut usize) -> Status {
    // SAFETY: null or a place for a number, by this function's contract.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = WORKSPACE;
    nothing(handle)
}
