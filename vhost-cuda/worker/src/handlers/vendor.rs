// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries, which [`crate::vendor`] loads. [`call`] checks a block of arguments against the function's row, and
//! builds the answers.

mod call;

pub use call::captured::added;

use cuda_library_rows::MAX_FUNCTIONS;
use virtio_cuda_protocol::cuda::MAX_VARIABLE_BYTES;

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError};

/// The maximum length of the digests of a library's rows, in bytes.
const MAX_DIGEST_BYTES: u64 = MAX_FUNCTIONS as u64 * 8;

/// Loads the host's library, and tells which functions mean the same on both sides.
pub fn vendor_load(cx: &mut CallContext<'_>, library: u32, major: u32) -> CuResult<()> {
    if cx.bulk_in.bytes() > MAX_DIGEST_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let same = cx.session.vendor.load(library, major, &cx.bulk_in.contents()?)?;
    cx.bulk_out.put(&same)
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
