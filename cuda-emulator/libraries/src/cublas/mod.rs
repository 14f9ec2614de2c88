// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuBLAS. Matrices are stored by columns; a reference to a section is one to NVIDIA's cuBLAS manual.

mod element;
mod gemm;
mod gemm_ex;
mod handle;
mod vectors;

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
fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}
