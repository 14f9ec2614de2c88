// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel nodes. The program identifies a kernel by its stub, the driver by a function of the current context.

use core::ffi::{c_uint, c_void};

use crate::abi::driver::CUDA_KERNEL_NODE_PARAMS;
use crate::abi::shared::cudaKernelNodeParams;
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
        parameters.check()?;
        state::context()?;
        let mut answer = CUDA_KERNEL_NODE_PARAMS::ZERO;
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

/// Needs a context.
pub fn to_driver(p: &cudaKernelNodeParams) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let stub = p.function as *const c_void;
    if stub.is_null() {
        return Err(cudaErrorInvalidDeviceFunction);
    }
    let v1 = cudaKernelNodeParams { function: module::function_for_node(stub)? as u64, ..*p };
    Ok(CUDA_KERNEL_NODE_PARAMS { v1, kernel: 0, context: state::current_context()? as u64 })
}

fn from_driver(p: &CUDA_KERNEL_NODE_PARAMS) -> cudaKernelNodeParams {
    let handle = if p.v1.function == 0 { p.kernel } else { p.v1.function } as *const c_void;
    cudaKernelNodeParams { function: module::stub_of(handle).unwrap_or(handle) as u64, ..p.v1 }
}
