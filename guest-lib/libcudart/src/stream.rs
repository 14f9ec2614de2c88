// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams, callbacks, capture. `cudaStreamLegacy` (1) and `cudaStreamPerThread` (2) are passed to the driver
//! unchanged.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::shared::or_per_thread;
use crate::abi::{
    CUdevice, cudaEvent_t, cudaGraph_t, cudaGraphEdgeData, cudaGraphNode_t, cudaHostFn_t,
    cudaLaunchAttributeValue, cudaStream_t, cudaStreamCallback_t,
};
use crate::error::cudaErrorInvalidValue;
use crate::memory::address;
use crate::pointers::{Out, not_null};
use crate::{driver, state};

api! {
    fn cudaStreamCreate(stream: *mut cudaStream_t) {
        not_null(stream)?;
        state::context()?;
    } => driver::cuStreamCreate(stream, 0);

    fn cudaStreamCreateWithFlags(stream: *mut cudaStream_t, flags: c_uint) {
        not_null(stream)?;
        state::context()?;
    } => driver::cuStreamCreate(stream, flags);

    fn cudaStreamCreateWithPriority(stream: *mut cudaStream_t, flags: c_uint, priority: c_int) {
        not_null(stream)?;
        state::context()?;
    } => driver::cuStreamCreateWithPriority(stream, flags, priority);

    fn cudaStreamDestroy(stream: cudaStream_t) {
        state::context()?;
    } => driver::cuStreamDestroy_v2(stream);

    fn cudaStreamSynchronize, cudaStreamSynchronize_ptsz(stream: cudaStream_t) per_thread stream {
        state::context()?;
    } => driver::cuStreamSynchronize(stream);

    fn cudaStreamQuery, cudaStreamQuery_ptsz(stream: cudaStream_t) per_thread stream {
        state::context()?;
    } => driver::cuStreamQuery(stream);

    fn cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz(
        stream: cudaStream_t, event: cudaEvent_t, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamWaitEvent(stream, event, flags);

    fn cudaStreamAddCallback, cudaStreamAddCallback_ptsz(
        stream: cudaStream_t, callback: cudaStreamCallback_t, data: *mut c_void, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamAddCallback(stream, callback, data, flags);

    fn cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz(
        stream: cudaStream_t, function: cudaHostFn_t, data: *mut c_void,
    ) per_thread stream {
        state::context()?;
    } => driver::cuLaunchHostFunc(stream, function, data);

    fn cudaStreamGetPriority, cudaStreamGetPriority_ptsz(
        stream: cudaStream_t, priority: *mut c_int,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetPriority(stream, priority);

    fn cudaStreamGetFlags, cudaStreamGetFlags_ptsz(
        stream: cudaStream_t, flags: *mut c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetFlags(stream, flags);

    fn cudaStreamGetId, cudaStreamGetId_ptsz(stream: cudaStream_t, id: *mut u64) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetId(stream, id);

    fn cudaStreamGetDevice, cudaStreamGetDevice_ptsz(
        stream: cudaStream_t, device: Out<c_int>,
    ) per_thread stream {
        device.check()?;
        let runtime = state::context()?;
        let mut handle: CUdevice = 0;
        // SAFETY: `handle` is a local; the program promises a live stream.
        unsafe { driver::cuStreamGetDevice(stream, &mut handle) }?;
        device.set(runtime.ordinal(handle)?)
    }

    fn cudaStreamCopyAttributes(target: cudaStream_t, source: cudaStream_t) {
        state::context()?;
    } => driver::cuStreamCopyAttributes(target, source);

    fn cudaStreamCopyAttributes_ptsz(target: cudaStream_t, source: cudaStream_t) {
        state::context()?;
    } => driver::cuStreamCopyAttributes(or_per_thread(target), or_per_thread(source));

    fn cudaStreamGetAttribute, cudaStreamGetAttribute_ptsz(
        stream: cudaStream_t, attribute: c_uint, value: *mut cudaLaunchAttributeValue,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetAttribute(stream, attribute, value);

    fn cudaStreamSetAttribute, cudaStreamSetAttribute_ptsz(
        stream: cudaStream_t, attribute: c_uint, value: *const cudaLaunchAttributeValue,
    ) per_thread stream {
        state::context()?;
        // cudaLaunchAttributeIgnore
        if attribute == 0 {
            return Err(cudaErrorInvalidValue);
        }
    } => driver::cuStreamSetAttribute(stream, attribute, value);

    fn cudaStreamAttachMemAsync, cudaStreamAttachMemAsync_ptsz(
        stream: cudaStream_t, memory: *mut c_void, length: usize, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamAttachMemAsync(stream, address(memory), length, flags);

    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(
        stream: cudaStream_t, mode: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamBeginCapture_v2(stream, mode);

    fn cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz(
        stream: cudaStream_t, graph: cudaGraph_t,
        dependencies: *const cudaGraphNode_t, edges: *const cudaGraphEdgeData, count: usize, mode: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode);

    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz(
        stream: cudaStream_t, graph: *mut cudaGraph_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamEndCapture(stream, graph);

    fn cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz(
        stream: cudaStream_t, status: *mut c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamIsCapturing(stream, status);

    fn cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo_ptsz / cudaStreamGetCaptureInfo_v3_ptsz(
        stream: cudaStream_t, status: *mut c_uint, id: *mut u64, graph: *mut cudaGraph_t,
        dependencies: *mut *const cudaGraphNode_t, edges: *mut *const cudaGraphEdgeData, count: *mut usize,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);

    fn cudaStreamUpdateCaptureDependencies / cudaStreamUpdateCaptureDependencies_v2, cudaStreamUpdateCaptureDependencies_ptsz / cudaStreamUpdateCaptureDependencies_v2_ptsz(
        stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, edges: *const cudaGraphEdgeData,
        count: usize, flags: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags);

    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        state::runtime()?;
    } => driver::cuThreadExchangeStreamCaptureMode(mode);
}
