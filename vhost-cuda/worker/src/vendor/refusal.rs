// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reasons of a failed call of a library's function.

use cuda_library_rows::block::BadSize;

use crate::gpu::CudaError;

/// The reason for not calling a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The call is malformed, or the worker has failed.
    Cuda(CudaError),
    /// The library's own status.
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
