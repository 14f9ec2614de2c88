// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's host functions and stream callbacks; [`callback_thread`] runs them.

use cuda_abi::CUhostFn;
use virtio_cuda_client::protocol::CallbackId;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::HostPtr;
use crate::state::callbacks::Callback;
use crate::stream::callback_thread;

/// Queues a function of the program with the call `row`, without waiting for the answer if `post`. A function whose posted call
/// fails, because the context is broken, stays registered and never runs.
fn queue(
    api: Api,
    stream: u64,
    callback: Callback,
    post: bool,
    row: impl FnOnce(&mut virtio_cuda_client::Call<'_>, CallbackId) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let mut call = api.in_context_of(stream)?.posted_if(post);
    let callbacks = &api.driver.callbacks;
    let id = callback_thread::register(api, callback)?;
    row(&mut call, id).inspect_err(|_| callbacks.remove(id))
}

entry_points! {
    /// Queues a function of the program in stream order.
    call cuLaunchHostFunc / cuLaunchHostFunc_ptsz (api, hStream: u64, func: CUhostFn, userData: HostPtr) {
        let callback = Callback::Host(func.ok_or(CudaError::INVALID_VALUE)?, userData.address());
        queue(api, hStream, callback, api.may_post(hStream), |call, id| calls::cuLaunchHostFunc(call, api.stream(hStream)?, id))
    }

    /// Queues a function of the program in stream order, which also runs after an error.
    call cuStreamAddCallback / cuStreamAddCallback_ptsz (api, hStream: u64,
        callback: Option<extern "C" fn(u64, i32, usize)>, userData: HostPtr, flags: u32) {
        let function = callback.ok_or(CudaError::INVALID_VALUE)?;
        if flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let callback = Callback::Stream(function, hStream, userData.address());
        queue(api, hStream, callback, false, |call, id| calls::cuStreamAddCallback(call, api.stream(hStream)?, id))
    }
}
