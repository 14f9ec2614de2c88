// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies between contexts. The synchronous ones come after all earlier work of both contexts and of the current one,
//! and before all later work (CUDA driver API, `cuMemcpyPeer`).

use virtio_cuda_client::protocol::{ContextId, DevicePtr};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::memory::copy::plan::Timing;
use crate::memory::place::Place;

/// Checks the contexts of a copy; 0 stands for the current one.
pub fn check(api: Api, contexts: [u64; 2]) -> Result<(), CudaError> {
    let known = |&context: &u64| api.driver.contexts.device_of(context).map(|_| ());
    contexts.iter().filter(|&&context| context != 0).try_for_each(known)
}

/// Returns when a synchronous copy between these contexts runs.
pub fn timing(api: Api, contexts: [u64; 2]) -> Result<Timing, CudaError> {
    check(api, contexts)?;
    let current = api.context()?;
    let contexts = contexts.map(|context| if context == 0 { current } else { ContextId(context) });
    Ok(if contexts == [current; 2] { Timing::Wait } else { Timing::Between(contexts) })
}

/// Waits for the work of these contexts and of the current one.
pub fn wait(api: Api, [dst, src]: [ContextId; 2]) -> Result<(), CudaError> {
    for context in [dst, src, api.context()?] {
        calls::cuCtxSynchronize(&mut api.call_in(context))?;
    }
    Ok(())
}

/// Copies contiguous memory.
pub fn run(
    api: Api,
    dst: Place,
    src: Place,
    bytes: usize,
    contexts: [ContextId; 2],
) -> Result<(), CudaError> {
    let (Place::Device(to), Place::Device(from)) = (dst, src) else {
        wait(api, contexts)?;
        return api.copy_at_once(dst, src, bytes, Timing::Wait);
    };
    let posted = api.may_post(api.default_stream().0)
        && [to, from].iter().all(|&address| api.owns(address, bytes as u64));
    let mut call = api.in_context()?.posted_if(posted);
    let [dst_context, src_context] = contexts;
    calls::cuMemcpyPeer(&mut call, DevicePtr(to), dst_context, DevicePtr(from), src_context, bytes as u64)
}
