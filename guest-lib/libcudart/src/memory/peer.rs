// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies between devices, each identified by its primary context.

use core::ffi::{c_int, c_void};

use super::copy::Order;
use super::copy3d::{check, is_empty, to_driver};
use crate::abi::cudaStream_t;
use crate::abi::shared::{cudaMemcpy3DParms, cudaMemcpy3DPeerParms, cudaMemcpyDeviceToDevice};
use crate::error::Result;
use crate::memory::address;
use crate::pointers::In;
use crate::{driver, state};

api! {
    fn cudaMemcpyPeer(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, size: usize,
    ) {
        let runtime = state::context()?;
        let to = runtime.device(dst_device)?.primary_context()?;
        let from = runtime.device(src_device)?.primary_context()?;
    } => driver::cuMemcpyPeer(address(dst), to, address(src), from, size);

    fn cudaMemcpyPeerAsync(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, size: usize,
        stream: cudaStream_t,
    ) {
        let runtime = state::context()?;
        let to = runtime.device(dst_device)?.primary_context()?;
        let from = runtime.device(src_device)?.primary_context()?;
    } => driver::cuMemcpyPeerAsync(address(dst), to, address(src), from, size, stream);

    fn cudaMemcpy3DPeer, cudaMemcpy3DPeer_ptds(parameters: In<cudaMemcpy3DPeerParms>) on stream {} => copy(parameters, Order::Blocking(stream));

    fn cudaMemcpy3DPeerAsync, cudaMemcpy3DPeerAsync_ptsz(
        parameters: In<cudaMemcpy3DPeerParms>, stream: cudaStream_t,
    ) per_thread stream {} => copy(parameters, Order::Queued(stream));
}

/// # Safety
/// If not null, `parameters` describes memory and live arrays that hold the box until the copy is done.
unsafe fn copy(parameters: In<cudaMemcpy3DPeerParms>, order: Order) -> Result {
    let p = parameters.get()?;
    let runtime = state::context()?;
    let src = runtime.device(p.srcDevice)?.primary_context()?;
    let dst = runtime.device(p.dstDevice)?.primary_context()?;
    if is_empty(&p.extent) {
        return state::whole_context().map(drop);
    }
    let on_device = cudaMemcpy3DParms {
        srcArray: p.srcArray,
        srcPos: p.srcPos,
        srcPtr: p.srcPtr,
        dstArray: p.dstArray,
        dstPos: p.dstPos,
        dstPtr: p.dstPtr,
        extent: p.extent,
        kind: cudaMemcpyDeviceToDevice,
    };
    check(&on_device)?;
    let mut parameters = to_driver(&on_device)?;
    parameters.src.context = address(src);
    parameters.dst.context = address(dst);
    match order.queue() {
        // SAFETY: the memory is valid by this function's contract.
        None => unsafe { driver::cuMemcpy3DPeer(&parameters) },
        // The call need not wait for a copy that does not involve host memory.
        // SAFETY: the memory is valid by this function's contract.
        Some(stream) => unsafe { driver::cuMemcpy3DPeerAsync(&parameters, stream) },
    }
}
