// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs: their structure.

pub mod capture;
pub mod exec;
pub mod node;

use virtio_cuda_protocol::cuda::{
    GraphEdge, GraphId, GraphNodeId, NODE_LINK_BYTES, NODE_MEMCPY, NodeLink, Reader, Wire, Writer,
};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, Edges, Links};
use crate::worker::graphs::Lease;
use crate::worker::handlers::graph::node::replace_function;
use crate::worker::objects::lifecycle::Destroy;
use crate::worker::pools;
use crate::worker::state::SessionState;

/// Most bytes of edges or parameters in one call.
const MAX_BULK_BYTES: u64 = 16 << 20;
/// Room for the parameters of any kind of node, without what follows them.
const MAX_STRUCT_BYTES: usize = 512;

/// The bulk input, if it is not absurdly long.
pub fn bulk(cx: &CallContext<'_>) -> CuResult<Vec<u8>> {
    if cx.bulk_in.bytes() > MAX_BULK_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(cx.bulk_in.contents()?.into_owned().0)
}

/// Takes a value from bulk input.
pub fn take<T: Wire>(reader: &mut Reader<'_>) -> CuResult<T> {
    T::take(reader).map_err(|_| CudaError::INVALID_VALUE)
}

/// A value as bulk output.
pub fn encode<T: Wire>(value: &T) -> CuResult<Vec<u8>> {
    let mut room = [0; MAX_STRUCT_BYTES];
    let mut writer = Writer::new(&mut room);
    value.put(&mut writer).map_err(|_| CudaError::INVALID_VALUE)?;
    let used = writer.used();
    Ok(room[..used].to_vec())
}

/// Puts as many values as there is room for.
pub fn put_all<T: Wire>(cx: &mut CallContext<'_>, values: impl IntoIterator<Item = T>) -> CuResult<u32> {
    let room = cx.bulk_out.room() as usize;
    let (mut bytes, mut count) = (Vec::new(), 0u32);
    for value in values {
        let one = encode(&value)?;
        count += 1;
        if bytes.len() + one.len() <= room {
            bytes.extend_from_slice(&one);
        }
    }
    cx.bulk_out.put(&bytes)?;
    Ok(count)
}

/// Takes `count` links and looks their nodes up.
pub fn links(cx: &CallContext<'_>, reader: &mut Reader<'_>, count: usize) -> CuResult<Links> {
    if count > reader.rest().len() / NODE_LINK_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut links = Links::default();
    for _ in 0..count {
        let link: NodeLink = take(reader)?;
        links.nodes.push(cx.node(link.node)?);
        links.edges.push(link.data);
    }
    Ok(links)
}

/// Links as the guest knows them; all nodes are in `graph`.
pub fn put_links(cx: &mut CallContext<'_>, graph: GraphId, links: &Links) -> CuResult<u32> {
    let graphs = &cx.session.graphs;
    let named = links.nodes.iter().zip(&links.edges);
    put_all(cx, named.map(|(&node, &data)| NodeLink { node: graphs.name_node(node, graph), data }))
}

/// Gives memory back that only graphs could allocate, once none of them is left.
pub fn end_leases(session: &SessionState, leases: Vec<Lease>) {
    for base in leases.into_iter().filter_map(Lease::into_inner) {
        let device = session.allocations().find(base).map(|range| range.device);
        session.allocations().remove(base);
        if let Some(device) = device {
            pools::graphs_shrunk(session, device);
        }
    }
}

/// Copies a graph. What is a copy to the guest and a graph to the driver stays so.
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

/// Nodes of a graph.
pub fn graph_nodes(cx: &mut CallContext<'_>, graph: GraphId, roots: u32) -> CuResult<(u32,)> {
    let nodes = cx.gpu().graph_nodes(cx.graph(graph)?, roots != 0)?;
    let graphs = &cx.session.graphs;
    Ok((put_all(cx, nodes.into_iter().map(|node| graphs.name_node(node, graph)))?,))
}

/// Edges of a graph.
pub fn cuGraphGetEdges_v2(cx: &mut CallContext<'_>, graph: GraphId) -> CuResult<(u32,)> {
    let (from, to) = cx.gpu().graph_edges(cx.graph(graph)?)?;
    let graphs = &cx.session.graphs;
    let edges = from.into_iter().zip(to.nodes.into_iter().zip(to.edges)).map(|(from, (to, data))| {
        GraphEdge { from: graphs.name_node(from, graph), to: graphs.name_node(to, graph), data }
    });
    Ok((put_all(cx, edges)?,))
}

/// The edges of the bulk input.
pub fn edges(cx: &CallContext<'_>) -> CuResult<Edges> {
    let bytes = bulk(cx)?;
    let mut reader = Reader::new(&bytes);
    let mut edges = Edges::default();
    while !reader.rest().is_empty() {
        let edge: GraphEdge = take(&mut reader)?;
        edges.from.push(cx.node(edge.from)?);
        edges.to.nodes.push(cx.node(edge.to)?);
        edges.to.edges.push(edge.data);
    }
    Ok(edges)
}

/// What a node depends on, or what depends on it.
pub fn graph_node_links(cx: &mut CallContext<'_>, node: GraphNodeId, dependents: u32) -> CuResult<(u32,)> {
    let raw = cx.node(node)?;
    let graph = cx.session.graphs.graph_name_of(node)?;
    let links = cx.gpu().node_links(raw, dependents != 0)?;
    Ok((put_links(cx, graph, &links)?,))
}

/// The kind of a node.
pub fn cuGraphNodeGetType(cx: &mut CallContext<'_>, node: GraphNodeId) -> CuResult<(u32,)> {
    let raw = cx.node(node)?;
    if cx.session.graphs.disguised_copy(node).is_some() {
        return Ok((NODE_MEMCPY,));
    }
    cx.gpu().cuGraphNodeGetType(raw)
}

/// The copy of a node in a copied graph.
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

/// The graph in a node.
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
        // The driver may refuse: nodes that allocate cannot be removed.
        let graph = cx.session.graphs.graph_of(cx.held(), self)?;
        cx.gpu().cuGraphDestroyNode(raw)?;
        replace_function(cx, graph, self, None);
        let (_, leases) = cx.session.graphs.remove_node(self)?;
        end_leases(cx.session, leases);
        Ok(())
    }
}
