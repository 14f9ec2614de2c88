// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles of objects.

use std::sync::atomic::{AtomicU64, Ordering};

pub use cuda_abi::kinds::Kind;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{FIRST_HANDLE, HANDLE_STEP};

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(FIRST_HANDLE);

/// `CU_EVENT_DISABLE_TIMING`. Events of this library only order work.
pub const DISABLE_TIMING: u32 = 2;

/// Returns the handle for a new object. The program's handle is also the worker's id.
pub fn new_handle(kind: Kind) -> u64 {
    kind.handle(NEXT_NUMBER.fetch_add(HANDLE_STEP, Ordering::Relaxed))
}

/// Refuses handles of objects of other kinds. Unknown handles pass.
pub fn check(kind: Kind, handle: u64) -> Result<(), CudaError> {
    CudaError::check(kind.mismatch(handle).unwrap_or(0))
}

/// Returns the error of a call that gets a handle which is of no object of this kind.
pub fn refusal(kind: Kind, handle: u64) -> CudaError {
    CudaError::check(kind.refusal(handle)).err().unwrap_or(CudaError::INVALID_HANDLE)
}
