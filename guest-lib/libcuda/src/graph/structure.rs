// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Graphs, their nodes and the edges between them.

use std::fmt::Write as _;

use virtio_cuda_client::protocol::{
    GRAPH_EDGE_BYTES, GraphEdge, GraphId, GraphNodeId, NODE_LINK_BYTES, NodeLink, Reader, Wire,
};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::answer;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Name, Out};
use crate::handles::{self, Kind, new_handle};
use crate::wire::{check_plain, edges_in, give_list, take};

/// Number of elements in the buffer for the first reply.
const USUAL_COUNT: usize = 128;

/// Fetches a list; the row returns its length.
fn fetch<T: Wire>(
    api: Api,
    element_bytes: usize,
    row: impl Fn(&mut Call<'_>) -> Result<u32, CudaError>,
) -> Result<Vec<T>, CudaError> {
    let (count, list) = answer::fetch(USUAL_COUNT * element_bytes, |room| {
        let count = row(&mut api.call().output(room))?;
        Ok((count, u64::from(count) * element_bytes as u64))
    })?;
    let mut reader = Reader::new(&list);
    (0..count).map(|_| take(&mut reader)).collect()
}

/// Returns the nodes of a graph.
fn nodes(api: Api, graph: u64, roots: bool) -> Result<Vec<u64>, CudaError> {
    fetch(api, 8, |call| calls::graph_nodes(call, GraphId(graph), u32::from(roots)))
}

/// Checks that the graph exists.
pub fn check(api: Api, graph: u64) -> Result<(), CudaError> {
    calls::graph_nodes(&mut api.call(), GraphId(graph), 0).map(|_| ())
}

fn edges(api: Api, graph: u64) -> Result<Vec<GraphEdge>, CudaError> {
    fetch(api, GRAPH_EDGE_BYTES, |call| calls::cuGraphGetEdges_v2(call, GraphId(graph)))
}

fn give_nodes(
    api: Api,
    graph: u64,
    roots: bool,
    nodes_out: Out<u64>,
    count: Out<usize>,
) -> Result<(), CudaError> {
    count.check()?;
    let retraced = &api.driver.retraced;
    if nodes_out.is_null()
        && let Some(nodes) = retraced.nodes(graph, roots)
    {
        return count.set(nodes);
    }
    let list = nodes(api, graph, roots)?;
    if nodes_out.is_null() {
        retraced.set_nodes(graph, roots, list.len());
    } else {
        // The program can change the nodes.
        retraced.forget(graph);
    }
    if !nodes_out.is_null() && count.get()? == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    give_list(&list, !nodes_out.is_null(), count, |index, node| nodes_out.set_at(index, node))
}

fn give_edges(
    api: Api,
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    data: Option<Out<[u8; 8]>>,
    count: Out<usize>,
) -> Result<(), CudaError> {
    count.check()?;
    let list = edges(api, graph)?;
    // The program can change the nodes.
    api.driver.retraced.forget(graph);
    if from.is_null() != to.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    let data = data.filter(|data| !data.is_null());
    check_room(count, !from.is_null() || data.is_some())?;
    if data.is_none() {
        list.iter().try_for_each(|edge| check_plain(&edge.data))?;
    }
    give_list(&list, !from.is_null(), count, |index, edge| {
        from.set_at(index, edge.from.0)?;
        to.set_at(index, edge.to.0)?;
        data.map_or(Ok(()), |data| data.set_at(index, edge.data))
    })
}

fn give_links(
    api: Api,
    node: u64,
    dependents: bool,
    nodes_out: Out<u64>,
    data: Option<Out<[u8; 8]>>,
    count: Out<usize>,
) -> Result<(), CudaError> {
    count.check()?;
    let row = |call: &mut Call<'_>| calls::graph_node_links(call, GraphNodeId(node), u32::from(dependents));
    let list: Vec<NodeLink> = fetch(api, NODE_LINK_BYTES, row)?;
    let data = data.filter(|data| !data.is_null());
    check_room(count, !nodes_out.is_null() || data.is_some())?;
    if data.is_none() {
        list.iter().try_for_each(|link| check_plain(&link.data))?;
    }
    give_list(&list, !nodes_out.is_null(), count, |index, link| {
        nodes_out.set_at(index, link.node.0)?;
        data.map_or(Ok(()), |data| data.set_at(index, link.data))
    })
}

/// Refuses arrays for edges without room.
fn check_room(count: Out<usize>, wanted: bool) -> Result<(), CudaError> {
    if wanted && count.get()? == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

/// Both ends of edges, their data, and their number.
struct EdgeArrays {
    from: In<u64>,
    to: In<u64>,
    data: Option<In<[u8; 8]>>,
    count: usize,
}

/// Adds or removes edges.
fn change(api: Api, graph: u64, edges: EdgeArrays, add: bool) -> Result<(), CudaError> {
    let EdgeArrays { from, to, data, count } = edges;
    if count == 0 {
        return check(api, graph);
    }
    let bytes = edges_in(from, to, data, count)?;
    api.driver.retraced.forget(graph);
    let mut call = api.call().input(&bytes);
    if add {
        calls::cuGraphAddDependencies_v2(&mut call, GraphId(graph))
    } else {
        calls::cuGraphRemoveDependencies_v2(&mut call, GraphId(graph))
    }
}

/// Returns a graph in the DOT language.
fn dot(api: Api, graph: u64) -> Result<String, CudaError> {
    const KINDS: [&str; 14] = [
        "KERNEL",
        "MEMCPY",
        "MEMSET",
        "HOST",
        "GRAPH",
        "EMPTY",
        "EVENT_WAIT",
        "EVENT_RECORD",
        "EXT_SEMAS_SIGNAL",
        "EXT_SEMAS_WAIT",
        "MEM_ALLOC",
        "MEM_FREE",
        "BATCH_MEM_OP",
        "CONDITIONAL",
    ];
    let mut text = format!(
        "digraph dot {{\nsubgraph cluster_1 {{\nlabel=\"graph_{graph:#x}\" graph[style=\"dashed\"];\n"
    );
    for node in nodes(api, graph, false)? {
        let kind = calls::cuGraphNodeGetType(&mut api.call(), GraphNodeId(node))? as usize;
        let kind = KINDS.get(kind).unwrap_or(&"UNKNOWN");
        let _ = writeln!(text, "\"node_{node:#x}\"[shape=\"rectangle\" label=\"{kind}\\n{node:#x}\"];");
    }
    for edge in edges(api, graph)? {
        let _ = writeln!(text, "\"node_{:#x}\" -> \"node_{:#x}\";", edge.from.0, edge.to.0);
    }
    text.push_str("}\n}\n");
    Ok(text)
}

entry_points! {
    /// Creates an empty graph.
    call cuGraphCreate(api, phGraph: Out<u64>, flags: u32) {
        phGraph.check()?;
        let handle = new_handle(Kind::Graph);
        let mut call = api.call().posted_if(flags == 0 && api.may_post_graph());
        calls::cuGraphCreate(&mut call, GraphId(handle), flags)?;
        api.driver.retraced.made(handle);
        phGraph.set(handle)
    }

    /// Destroys a graph.
    call cuGraphDestroy(api, hGraph: u64) {
        handles::check(Kind::Graph, hGraph)?;
        // Nothing holds a graph that only captures have changed.
        let mut call = api.call().posted_if(api.driver.retraced.forget(hGraph) && api.may_post_graph());
        calls::cuGraphDestroy(&mut call, GraphId(hGraph))?;
        api.driver.memory.remove_variables(hGraph);
        Ok(())
    }

    /// Copies a graph.
    call cuGraphClone(api, phGraphClone: Out<u64>, originalGraph: u64) {
        phGraphClone.check()?;
        let handle = new_handle(Kind::Graph);
        calls::cuGraphClone(&mut api.call(), GraphId(handle), GraphId(originalGraph))?;
        phGraphClone.set(handle)
    }

    /// Returns the nodes of a graph.
    call cuGraphGetNodes(api, hGraph: u64, nodes: Out<u64>, numNodes: Out<usize>) {
        give_nodes(api, hGraph, false, nodes, numNodes)
    }

    /// Returns the nodes of a graph that have no dependencies.
    call cuGraphGetRootNodes(api, hGraph: u64, rootNodes: Out<u64>, numRootNodes: Out<usize>) {
        give_nodes(api, hGraph, true, rootNodes, numRootNodes)
    }

    /// Returns the edges of a graph, if none has edge data.
    call cuGraphGetEdges(api, hGraph: u64, from: Out<u64>, to: Out<u64>, numEdges: Out<usize>) {
        give_edges(api, hGraph, from, to, None, numEdges)
    }

    /// Returns the edges of a graph.
    call cuGraphGetEdges_v2(api, hGraph: u64, from: Out<u64>, to: Out<u64>, edgeData: Out<[u8; 8]>, numEdges: Out<usize>) {
        give_edges(api, hGraph, from, to, Some(edgeData), numEdges)
    }

    /// Adds edges without data.
    call cuGraphAddDependencies(api, hGraph: u64, from: In<u64>, to: In<u64>, numDependencies: usize) {
        let edges = EdgeArrays { from, to, data: None, count: numDependencies };
        change(api, hGraph, edges, true)
    }

    /// Adds edges.
    call cuGraphAddDependencies_v2(api, hGraph: u64, from: In<u64>, to: In<u64>, edgeData: In<[u8; 8]>, numDependencies: usize) {
        let edges = EdgeArrays { from, to, data: Some(edgeData), count: numDependencies };
        change(api, hGraph, edges, true)
    }

    /// Removes edges without data.
    call cuGraphRemoveDependencies(api, hGraph: u64, from: In<u64>, to: In<u64>, numDependencies: usize) {
        let edges = EdgeArrays { from, to, data: None, count: numDependencies };
        change(api, hGraph, edges, false)
    }

    /// Removes edges.
    call cuGraphRemoveDependencies_v2(api, hGraph: u64, from: In<u64>, to: In<u64>, edgeData: In<[u8; 8]>, numDependencies: usize) {
        let edges = EdgeArrays { from, to, data: Some(edgeData), count: numDependencies };
        change(api, hGraph, edges, false)
    }

    /// Returns the nodes on which a node depends. Refuses edges with data.
    call cuGraphNodeGetDependencies(api, hNode: u64, dependencies: Out<u64>, numDependencies: Out<usize>) {
        give_links(api, hNode, false, dependencies, None, numDependencies)
    }

    /// Returns the nodes on which a node depends.
    call cuGraphNodeGetDependencies_v2(api, hNode: u64, dependencies: Out<u64>, edgeData: Out<[u8; 8]>, numDependencies: Out<usize>) {
        give_links(api, hNode, false, dependencies, Some(edgeData), numDependencies)
    }

    /// Returns the nodes that depend on a node. Refuses edges with data.
    call cuGraphNodeGetDependentNodes(api, hNode: u64, dependentNodes: Out<u64>, numDependentNodes: Out<usize>) {
        give_links(api, hNode, true, dependentNodes, None, numDependentNodes)
    }

    /// Returns the nodes that depend on a node.
    call cuGraphNodeGetDependentNodes_v2(api, hNode: u64, dependentNodes: Out<u64>, edgeData: Out<[u8; 8]>, numDependentNodes: Out<usize>) {
        give_links(api, hNode, true, dependentNodes, Some(edgeData), numDependentNodes)
    }

    /// Removes a node.
    call cuGraphDestroyNode(api, hNode: u64) {
        handles::check(Kind::Node, hNode)?;
        calls::cuGraphDestroyNode(&mut api.call(), GraphNodeId(hNode))?;
        api.driver.kept.forget(hNode);
        Ok(())
    }

    /// Returns the node of a cloned graph that corresponds to a node of the original.
    call cuGraphNodeFindInClone(api, phNode: Out<u64>, hOriginalNode: u64, hClonedGraph: u64) {
        phNode.check()?;
        let (original, clone) = (GraphNodeId(hOriginalNode), GraphId(hClonedGraph));
        phNode.set(calls::cuGraphNodeFindInClone(&mut api.call(), original, clone)?.0)
    }

    /// Writes nodes and edges to a file in the DOT language. Details of the nodes are left out.
    call cuGraphDebugDotPrint(api, hGraph: u64, path: Name, _flags: u32) {
        let path = std::path::PathBuf::from(path.get()?.into_string().map_err(|_| CudaError::INVALID_VALUE)?);
        let text = dot(api, hGraph)?;
        std::fs::write(&path, text).map_err(|error| {
            log::debug!("{}: {error}", path.display());
            CudaError::OPERATING_SYSTEM
        })
    }

    /// Creates a handle with which device code controls a conditional node.
    call cuGraphConditionalHandleCreate(api, pHandle_out: Out<u64>, hGraph: u64, ctx: u64, defaultLaunchValue: u32, flags: u32) {
        pHandle_out.check()?;
        if ctx == 0 {
            // NVIDIA's driver checks the graph first.
            nodes(api, hGraph, false)?;
            return Err(CudaError::INVALID_CONTEXT);
        }
        let mut call = api.call_in(virtio_cuda_client::protocol::ContextId(ctx));
        pHandle_out.set(calls::cuGraphConditionalHandleCreate(&mut call, GraphId(hGraph), defaultLaunchValue, flags)?)
    }
}
