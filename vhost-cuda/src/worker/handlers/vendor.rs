// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's libraries; [`crate::worker::vendor`] does the work.

use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;
use crate::worker::vendor;

/// Loads the host's library.
pub fn vendor_open(cx: &mut CallContext<'_>, library: u32, major: u32, digest: u64) -> CuResult<()> {
    cx.session.vendor.open(library, major, digest)
}

/// Calls a function of a library.
pub fn vendor_call(cx: &mut CallContext<'_>, library: u32, function: u32) -> CuResult<()> {
    vendor::call(cx, library, function)
}
