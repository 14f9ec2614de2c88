// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries. [`crate::worker::vendor`] implements them.

use virtio_cuda_protocol::cuda::MAX_VARIABLE_BYTES;

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError};
use crate::worker::vendor::call;

/// Loads the host's library.
pub fn vendor_open(cx: &mut CallContext<'_>, library: u32, major: u32, digest: u64) -> CuResult<()> {
    cx.session.vendor.open(library, major, digest)
}

/// Sets environment variables that the libraries read.
pub fn vendor_environment(cx: &mut CallContext<'_>) -> CuResult<()> {
    if cx.bulk_in.bytes() > MAX_VARIABLE_BYTES as u64 {
        return Err(CudaError::INVALID_VALUE);
    }
    cx.session.vendor.set_variables(&cx.bulk_in.contents()?)
}

/// Calls a function of a library.
pub fn vendor_call(cx: &mut CallContext<'_>, library: u32, function: u32) -> CuResult<()> {
    call::call(cx, library, function)
}
