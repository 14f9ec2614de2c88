// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reasons for which a call of a library's function fails.

use cuda_library_rows::block::BadSize;

use super::invoke::call_with_integers;
use super::load::Loaded;
use crate::worker::gpu::CudaError;

/// The reason for not calling a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The call is malformed, or ours has failed.
    Cuda(CudaError),
    /// The library's own status says it.
    Status(i32),
}

impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<BadSize> for Refusal {
    fn from(_: BadSize) -> Self {
        Self::Cuda(CudaError::INVALID_VALUE)
    }
}

/// Calls the function of that name, which returns a status.
///
/// Errors: the library's status, `CUDA_ERROR_NOT_FOUND` if it does not have the function.
///
/// # Safety
///
/// It is a C function of these integers and addresses, and they are good for what it does with them.
pub unsafe fn call_by_name(loaded: &Loaded, name: &str, integers: &[u64]) -> Result<(), Refusal> {
    let function = loaded.named(name).ok_or(CudaError::NOT_FOUND)?;
    // SAFETY: by this function's contract.
    match unsafe { call_with_integers(function, integers) } {
        Some(status) if status == loaded.rows.statuses.success => Ok(()),
        Some(status) => Err(Refusal::Status(status)),
        None => Err(Refusal::Cuda(CudaError::INVALID_VALUE)),
    }
}
