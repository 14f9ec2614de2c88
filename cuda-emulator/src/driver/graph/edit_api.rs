// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that create graphs, and change and return their structure.

use cuda_abi::CUgraphEdgeData;

use super::body::{self, CUgraph, CUgraphNode, Graph, Node};
use super::work::Work;
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::result::{CUresult, CuResult};

fn graph_create(out: Out<CUgraph>, flags: u32) -> CuResult<()> {
    out.check()?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(Graph::new().publish());
    Ok(())
}

fn graph_destroy(graph: CUgraph) -> CuResult<()> {
    body::destroy(graph)
}

fn graph_clone(out: Out<CUgraph>, graph: CUgraph) -> CuResult<()> {
    out.check()?;
    let graph = body::find(graph)?;
    if graph.is_updatable() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    out.set_if_wanted(graph.copy()?.publish());
    Ok(())
}

fn find_in_clone(out: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) -> CuResult<()> {
    out.check()?;
    let clone = body::find(clone)?;
    let nodes = clone.lock();
    let found = nodes.iter().find(|(_, node)| node.original == Some(original));
    out.set_if_wanted(CUgraphNode::new(*found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.0));
    Ok(())
}

fn destroy_node(node: CUgraphNode) -> CuResult<()> {
    body::destroy_node(node)
}

fn get_type(node: CUgraphNode, kind: Out<u32>) -> CuResult<()> {
    kind.check()?;
    kind.set_if_wanted(body::work_of(node)?.kind());
    Ok(())
}

/// Adds a node with `work` after the given ones.
pub(super) fn add(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    work: Work,
) -> CuResult<()> {
    out.check()?;
    let graph = body::find(graph)?;
    let dependencies = graph.read_dependencies(nodes, edges, count)?;
    out.set_if_wanted(graph.add(Node::new(work, dependencies))?);
    Ok(())
}

/// Returns no edge data.
pub(super) fn plain() -> In<CUgraphEdgeData> {
    In::NULL
}

/// Returns a list as these calls do: only its length without a buffer, and NULL in the rest of the buffer.
fn show(list: &[CUgraphNode], out: Out<CUgraphNode>, count: InOut<usize>) -> CuResult<()> {
    let room = count.get()?;
    if out.is_null() {
        count.set_if_wanted(list.len());
        return Ok(());
    }
    // SAFETY: the caller says in `count` how many elements the array has.
    unsafe { fill(list, out, room) };
    count.set_if_wanted(list.len().min(room));
    Ok(())
}

/// Writes as much of a list as there is room for, and NULL in the rest.
///
/// # Safety
/// `out` must be NULL, or an array of `room` elements that is valid for writing until the call returns.
unsafe fn fill(list: &[CUgraphNode], out: Out<CUgraphNode>, room: usize) {
    for index in 0..room {
        // SAFETY: less than `room`, as many elements as the array has by this function's contract.
        unsafe { out.element(index) }.set_if_wanted(list.get(index).copied().unwrap_or(CUgraphNode::NULL));
    }
}

fn get_nodes(graph: CUgraph, out: Out<CUgraphNode>, count: InOut<usize>) -> CuResult<()> {
    let nodes: Vec<_> = body::find(graph)?.lock().keys().map(|handle| CUgraphNode::new(*handle)).collect();
    show(&nodes, out, count)
}

fn get_root_nodes(graph: CUgraph, out: Out<CUgraphNode>, count: InOut<usize>) -> CuResult<()> {
    let graph = body::find(graph)?;
    let nodes = graph.lock();
    let roots = nodes.iter().filter(|(_, node)| node.dependencies.is_empty());
    let roots: Vec<_> = roots.map(|(handle, _)| CUgraphNode::new(*handle)).collect();
    drop(nodes);
    show(&roots, out, count)
}

/// An edge with its ends.
type Ends = (CUgraphNode, CUgraphNode, CUgraphEdgeData);

