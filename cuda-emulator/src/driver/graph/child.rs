// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child graph nodes.

use std::sync::Arc;

use cuda_abi::CUDA_CHILD_GRAPH_NODE_PARAMS;

use super::body::{self, CUgraph, CUgraphNode, Graph};
use super::edit_api::{add, plain};
use super::exec::{self, Body, CUgraphExec};
use super::work::Work;
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};

/// CUgraphChildGraphNodeOwnership
const CLONE: u32 = 0;
const MOVE: u32 = 1;

/// Returns the child of node parameters.
pub(super) fn child_of(params: &CUDA_CHILD_GRAPH_NODE_PARAMS) -> CuResult<Work> {
    child(CUgraph::new(params.graph as usize), params.ownership)
}

fn child(graph: CUgraph, ownership: u32) -> CuResult<Work> {
    let graph = body::find(graph)?;
    match ownership {
        CLONE => Ok(Work::Child(graph.copy()?)),
        MOVE if !graph.is_child() => Ok(Work::Child(graph)),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The graph of a child node.
fn graph_in(node: CUgraphNode) -> CuResult<Arc<Graph>> {
    match body::work_of(node)? {
        Work::Child(graph) => Ok(graph),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn add_child_node(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> CuResult<()> {
    add(out, graph, nodes, plain(), count, self::child(child, CLONE)?)
}

fn get_graph(node: CUgraphNode, out: Out<CUgraph>) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(graph_in(node)?.publish());
    Ok(())
}

/// Replaces the graph by another one of the same shape.
pub(super) fn exec_set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let exec = exec::find(exec)?;
    let new = Body::of(&*body::find(child)?).ok_or(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)?;
    let mut body = exec.lock();
    let node = Arc::make_mut(&mut body).find(node).ok_or(invalid)?;
    let old = node.child.as_ref().ok_or(invalid)?;
    let merged = super::update::merge(old, &new);
    node.child = Some(merged.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)?);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuGraphAddChildGraphNode => add_child_node(
        out: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, child: CUgraph);
    cuGraphChildGraphNodeGetGraph => get_graph(node: CUgraphNode, out: Out<CUgraph>);
    cuGraphExecChildGraphNodeSetParams => exec_set_child(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
}
