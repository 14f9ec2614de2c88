// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structure of graphs.

pub mod again;
pub mod capture;
pub mod exec;
pub mod node;
pub mod own_functions;

use virtio_cuda_protocol::cuda::{GraphId, GraphNodeId};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::gpu::{CuResult, CudaError};
use crate::handlers::graph::node::replace_function;
use crate::memory::pools;
use crate::objects::graphs::Lease;
use crate::state::SessionState;

/// Frees memory that only graph nodes could allocate, once no such graph is left.
pub fn end_leases(session: &SessionState, leases: Vec<Lease>) {
    for base in leases.into_iter().filter_map(Lease::into_inner) {
        let device = session.allocations().find(base).map(|range| range.device);
        session.allocations().remove(base);
        if let Some(device) = device {
            pools::graphs_shrunk(session, device);
        }
    }
}

/// Clones a graph. Nodes that are copies to the guest and child graphs to the driver stay so.
pub fn cuGraphClone(cx: &mut CallContext<'_>, clone: GraphId, original: GraphId) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    let _name = graphs.take_graph_name(clone)?;
    let (raw,) = cx.gpu().cuGraphClone(cx.graph(original)?)?;
    graphs.add_graph(cx.held(), clone, raw, None);
    graphs.share_leases(original, clone);
    graphs.share_user_objects(original, clone);
    graphs.set_original(clone, original);
    for (node, copy) in graphs.disguised_in(original) {
        let (twin,) = cx.gpu().cuGraphNodeFindInClone(node, raw)?;
        graphs.add_disguised(twin, raw, copy);
    }
    Ok(())
}

/// Returns the graph of a child graph node.
pub fn cuGraphChildGraphNodeGetGraph(cx: &mut CallContext<'_>, node: GraphNodeId) -> CuResult<(GraphId,)> {
    let raw = cx.node(node)?;
    if cx.session.graphs.disguised_copy(node).is_some() {
        return Err(CudaError::INVALID_VALUE);
    }
    let (graph,) = cx.gpu().cuGraphChildGraphNodeGetGraph(raw)?;
    Ok((cx.session.graphs.name_graph(graph, Some(node)),))
}

impl Destroy for GraphId {
    /// Destroys a graph.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        cx.graph(self)?;
        let Some((raw, leases)) = cx.session.graphs.remove_graph(self)? else { return Ok(()) };
        end_leases(cx.session, leases);
        cx.gpu().cuGraphDestroy(raw)
    }
}

impl Destroy for GraphNodeId {
    /// Removes a node.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let raw = cx.node(self)?;
        // The driver may refuse, because nodes that allocate cannot be removed.
        let graph = cx.session.graphs.graph_of(cx.held(), self)?;
        cx.session.graphs.check_removable(self)?;
        cx.session.graphs.node_changed(self);
        cx.gpu().cuGraphDestroyNode(raw)?;
        replace_function(cx, graph, self, None);
        let (_, leases) = cx.session.graphs.remove_node(self)?;
        end_leases(cx.session, leases);
        Ok(())
    }
}
