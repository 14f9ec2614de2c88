// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes that signal or wait for external semaphores. No such semaphore exists here, but a node may have an empty
//! list.

use cuda_abi::CUDA_EXT_SEM_NODE_PARAMS;

use super::body::{self, CUgraph, CUgraphNode};
use super::edit_api::{add, plain};
use super::exec::CUgraphExec;
use super::exec_set_api;
use super::params::{SEMAPHORES_SIGNAL, SEMAPHORES_WAIT};
use super::work::Work;
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn work_of(params: In<CUDA_EXT_SEM_NODE_PARAMS>, kind: u32) -> CuResult<Work> {
    if params.get()?.count > 0 { Err(INVALID) } else { Ok(Work::Semaphores(kind)) }
}

fn add_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_EXT_SEM_NODE_PARAMS>,
    kind: u32,
) -> CuResult<()> {
    body::find(graph)?;
    add(out, graph, nodes, plain(), count, work_of(params, kind)?)
}

fn get(node: CUgraphNode, params: Out<CUDA_EXT_SEM_NODE_PARAMS>, kind: u32) -> CuResult<()> {
    params.check()?;
    body::check_kind(node, kind)?;
    params.set_if_wanted(CUDA_EXT_SEM_NODE_PARAMS::ZERO);
    Ok(())
}

fn set(node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>, kind: u32) -> CuResult<()> {
    body::check_kind(node, kind)?;
    body::set_work(node, work_of(params, kind)?)
}

fn set_exec(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_EXT_SEM_NODE_PARAMS>,
    kind: u32,
) -> CuResult<()> {
    exec_set_api::set(exec, node, kind, || work_of(params, kind))
}

fn add_signal(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_EXT_SEM_NODE_PARAMS>,
) -> CuResult<()> {
    add_node(out, graph, nodes, count, params, SEMAPHORES_SIGNAL)
}

fn add_wait(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_EXT_SEM_NODE_PARAMS>,
) -> CuResult<()> {
    add_node(out, graph, nodes, count, params, SEMAPHORES_WAIT)
}

fn get_signal(node: CUgraphNode, params: Out<CUDA_EXT_SEM_NODE_PARAMS>) -> CuResult<()> {
    get(node, params, SEMAPHORES_SIGNAL)
}

fn get_wait(node: CUgraphNode, params: Out<CUDA_EXT_SEM_NODE_PARAMS>) -> CuResult<()> {
    get(node, params, SEMAPHORES_WAIT)
}

fn set_signal(node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>) -> CuResult<()> {
    set(node, params, SEMAPHORES_SIGNAL)
}

fn set_wait(node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>) -> CuResult<()> {
    set(node, params, SEMAPHORES_WAIT)
}

fn set_exec_signal(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_EXT_SEM_NODE_PARAMS>,
) -> CuResult<()> {
    set_exec(exec, node, params, SEMAPHORES_SIGNAL)
}

fn set_exec_wait(exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>) -> CuResult<()> {
    set_exec(exec, node, params, SEMAPHORES_WAIT)
}

crate::driver::ffi::entries! { after_init
    cuGraphAddExternalSemaphoresSignalNode => add_signal(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphAddExternalSemaphoresWaitNode => add_wait(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExternalSemaphoresSignalNodeGetParams => get_signal(node: CUgraphNode, params: Out<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExternalSemaphoresWaitNodeGetParams => get_wait(node: CUgraphNode, params: Out<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExternalSemaphoresSignalNodeSetParams => set_signal(node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExternalSemaphoresWaitNodeSetParams => set_wait(node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExecExternalSemaphoresSignalNodeSetParams => set_exec_signal(
        exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
    cuGraphExecExternalSemaphoresWaitNodeSetParams => set_exec_wait(
        exec: CUgraphExec, node: CUgraphNode, params: In<CUDA_EXT_SEM_NODE_PARAMS>);
}
