// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that change single nodes of executable graphs.

use cuda_abi::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};

use cuda_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUgraphNodeParams,
};

use super::body::{CUgraph, CUgraphNode};
use super::child::exec_set_child;
use super::exec::{self, CUgraphExec};
use super::kernel_api::{kernel_of, kernel_of_v1};
use super::node_api::{batch_of, copy_of, fill_of, host_of, record_of, wait_of, work_of_params};
use super::params;
use super::work::Work;
use crate::driver::context::CUcontext;
use crate::driver::event::CUevent;
use crate::driver::ffi::{In, InOut};
use crate::driver::result::{CUresult, CuResult};

/// The node is checked before its parameters.
pub(super) fn set(
    exec: CUgraphExec,
    node: CUgraphNode,
    kind: u32,
    work: impl FnOnce() -> CuResult<Work>,
) -> CuResult<()> {
    let exec = exec::find(exec)?;
    if exec.kind_of(node)? != kind {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    exec.set_work(node, work()?)
}

fn set_kernel_v1(
    exec: CUgraphExec,
    node: CUgraphNode,
    given: In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> CuResult<()> {
    set(exec, node, params::KERNEL, || kernel_of_v1(&given.get()?))
}

fn set_kernel(exec: CUgraphExec, node: CUgraphNode, given: In<CUDA_KERNEL_NODE_PARAMS>) -> CuResult<()> {
    set(exec, node, params::KERNEL, || kernel_of(&given.get()?))
}

fn set_memcpy(
    exec: CUgraphExec,
    node: CUgraphNode,
    given: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> CuResult<()> {
    set(exec, node, params::MEMCPY, || one_row(exec, node, copy_of(&given.get()?, context)?))
}

/// "CUDA_ERROR_INVALID_VALUE if … either the original or new memory operands are multidimensional" (manual).
fn one_row(exec: CUgraphExec, node: CUgraphNode, work: Work) -> CuResult<Work> {
    let is_box =
        |work: &Work| matches!(work, Work::Copy(copy) if copy.params.height > 1 || copy.params.depth > 1);
    if is_box(&work) || is_box(&exec::find(exec)?.work_of(node)?) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(work)
}

fn set_memset(
    exec: CUgraphExec,
    node: CUgraphNode,
    given: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> CuResult<()> {
    set(exec, node, params::MEMSET, || fill_of(&given.get()?, context))
}

fn set_host(exec: CUgraphExec, node: CUgraphNode, given: In<CUDA_HOST_NODE_PARAMS>) -> CuResult<()> {
    set(exec, node, params::HOST, || host_of(&given.get()?))
}

fn set_record(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CuResult<()> {
    set(exec, node, params::EVENT_RECORD, || record_of(event))
}

fn set_wait(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CuResult<()> {
    set(exec, node, params::WAIT_EVENT, || wait_of(event))
}

fn set_batch(exec: CUgraphExec, node: CUgraphNode, given: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> CuResult<()> {
    set(exec, node, params::BATCH_MEM_OP, || batch_of(&given.get()?))
}

fn set_any(exec: CUgraphExec, node: CUgraphNode, place: InOut<CUgraphNodeParams>) -> CuResult<()> {
    match place.get()?.kind {
        params::GRAPH => {
            let child = params::member::<CUDA_CHILD_GRAPH_NODE_PARAMS>(place).get()?;
            let child = CUgraph::new(child.graph as usize);
            exec_set_child(exec, node, child)
        }
        params::MEM_ALLOC | params::MEM_FREE | params::CONDITIONAL => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        kind => set(exec, node, kind, || one_row(exec, node, work_of_params(place)?)),
    }
}

crate::driver::ffi::entries! { after_init
    cuGraphExecKernelNodeSetParams => set_kernel_v1(
        exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>);
    cuGraphExecKernelNodeSetParams_v2 => set_kernel(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>);
    cuGraphExecMemcpyNodeSetParams => set_memcpy(
        exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_MEMCPY3D>, context: CUcontext);
    cuGraphExecMemsetNodeSetParams => set_memset(
        exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>, context: CUcontext);
    cuGraphExecHostNodeSetParams => set_host(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>);
    cuGraphExecEventRecordNodeSetEvent => set_record(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent => set_wait(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphExecBatchMemOpNodeSetParams => set_batch(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>);
    cuGraphExecNodeSetParams => set_any(exec: CUgraphExec, node: CUgraphNode, params: InOut<CUgraphNodeParams>);
}