fn show_edges(
    list: &[Ends],
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: InOut<usize>,
) -> CuResult<()> {
    if edges.is_null()
        && !(from.is_null() && to.is_null())
        && list.iter().any(|end| end.2 != CUgraphEdgeData::default())
    {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    let room = count.get()?;
    if room == 0 && !(from.is_null() && to.is_null() && edges.is_null()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    for (index, (_, _, edge)) in list.iter().enumerate().take(room) {
        // SAFETY: less than `room`, as many elements as the caller says in `count` that each array has.
        unsafe { edges.element(index) }.set_if_wanted(*edge);
    }
    let sources: Vec<_> = list.iter().map(|ends| ends.0).collect();
    let targets: Vec<_> = list.iter().map(|ends| ends.1).collect();
    if from.is_null() {
        return show(&targets, to, count);
    }
    if !to.is_null() {
        // SAFETY: the caller says in `count` that each array has `room` elements.
        unsafe { fill(&targets, to, room) };
    }
    show(&sources, from, count)
}

fn all_edges(graph: &Graph) -> Vec<Ends> {
    let nodes = graph.lock();
    let of_node = |(to, node): (&usize, &Node)| {
        let to = CUgraphNode::new(*to);
        node.dependencies.iter().map(move |(from, edge)| (*from, to, *edge)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

fn get_edges_v2(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: InOut<usize>,
) -> CuResult<()> {
    if from.is_null() != to.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    show_edges(&all_edges(&*body::find(graph)?), from, to, edges, count)
}

fn get_edges(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: InOut<usize>,
) -> CuResult<()> {
    get_edges_v2(graph, from, to, Out::NULL, count)
}

fn get_dependencies_v2(
    node: CUgraphNode,
    out: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: InOut<usize>,
) -> CuResult<()> {
    let mut ends = all_edges(&*body::graph_of(node)?);
    ends.retain(|(_, to, _)| *to == node);
    show_edges(&ends, out, Out::NULL, edges, count)
}

fn get_dependencies(node: CUgraphNode, out: Out<CUgraphNode>, count: InOut<usize>) -> CuResult<()> {
    get_dependencies_v2(node, out, Out::NULL, count)
}

fn get_dependents_v2(
    node: CUgraphNode,
    out: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: InOut<usize>,
) -> CuResult<()> {
    let mut ends = all_edges(&*body::graph_of(node)?);
    ends.retain(|(from, _, _)| *from == node);
    show_edges(&ends, Out::NULL, out, edges, count)
}

fn get_dependents(node: CUgraphNode, out: Out<CUgraphNode>, count: InOut<usize>) -> CuResult<()> {
    get_dependents_v2(node, out, Out::NULL, count)
}

fn add_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let graph = body::find(graph)?;
    let mut nodes = graph.lock();
    // On a copy, so that an invalid edge changes nothing.
    let mut changed = nodes.clone();
    for index in 0..count {
        let (from, to) = (from.at(index)?, to.at(index)?);
        let edge =
            if edges.is_null() { CUgraphEdgeData::default() } else { body::check_edge(edges.at(index)?)? };
        if from == to || !changed.contains_key(&from.0) {
            return Err(invalid);
        }
        let target = changed.get_mut(&to.0).ok_or(invalid)?;
        if target.dependencies.iter().any(|(known, _)| *known == from) {
            return Err(invalid);
        }
        target.dependencies.push((from, edge));
    }
    *nodes = changed;
    Ok(())
}

fn add_dependencies(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> CuResult<()> {
    add_dependencies_v2(graph, from, to, plain(), count)
}

fn remove_dependencies_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> CuResult<()> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let graph = body::find(graph)?;
    let mut nodes = graph.lock();
    let allocates = nodes.values().any(|node| matches!(node.work, Work::Alloc(_) | Work::Free(..)));
    let mut changed = nodes.clone();
    for index in 0..count {
        let (from, to) = (from.at(index)?, to.at(index)?);
        let edge = if edges.is_null() { CUgraphEdgeData::default() } else { edges.at(index)? };
        nodes.get(&from.0).ok_or(invalid)?;
        let target = changed.get_mut(&to.0).ok_or(invalid)?;
        if allocates {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let place = target.dependencies.iter().position(|known| *known == (from, edge)).ok_or(invalid)?;
        target.dependencies.remove(place);
    }
    *nodes = changed;
    Ok(())
}

fn remove_dependencies(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> CuResult<()> {
    remove_dependencies_v2(graph, from, to, plain(), count)
}

crate::driver::ffi::entries! { after_init
    cuGraphCreate => graph_create(out: Out<CUgraph>, flags: u32);
    cuGraphDestroy => graph_destroy(graph: CUgraph);
    cuGraphClone => graph_clone(out: Out<CUgraph>, graph: CUgraph);
    cuGraphNodeFindInClone => find_in_clone(out: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph);
    cuGraphDestroyNode => destroy_node(node: CUgraphNode);
    cuGraphNodeGetType => get_type(node: CUgraphNode, kind: Out<u32>);
    cuGraphGetNodes => get_nodes(graph: CUgraph, out: Out<CUgraphNode>, count: InOut<usize>);
    cuGraphGetRootNodes => get_root_nodes(graph: CUgraph, out: Out<CUgraphNode>, count: InOut<usize>);
    cuGraphGetEdges => get_edges(graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: InOut<usize>);
    cuGraphGetEdges_v2 => get_edges_v2(
        graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, edges: Out<CUgraphEdgeData>, count: InOut<usize>);
    cuGraphNodeGetDependencies => get_dependencies(node: CUgraphNode, out: Out<CUgraphNode>, count: InOut<usize>);
    cuGraphNodeGetDependencies_v2 => get_dependencies_v2(
        node: CUgraphNode, out: Out<CUgraphNode>, edges: Out<CUgraphEdgeData>, count: InOut<usize>);
    cuGraphNodeGetDependentNodes => get_dependents(node: CUgraphNode, out: Out<CUgraphNode>, count: InOut<usize>);
    cuGraphNodeGetDependentNodes_v2 => get_dependents_v2(
        node: CUgraphNode, out: Out<CUgraphNode>, edges: Out<CUgraphEdgeData>, count: InOut<usize>);
    cuGraphAddDependencies => add_dependencies(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize);
    cuGraphAddDependencies_v2 => add_dependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize);
    cuGraphRemoveDependencies => remove_dependencies(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize);
    cuGraphRemoveDependencies_v2 => remove_dependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize);
}
