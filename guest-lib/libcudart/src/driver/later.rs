// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts and resources for execution contexts, and functions that drivers after 13.0 have.

use core::ffi::{c_int, c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::shared::cudaMemLocation;
use crate::abi::{
    CUcontext, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphNode,
    CUgreenCtx, CUkernel, CUstream, cudaDevResource, cudaDevSmResourceGroupParams, cudaHostFn_t,
    cudaMemcpy3DBatchOp, cudaMemcpyAttributes,
};

driver! {
    fn cuCtxPushCurrent_v2(ctx: CUcontext);
    fn cuCtxPopCurrent_v2(pctx: *mut CUcontext);
    fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext);
    fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64);
    fn cuCtxSynchronize_v2(ctx: CUcontext);
    fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent);
    fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent);
    fn cuDeviceGetDevResource(device: CUdevice, resource: *mut cudaDevResource, type_: c_uint);
    fn cuCtxGetDevResource(hCtx: CUcontext, resource: *mut cudaDevResource, type_: c_uint);
    fn cuDevSmResourceSplitByCount(
        result: *mut cudaDevResource, nbGroups: *mut c_uint, input: *const cudaDevResource,
        remaining: *mut cudaDevResource, flags: c_uint, minCount: c_uint,
    );
    fn cuDevResourceGenerateDesc(phDesc: *mut CUdevResourceDesc, resources: *mut cudaDevResource, nbResources: c_uint);
    fn cuGreenCtxCreate(phCtx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint);
    fn cuGreenCtxDestroy(hCtx: CUgreenCtx);
    fn cuGreenCtxStreamCreate(phStream: *mut CUstream, greenCtx: CUgreenCtx, flags: c_uint, priority: c_int);
    fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: CUgreenCtx);

    // Drivers after 13.0.
    fn cuDevSmResourceSplit(
        result: *mut cudaDevResource, nbGroups: c_uint, input: *const cudaDevResource,
        remainder: *mut cudaDevResource, flags: c_uint, groupParams: *mut cudaDevSmResourceGroupParams,
    );
    fn cuStreamGetDevResource(hStream: CUstream, resource: *mut cudaDevResource, type_: c_uint);
    fn cuGraphGetId(hGraph: CUgraph, graphId: *mut c_uint);
    fn cuGraphExecGetId(hGraphExec: CUgraphExec, graphId: *mut c_uint);
    fn cuGraphNodeGetContainingGraph(hNode: CUgraphNode, phGraph: *mut CUgraph);
    fn cuGraphNodeGetLocalId(hNode: CUgraphNode, nodeId: *mut c_uint);
    fn cuGraphNodeGetToolsId(hNode: CUgraphNode, toolsNodeId: *mut u64);
    fn cuKernelGetParamCount(kernel: CUkernel, paramCount: *mut usize);
    fn cuLaunchHostFunc_v2(hStream: CUstream, func: cudaHostFn_t, userData: *mut c_void, syncMode: c_uint);
    fn cuMemcpyWithAttributesAsync(
        dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut cudaMemcpyAttributes, hStream: CUstream,
    );
    fn cuMemcpy3DWithAttributesAsync(op: *mut cudaMemcpy3DBatchOp, flags: u64, hStream: CUstream);
    fn cuMemGetLocationInfo(
        ptr: CUdeviceptr, size: usize, summaryGranularity: usize, samplingGranularity: usize,
        location_out: *mut cudaMemLocation,
    );
    fn cuStreamBeginRecaptureToGraph(
        hStream: CUstream, mode: c_uint, hGraph: CUgraph,
        callbackFunc: Option<unsafe extern "C" fn() -> c_int>, userData: *mut c_void,
    );
}
