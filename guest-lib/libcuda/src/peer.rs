// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Access of one device to the memory of another.

use virtio_cuda_client::protocol::ContextId;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;

/// Whether the peer is on another device than the current context.
fn is_elsewhere(api: Api, peer: u64) -> Result<bool, CudaError> {
    let context = api.context()?.0;
    if context == peer {
        return Err(CudaError::INVALID_CONTEXT);
    }
    Ok(api.driver.contexts.device_of(context)? != api.driver.contexts.device_of(peer)?)
}

entry_points! {
    /// Lets the current context reach memory of another device's context.
    call cuCtxEnablePeerAccess(api, peerContext: u64, Flags: u32) {
        if Flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if !is_elsewhere(api, peerContext)? {
            return Err(CudaError::PEER_ACCESS_UNSUPPORTED);
        }
        calls::cuCtxEnablePeerAccess(&mut api.call(), ContextId(peerContext), Flags)
    }

    /// Ends that.
    call cuCtxDisablePeerAccess(api, peerContext: u64) {
        if !is_elsewhere(api, peerContext)? {
            return Err(CudaError::PEER_ACCESS_NOT_ENABLED);
        }
        calls::cuCtxDisablePeerAccess(&mut api.call(), ContextId(peerContext))
    }
}
