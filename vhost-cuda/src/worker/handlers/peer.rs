// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access of one device to the memory of another.

use virtio_cuda_protocol::cuda::ContextId;

use crate::worker::call::CallContext;
use crate::worker::gpu::CuResult;

/// Lets the current context reach memory of `peer`.
pub fn cuCtxEnablePeerAccess(cx: &mut CallContext<'_>, peer: ContextId, flags: u32) -> CuResult<()> {
    cx.gpu().cuCtxEnablePeerAccess(cx.resolve(peer)?, flags)
}

/// Ends that.
pub fn cuCtxDisablePeerAccess(cx: &mut CallContext<'_>, peer: ContextId) -> CuResult<()> {
    cx.gpu().cuCtxDisablePeerAccess(cx.resolve(peer)?)
}
