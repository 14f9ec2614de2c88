// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel nodes. The program names a kernel by its stub, the driver by a function of the current context.

use core::ffi::{c_uint, c_void};
use core::ptr;

use crate::abi::driver::CUDA_KERNEL_NODE_PARAMS;
use crate::abi::shared::{cudaKernelNodeParams, dim3};
use crate::abi::{cudaGraph_t, cudaGraphExec_t, cudaGraphNode_t, cudaLaunchAttributeValue};
use crate::error::{Result, cudaErrorInvalidDeviceFunction};
use crate::pointers::{In, Out};
use crate::{driver, module, state};

api! {
    fn cudaGraphAddKernelNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: In<cudaKernelNodeParams>,
    ) {
        state::context()?;
        let parameters = to_driver(&parameters.get()?)?;
    } => driver::cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters);

    fn cudaGraphKernelNodeGetParams(node: cudaGraphNode_t, parameters: Out<cudaKernelNodeParams>) {
        parameters.not_null()?;
        state::context()?;
        let mut answer = empty();
        // SAFETY: `answer` is a local; the program promises a live node.
        unsafe { driver::cuGraphKernelNodeGetParams_v2(node, &mut answer) }?;
        parameters.set(from_driver(&answer))
    }

    fn cudaGraphKernelNodeSetParams(node: cudaGraphNode_t, parameters: In<cudaKernelNodeParams>) {
        state::context()?;
        let parameters = to_driver(&parameters.get()?)?;
    } => driver::cuGraphKernelNodeSetParams_v2(node, &parameters);

    fn cudaGraphExecKernelNodeSetParams(
        exec: cudaGraphExec_t, node: cudaGraphNode_t, parameters: In<cudaKernelNodeParams>,
    ) {
        state::context()?;
        let parameters = to_driver(&parameters.get()?)?;
    } => driver::cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters);

    fn cudaGraphKernelNodeCopyAttributes(target: cudaGraphNode_t, source: cudaGraphNode_t) {
        state::context()?;
    } => driver::cuGraphKernelNodeCopyAttributes(target, source);

    fn cudaGraphKernelNodeGetAttribute(
        node: cudaGraphNode_t, attribute: c_uint, value: *mut cudaLaunchAttributeValue,
    ) {
        state::context()?;
    } => driver::cuGraphKernelNodeGetAttribute(node, attribute, value);

    fn cudaGraphKernelNodeSetAttribute(
        node: cudaGraphNode_t, attribute: c_uint, value: *const cudaLaunchAttributeValue,
    ) {
        state::context()?;
    } => driver::cuGraphKernelNodeSetAttribute(node, attribute, value);
}

fn empty() -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: ptr::null_mut(),
        gridDimX: 0,
        gridDimY: 0,
        gridDimZ: 0,
        blockDimX: 0,
        blockDimY: 0,
        blockDimZ: 0,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// Needs a context.
pub fn to_driver(p: &cudaKernelNodeParams) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    if p.func.is_null() {
        return Err(cudaErrorInvalidDeviceFunction);
    }
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: module::function_for_node(p.func)?,
        gridDimX: p.gridDim.x,
        gridDimY: p.gridDim.y,
        gridDimZ: p.gridDim.z,
        blockDimX: p.blockDim.x,
        blockDimY: p.blockDim.y,
        blockDimZ: p.blockDim.z,
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
        kern: ptr::null_mut(),
        ctx: state::current_context()?,
    })
}

fn from_driver(p: &CUDA_KERNEL_NODE_PARAMS) -> cudaKernelNodeParams {
    let handle: *const c_void = if p.func.is_null() { p.kern.cast() } else { p.func.cast() };
    cudaKernelNodeParams {
        func: module::stub_of(handle).unwrap_or(handle).cast_mut(),
        gridDim: dim3 { x: p.gridDimX, y: p.gridDimY, z: p.gridDimZ },
        blockDim: dim3 { x: p.blockDimX, y: p.blockDimY, z: p.blockDimZ },
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
    }
}
