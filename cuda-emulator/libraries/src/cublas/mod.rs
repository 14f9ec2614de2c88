// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuBLAS. Matrices are stored by columns; a reference to a section is one to NVIDIA's cuBLAS manual.

pub(crate) mod banded;
pub(crate) mod batched;
pub(crate) mod gemm;
pub mod gemm_ex;
pub mod handle;
pub(crate) mod level1;
pub(crate) mod level2;
pub(crate) mod level3;
pub mod operation;
pub(crate) mod rotations;
mod storage;
pub(crate) mod typed;

use std::ffi::c_int;

/// `cublasStatus_t`
pub type Status = i32;

/// `CUBLAS_STATUS_SUCCESS`
pub const SUCCESS: Status = 0;
/// `CUBLAS_STATUS_NOT_INITIALIZED`
pub const NOT_INITIALIZED: Status = 1;
/// `CUBLAS_STATUS_INVALID_VALUE`
pub const INVALID_VALUE: Status = 7;
/// `CUBLAS_STATUS_EXECUTION_FAILED`
pub const EXECUTION_FAILED: Status = 13;
/// `CUBLAS_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: Status = 15;

/// The body of an exported function, as a status.
pub fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// A size that is not negative.
pub fn size(value: c_int) -> Result<usize, Status> {
    usize::try_from(value).map_err(|_| INVALID_VALUE)
}
