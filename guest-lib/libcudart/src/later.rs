// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of CUDA 13.1 to 13.5 that need a driver of that version. With an older driver they return
//! cudaErrorCallRequiresNewerDriver, because `libcuda.so.1` lacks the driver function. The one here has some of them.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::shared::cudaMemLocation;
use crate::abi::{
    cudaDevResource, cudaGraph_t, cudaGraphExec_t, cudaGraphNode_t, cudaHostFn_t, cudaMemcpy3DBatchOp,
    cudaMemcpyAttributes, cudaStream_t,
};
use crate::function::named_kernel;
use crate::memory::address;
use crate::pointers::In;
use crate::{driver, state};

/// `cudaGraphRecaptureCallbackData`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RecaptureCallback {
    function: Option<unsafe extern "C" fn() -> c_int>,
    data: *mut c_void,
}

api! {
    fn cudaGraphGetId(graph: cudaGraph_t, id: *mut c_uint) {
        state::context()?;
    } => driver::cuGraphGetId(graph, id);

    fn cudaGraphExecGetId(exec: cudaGraphExec_t, id: *mut c_uint) {
        state::context()?;
    } => driver::cuGraphExecGetId(exec, id);

    fn cudaGraphNodeGetContainingGraph(node: cudaGraphNode_t, graph: *mut cudaGraph_t) {
        state::context()?;
    } => driver::cuGraphNodeGetContainingGraph(node, graph);

    fn cudaGraphNodeGetLocalId(node: cudaGraphNode_t, id: *mut c_uint) {
        state::context()?;
    } => driver::cuGraphNodeGetLocalId(node, id);

    fn cudaGraphNodeGetToolsId(node: cudaGraphNode_t, id: *mut u64) {
        state::context()?;
    } => driver::cuGraphNodeGetToolsId(node, id);

    fn cudaFuncGetParamCount(function: *const c_void, count: *mut usize) {
        state::context()?;
    } => driver::cuKernelGetParamCount(named_kernel(function)?, count);

    fn cudaLaunchHostFunc_v2, cudaLaunchHostFunc_v2_ptsz(
        stream: cudaStream_t, function: cudaHostFn_t, data: *mut c_void, mode: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuLaunchHostFunc_v2(stream, function, data, mode);

    fn cudaMemcpyWithAttributesAsync, cudaMemcpyWithAttributesAsync_ptsz(
        target: *mut c_void, source: *const c_void, bytes: usize, attributes: *mut cudaMemcpyAttributes,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemcpyWithAttributesAsync(address(target), address(source), bytes, attributes, stream);

    fn cudaMemcpy3DWithAttributesAsync, cudaMemcpy3DWithAttributesAsync_ptsz(
        operation: *mut cudaMemcpy3DBatchOp, flags: u64, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemcpy3DWithAttributesAsync(operation, flags, stream);

    fn cudaMemGetLocationInfo(
        memory: *mut c_void, bytes: usize, summary: usize, sampling: usize, locations: *mut cudaMemLocation,
    ) {
        state::context()?;
    } => driver::cuMemGetLocationInfo(address(memory), bytes, summary, sampling, locations);

    fn cudaStreamBeginRecaptureToGraph, cudaStreamBeginRecaptureToGraph_ptsz(
        stream: cudaStream_t, mode: c_uint, graph: cudaGraph_t, callback: In<RecaptureCallback>,
    ) per_thread stream {
        state::context()?;
        let none = RecaptureCallback { function: None, data: core::ptr::null_mut() };
        let callback = if callback.is_null() { none } else { callback.get()? };
    } => driver::cuStreamBeginRecaptureToGraph(stream, mode, graph, callback.function, callback.data);

    fn cudaStreamGetDevResource, cudaStreamGetDevResource_ptsz(
        stream: cudaStream_t, resource: *mut cudaDevResource, kind: c_uint,
    ) per_thread stream {
        state::context()?;
    } => driver::cuStreamGetDevResource(stream, resource, kind);
}
