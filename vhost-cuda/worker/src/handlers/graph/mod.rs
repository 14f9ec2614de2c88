// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structure of graphs.

pub mod capture;
pub mod exec;
pub mod node;
pub mod own_functions;

use virtio_cuda_protocol::cuda::{GraphEdge, GraphId, GraphNodeId, NodeLink};

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError, Links};
use crate::graphs::Lease;
use crate::handlers::graph::node::replace_function;
use crate::objects::lifecycle::Destroy;
use crate::pools;
use crate::state::SessionState;
use crate::words::contents::put_all;

/// Writes edges with the guest's node names. All nodes are in `graph`.
pub fn put_links(cx: &mut CallContext<'_>, graph: GraphId, links: &Links) -> CuResult<u32> {
    let graphs = &cx.session.graphs;
    let named = links.nodes.iter().zip(&links.edges);
    put_all(cx, named.map(|(&node, &data)| NodeLink { node: graphs.name_node(node, graph), data }))
}

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
    for (node, copy) in graphs.disguised_in(original) {
        let (twin,) = cx.gpu().cuGraphNodeFindInClone(node, raw)?;
        graphs.add_disguised(twin, raw, copy);
    }
    Ok(())
}

/// Returns the nodes of a graph.
pub fn graph_nodes(cx: &mut CallContext<'_>, graph: GraphId, roots: u32) -> CuResult<(u32,)> {
    let nodes = cx.gpu().graph_nodes(cx.graph(graph)?, roots != 0)?;
    let graphs = &cx.session.graphs;
    Ok((put_all(cx, nodes.into_iter().map(|node| graphs.name_node(node, graph)))?,))
}

/// Returns the edges of a graph.
pub fn cuGraphGetEdges_v2(cx: &mut CallContext<'_>, graph: GraphId) -> CuResult<(u32,)> {
    let (from, to) = cx.gpu().graph_edges(cx.graph(graph)?)?;
    let graphs = &cx.session.graphs;
    let edges = from.into_iter().zip(to.nodes.into_iter().zip(to.edges)).map(|(from, (to, data))| {
        GraphEdge { from: graphs.name_node(from, graph), to: graphs.name_node(to, graph), data }
    });
    Ok((put_all(cx, edges)?,))
}

/// Returns the nodes that a node depends on, or those that depend on it.
pub fn graph_node_links(cx: &mut CallContext<'_>, node: GraphNodeId, dependents: u32) -> CuResult<(u32,)> {
    let raw = cx.node(node)?;
    let graph = cx.session.graphs.graph_name_of(node)?;
    let links = cx.gpu().node_links(raw, dependents != 0)?;
    Ok((put_links(cx, graph, &links)?,))
}

/// Returns the copy of a node in a cloned graph.
pub fn cuGraphNodeFindInClone(
    cx: &mut CallContext<'_>,
    original: GraphNodeId,
    clone: GraphId,
) -> CuResult<(GraphNodeId,)> {
    let graphs = &cx.session.graphs;
    cx.enter(&[clone], &[original]);
    let (raw,) = cx.gpu().cuGraphNodeFindInClone(cx.node(original)?, cx.graph(clone)?)?;
    Ok((graphs.name_node(raw, clone),))
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
        let (raw, leases) = cx.session.graphs.remove_graph(self)?;
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
        cx.gpu().cuGraphDestroyNode(raw)?;
        replace_function(cx, graph, self, None);
        let (_, leases) = cx.session.graphs.remove_node(self)?;
        end_leases(cx.session, leases);
        Ok(())
    }
}
