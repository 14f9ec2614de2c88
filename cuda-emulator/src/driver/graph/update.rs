// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuGraphExecUpdate: copies the work of a graph's nodes to an executable graph of the same shape.

use std::sync::Arc;

use cuda_abi::CUgraphExecUpdateResultInfo;

use super::body::{CUgraph, CUgraphNode, Graph};
use super::exec::{self, Body, CUgraphExec, ExecNode};
use super::work::Work;
use crate::driver::ffi::Out;
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};

/// CUgraphExecUpdateResult
const SUCCESS: u32 = 0;
const ERROR: u32 = 1;
const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;
const FUNCTION_CHANGED: u32 = 4;
const NOT_SUPPORTED: u32 = 6;

/// The reason, and the node of the graph.
type Refusal = (u32, CUgraphNode);

/// Returns the nodes in the order of their creation.
fn by_age(body: &Body) -> Vec<&ExecNode> {
    let mut nodes: Vec<_> = body.nodes.iter().collect();
    nodes.sort_by_key(|node| node.source.0);
    nodes
}

/// Returns the positions of a node's dependencies among its siblings.
fn waits(node: &ExecNode, siblings: &[&ExecNode]) -> Vec<Option<usize>> {
    let place = |handle: &CUgraphNode| siblings.binary_search_by_key(&handle.0, |node| node.source.0).ok();
    let mut places: Vec<_> = node.dependencies.iter().map(place).collect();
    places.sort_unstable();
    places
}

/// Returns the old body with the new nodes' work.
pub(super) fn merge(old: &Body, new: &Body) -> Result<Body, Refusal> {
    let (before, after) = (by_age(old), by_age(new));
    if before.len() != after.len() {
        // The node without a counterpart.
        let extra = after.get(before.len()).map_or(Handle::NULL, |node| node.source);
        return Err((TOPOLOGY_CHANGED, extra));
    }
    let mut merged = old.clone();
    merged.references = Arc::clone(&new.references);
    for (old_node, new_node) in before.iter().zip(&after) {
        let refuse = |reason| Err((reason, new_node.source));
        if old_node.work.kind() != new_node.work.kind() {
            return refuse(NODE_TYPE_CHANGED);
        }
        if waits(old_node, &before) != waits(new_node, &after) {
            return refuse(TOPOLOGY_CHANGED);
        }
        match (&old_node.work, &new_node.work) {
            (Work::Kernel(old), Work::Kernel(new)) if old.context.handle != new.context.handle => {
                return refuse(FUNCTION_CHANGED);
            }
            (Work::Alloc(old), Work::Alloc(new)) if !Arc::ptr_eq(old, new) => return refuse(NOT_SUPPORTED),
            (Work::Free(old, _), Work::Free(new, _)) if old != new => return refuse(NOT_SUPPORTED),
            (Work::Conditional(old), Work::Conditional(new)) if !old.is_like(new) => {
                return refuse(TOPOLOGY_CHANGED);
            }
            _ => {}
        }
        let child = match (&old_node.child, &new_node.child) {
            (Some(old), Some(new)) => Some(merge(old, new)?),
            _ => None,
        };
        let pairs = old_node.branches.iter().zip(&new_node.branches);
        let branches = pairs.map(|(old, new)| merge(old, new)).collect::<Result<_, _>>()?;
        if let Some(node) = merged.nodes.iter_mut().find(|node| node.source == old_node.source) {
            (node.work, node.version) = (new_node.work.clone(), new_node.version);
            node.child = child;
            node.branches = branches;
        }
    }
    Ok(merged)
}

fn update(handle: CUgraphExec, graph: CUgraph) -> CuResult<Result<(), Refusal>> {
    let exec = exec::find(handle)?;
    let graph: Arc<Graph> = super::find(graph)?;
    let Some(new) = Body::of(&graph) else { return Ok(Err((ERROR, Handle::NULL))) };
    let mut body = exec.lock();
    if body.is_updatable() || new.is_updatable() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(merge(&body, &new).map(|merged| *body = Arc::new(merged)))
}

fn exec_update_v2(
    handle: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> CuResult<()> {
    let refusal = update(handle, graph)?.err();
    let (result, node) = refusal.unwrap_or((SUCCESS, Handle::NULL));
    let (result, error_node) = (result as i32, node.0 as u64);
    info.set_if_wanted(CUgraphExecUpdateResultInfo {
        result,
        error_node,
        ..CUgraphExecUpdateResultInfo::ZERO
    });
    if refusal.is_none() { Ok(()) } else { Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
}

fn exec_update(
    handle: CUgraphExec,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    result: Out<u32>,
) -> CuResult<()> {
    result.check()?;
    let refusal = update(handle, graph)?.err();
    let (reason, at) = refusal.unwrap_or((SUCCESS, Handle::NULL));
    result.set_if_wanted(reason);
    node.set_if_wanted(at);
    if refusal.is_none() { Ok(()) } else { Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) }
}

crate::driver::ffi::entries! { after_init
    cuGraphExecUpdate => exec_update(
        exec: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, result: Out<u32>);
    cuGraphExecUpdate_v2 => exec_update_v2(exec: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>);
}
