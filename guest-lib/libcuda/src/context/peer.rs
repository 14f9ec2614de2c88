// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Access of one device to the memory of another.

use cuda_abi::CUDA_LAUNCH_PARAMS;
use virtio_cuda_client::protocol::{ContextId, LAUNCH_COOPERATIVE, LaunchShape};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::In;
use crate::launch::launch;

/// `CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_*`: both flags say which synchronisation the launch may omit.
const LAUNCH_FLAGS: u32 = 3;

/// Returns whether the peer is on another device than the current context.
fn is_elsewhere(api: Api, peer: u64) -> Result<bool, CudaError> {
    let context = api.context()?.0;
    Ok(api.driver.contexts.device_of(context)? != api.driver.contexts.device_of(peer)?)
}

entry_points! {
    /// Launches on one device with all blocks resident at once. Several devices are not supported, which the attribute
    /// `COOPERATIVE_MULTI_DEVICE_LAUNCH` reports.
    call cuLaunchCooperativeKernelMultiDevice(api, launchParamsList: In<CUDA_LAUNCH_PARAMS>, numDevices: u32, flags: u32) {
        if numDevices == 0 || numDevices as i32 > api.driver.devices.count() || flags & !LAUNCH_FLAGS != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if numDevices > 1 {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let CUDA_LAUNCH_PARAMS { function, grid, block, shared_bytes, stream, params, .. } = launchParamsList.get()?;
        // SAFETY: the program promises for `kernelParams` the same as for a parameter of that name.
        let parameters = unsafe { In::at_address(params) };
        let shape = LaunchShape { grid, block, shared_bytes, flags: LAUNCH_COOPERATIVE, ..Default::default() };
        launch(api, function, stream, shape, parameters, None)
    }

    /// Lets the current context access memory of another device's context.
    call cuCtxEnablePeerAccess(api, peerContext: u64, Flags: u32) {
        if Flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if !is_elsewhere(api, peerContext)? {
            return Err(CudaError::PEER_ACCESS_UNSUPPORTED);
        }
        calls::cuCtxEnablePeerAccess(&mut api.call(), ContextId(peerContext), Flags)
    }

    /// Ends the access that cuCtxEnablePeerAccess allowed.
    call cuCtxDisablePeerAccess(api, peerContext: u64) {
        if !is_elsewhere(api, peerContext)? {
            return Err(CudaError::PEER_ACCESS_NOT_ENABLED);
        }
        calls::cuCtxDisablePeerAccess(&mut api.call(), ContextId(peerContext))
    }
}
