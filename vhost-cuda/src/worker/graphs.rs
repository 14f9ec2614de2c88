// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's graphs, their nodes and executable graphs, by name.
//!
//! The driver makes nodes on its own (captures, clones, graphs in nodes), so names are found for its handles
//! too: the first time that a node is to be told to the guest it gets one here.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::cuda::{
    FIRST_HANDLE, FIRST_WORKER_HANDLE, GraphExecId, GraphId, GraphNodeId, MemcpyNode,
};

use super::gpu::{CUgraph, CUgraphExec, CUgraphNode, CUuserObject, CuResult, CudaError};

/// Most objects of one kind.
const MAX_OBJECTS: usize = 1 << 18;
/// Distance of names that are minted here.
const STEP: u64 = 16;

/// What an allocating node reserved: its base address, shared by everything that can allocate it.
pub type Lease = std::sync::Arc<u64>;

#[derive(Debug)]
struct Graph {
    raw: usize,
    /// The node that it lies in.
    parent: Option<u64>,
    leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    raw: usize,
    graph: u64,
    /// To the guest it is this copy, in the driver a graph of a copy and the callbacks around it.
    copy: Option<MemcpyNode>,
    /// The user object that stands for its function of the program; 0 for none.
    function: usize,
}

#[derive(Debug)]
struct Exec {
    raw: usize,
    leases: Vec<Lease>,
}

#[derive(Debug, Default)]
struct Tables {
    graphs: HashMap<u64, Graph>,
    graph_names: HashMap<usize, u64>,
    nodes: HashMap<u64, Node>,
    node_names: HashMap<usize, u64>,
    execs: HashMap<u64, Exec>,
    /// Graph of each stream that captures.
    captures: HashMap<usize, u64>,
    /// Handles of conditional nodes.
    handles: HashSet<u64>,
    minted: u64,
}

/// All graphs of a session.
#[derive(Debug, Default)]
pub struct Graphs(Mutex<Tables>);

/// Checks a name that the guest minted.
fn check(name: u64, taken: bool, count: usize) -> CuResult<()> {
    if !(FIRST_HANDLE..FIRST_WORKER_HANDLE).contains(&name) || taken {
        return Err(CudaError::INVALID_VALUE);
    }
    if count >= MAX_OBJECTS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
}

impl Tables {
    fn mint(&mut self) -> u64 {
        self.minted += STEP;
        FIRST_WORKER_HANDLE + self.minted
    }

    fn add_graph(&mut self, name: u64, raw: CUgraph, parent: Option<u64>) {
        self.graph_names.insert(raw as usize, name);
        self.graphs.insert(name, Graph { raw: raw as usize, parent, leases: Vec::new() });
    }

    fn add_node(&mut self, name: u64, raw: CUgraphNode, graph: u64, copy: Option<MemcpyNode>) {
        self.node_names.insert(raw as usize, name);
        self.nodes.insert(name, Node { raw: raw as usize, graph, copy, function: 0 });
    }

    fn remove_node(&mut self, name: u64) -> Vec<Lease> {
        if let Some(node) = self.nodes.remove(&name) {
            self.node_names.remove(&node.raw);
        }
        let inside: Vec<u64> = self
            .graphs
            .iter()
            .filter(|(_, graph)| graph.parent == Some(name))
            .map(|(&name, _)| name)
            .collect();
        inside.into_iter().flat_map(|graph| self.remove_graph(graph)).collect()
    }

    /// Forgets a graph with all that is in it.
    fn remove_graph(&mut self, name: u64) -> Vec<Lease> {
        let Some(graph) = self.graphs.remove(&name) else { return Vec::new() };
        self.graph_names.remove(&graph.raw);
        let mut leases = graph.leases;
        let nodes: Vec<u64> =
            self.nodes.iter().filter(|(_, node)| node.graph == name).map(|(&name, _)| name).collect();
        for node in nodes {
            leases.extend(self.remove_node(node));
        }
        leases
    }
}

impl Graphs {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, which the driver says of handles of graphs.
    pub fn graph(&self, id: GraphId) -> CuResult<CUgraph> {
        let tables = self.tables();
        tables.graphs.get(&id.0).map(|graph| graph.raw as CUgraph).ok_or(CudaError::INVALID_VALUE)
    }

    /// The driver's node.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn node(&self, id: GraphNodeId) -> CuResult<CUgraphNode> {
        let tables = self.tables();
        tables.nodes.get(&id.0).map(|node| node.raw as CUgraphNode).ok_or(CudaError::INVALID_VALUE)
    }

    /// The driver's executable graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn exec(&self, id: GraphExecId) -> CuResult<CUgraphExec> {
        let tables = self.tables();
        tables.execs.get(&id.0).map(|exec| exec.raw as CUgraphExec).ok_or(CudaError::INVALID_VALUE)
    }

    /// Notes the user object that stands for a node's function, if there is one; answers the earlier one.
    pub fn set_function(&self, id: GraphNodeId, object: Option<CUuserObject>) -> Option<CUuserObject> {
        let mut tables = self.tables();
        let object = object.map_or(0, |object| object as usize);
        let earlier = std::mem::replace(&mut tables.nodes.get_mut(&id.0)?.function, object);
        (earlier != 0).then_some(earlier as CUuserObject)
    }

    /// The copy that a node is to the guest, if the driver knows it as something else.
    pub fn disguised_copy(&self, id: GraphNodeId) -> Option<MemcpyNode> {
        self.tables().nodes.get(&id.0).and_then(|node| node.copy)
    }

    /// The graph that a node is in.
    pub fn graph_of(&self, id: GraphNodeId) -> CuResult<CUgraph> {
        let tables = self.tables();
        let node = tables.nodes.get(&id.0).ok_or(CudaError::INVALID_VALUE)?;
        tables.graphs.get(&node.graph).map(|graph| graph.raw as CUgraph).ok_or(CudaError::INVALID_VALUE)
    }

    /// Whether a graph may be named `id`.
    pub fn check_graph_name(&self, id: GraphId) -> CuResult<()> {
        let tables = self.tables();
        check(id.0, tables.graphs.contains_key(&id.0), tables.graphs.len())
    }

    /// Whether a node may be named `id`.
    pub fn check_node_name(&self, id: GraphNodeId) -> CuResult<()> {
        let tables = self.tables();
        check(id.0, tables.nodes.contains_key(&id.0), tables.nodes.len())
    }

    /// Whether an executable graph may be named `id`.
    pub fn check_exec_name(&self, id: GraphExecId) -> CuResult<()> {
        let tables = self.tables();
        check(id.0, tables.execs.contains_key(&id.0), tables.execs.len())
    }

    /// Names a graph as the guest wants; the name has been checked.
    pub fn add_graph(&self, id: GraphId, raw: CUgraph, parent: Option<GraphNodeId>) {
        self.tables().add_graph(id.0, raw, parent.map(|node| node.0));
    }

    /// Names a node as the guest wants; the name has been checked.
    pub fn add_node(&self, id: GraphNodeId, raw: CUgraphNode, graph: GraphId, copy: Option<MemcpyNode>) {
        self.tables().add_node(id.0, raw, graph.0, copy);
    }

    /// Names a copy that the driver knows as a graph in a node.
    pub fn add_disguised(&self, raw: CUgraphNode, graph: CUgraph, copy: MemcpyNode) {
        let mut tables = self.tables();
        let graph = match tables.graph_names.get(&(graph as usize)) {
            Some(&graph) => graph,
            None => {
                let name = tables.mint();
                tables.add_graph(name, graph, None);
                name
            }
        };
        let name = tables.mint();
        tables.add_node(name, raw, graph, Some(copy));
    }

    /// Names an executable graph, which shares the memory of the graph that it was made from.
    pub fn add_exec(&self, id: GraphExecId, raw: CUgraphExec, graph: GraphId) {
        let mut tables = self.tables();
        let leases = tables.graphs.get(&graph.0).map(|graph| graph.leases.clone()).unwrap_or_default();
        tables.execs.insert(id.0, Exec { raw: raw as usize, leases });
    }

    /// Names an executable graph that device code launches as the driver does: the program gives that value to kernels.
    ///
    /// Such names are never the guest's: those lie below.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` for a handle that the guest could have minted, `CUDA_ERROR_OUT_OF_MEMORY` for
    /// too many.
    pub fn add_device_exec(&self, raw: CUgraphExec, graph: GraphId) -> CuResult<GraphExecId> {
        let name = raw as u64;
        let mut tables = self.tables();
        if name < FIRST_WORKER_HANDLE || tables.execs.contains_key(&name) {
            return Err(CudaError::NOT_SUPPORTED);
        }
        if tables.execs.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let leases = tables.graphs.get(&graph.0).map(|graph| graph.leases.clone()).unwrap_or_default();
        tables.execs.insert(name, Exec { raw: raw as usize, leases });
        Ok(GraphExecId(name))
    }

    /// Has a graph own memory that a node of it allocates.
    pub fn add_lease(&self, id: GraphId, lease: Lease) {
        if let Some(graph) = self.tables().graphs.get_mut(&id.0) {
            graph.leases.push(lease);
        }
    }

    /// Has `to` share the memory that nodes of `from` allocate.
    pub fn share_leases(&self, from: GraphId, to: GraphId) {
        let mut tables = self.tables();
        let leases = tables.graphs.get(&from.0).map(|graph| graph.leases.clone()).unwrap_or_default();
        if let Some(graph) = tables.graphs.get_mut(&to.0) {
            graph.leases.extend(leases);
        }
    }

    /// The name of a graph of the driver's, minted if it has none.
    pub fn name_graph(&self, raw: CUgraph, parent: Option<GraphNodeId>) -> GraphId {
        let mut tables = self.tables();
        if let Some(&name) = tables.graph_names.get(&(raw as usize)) {
            return GraphId(name);
        }
        let name = tables.mint();
        tables.add_graph(name, raw, parent.map(|node| node.0));
        GraphId(name)
    }

    /// The name of a node of the driver's in `graph`, minted if it has none; 0 for none.
    pub fn name_node(&self, raw: CUgraphNode, graph: GraphId) -> GraphNodeId {
        if raw.is_null() {
            return GraphNodeId(0);
        }
        let mut tables = self.tables();
        if let Some(&name) = tables.node_names.get(&(raw as usize)) {
            return GraphNodeId(name);
        }
        let name = tables.mint();
        tables.add_node(name, raw, graph.0, None);
        GraphNodeId(name)
    }

    /// The name of the graph that a node is in.
    pub fn graph_name_of(&self, id: GraphNodeId) -> CuResult<GraphId> {
        self.tables().nodes.get(&id.0).map(|node| GraphId(node.graph)).ok_or(CudaError::INVALID_VALUE)
    }

    /// Nodes of a graph that are copies to the guest and something else to the driver.
    pub fn disguised_in(&self, id: GraphId) -> Vec<(CUgraphNode, MemcpyNode)> {
        let tables = self.tables();
        let in_graph = tables.nodes.values().filter(|node| node.graph == id.0);
        in_graph.filter_map(|node| Some((node.raw as CUgraphNode, node.copy?))).collect()
    }

    /// Takes out a graph that the guest may destroy: one that lies in no node.
    pub fn remove_graph(&self, id: GraphId) -> CuResult<(CUgraph, Vec<Lease>)> {
        let mut tables = self.tables();
        let graph = tables.graphs.get(&id.0).filter(|graph| graph.parent.is_none());
        let raw = graph.map(|graph| graph.raw as CUgraph).ok_or(CudaError::INVALID_VALUE)?;
        Ok((raw, tables.remove_graph(id.0)))
    }

    /// Takes out a node.
    pub fn remove_node(&self, id: GraphNodeId) -> CuResult<(CUgraphNode, Vec<Lease>)> {
        let mut tables = self.tables();
        let raw = tables.nodes.get(&id.0).map(|node| node.raw as CUgraphNode);
        Ok((raw.ok_or(CudaError::INVALID_VALUE)?, tables.remove_node(id.0)))
    }

    /// Takes out an executable graph.
    pub fn remove_exec(&self, id: GraphExecId) -> CuResult<(CUgraphExec, Vec<Lease>)> {
        let exec = self.tables().execs.remove(&id.0).ok_or(CudaError::INVALID_VALUE)?;
        Ok((exec.raw as CUgraphExec, exec.leases))
    }

    /// Notes a handle by which device code steers a conditional node.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn add_conditional_handle(&self, handle: u64) -> CuResult<()> {
        let mut tables = self.tables();
        if tables.handles.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        tables.handles.insert(handle);
        Ok(())
    }

    /// Whether the driver gave out a handle for a conditional node.
    pub fn is_conditional_handle(&self, handle: u64) -> bool {
        self.tables().handles.contains(&handle)
    }

    /// Notes the graph that a stream captures: it dies if the capture does.
    pub fn capture_begun(&self, stream: usize, graph: GraphId) {
        self.tables().captures.insert(stream, graph.0);
    }

    /// A capture is over; with an error the driver has destroyed its graph.
    pub fn capture_ended(&self, stream: usize, failed: bool) {
        let mut tables = self.tables();
        if let (Some(graph), true) = (tables.captures.remove(&stream), failed) {
            tables.remove_graph(graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw<T>(number: usize) -> *mut T {
        std::ptr::without_provenance_mut(number)
    }

    #[test]
    fn the_guest_may_not_take_names_of_the_worker() {
        let graphs = Graphs::default();
        for bad in [0, 2, FIRST_HANDLE - 1, FIRST_WORKER_HANDLE, u64::MAX] {
            assert_eq!(graphs.check_graph_name(GraphId(bad)), Err(CudaError::INVALID_VALUE));
        }
        graphs.check_graph_name(GraphId(FIRST_HANDLE)).unwrap();
        graphs.add_graph(GraphId(FIRST_HANDLE), raw(8), None);
        assert_eq!(graphs.check_graph_name(GraphId(FIRST_HANDLE)), Err(CudaError::INVALID_VALUE));
    }

    #[test]
    fn nodes_of_the_driver_get_one_name() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        let node = graphs.name_node(raw(16), graph);
        assert_eq!(graphs.name_node(raw(16), graph), node);
        assert_ne!(graphs.name_node(raw(24), graph), node);
        assert_eq!(graphs.name_node(raw(0), graph), GraphNodeId(0));
        assert_eq!(graphs.node(node), Ok(raw(16)));
    }

    #[test]
    fn a_graph_takes_what_is_in_it_along() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        let node = graphs.name_node(raw(16), graph);
        let inner = graphs.name_graph(raw(24), Some(node));
        let leaf = graphs.name_node(raw(32), inner);
        graphs.add_lease(inner, Lease::new(0x1000));
        assert!(graphs.remove_graph(inner).is_err(), "a graph in a node dies with the node");
        let (_, leases) = graphs.remove_graph(graph).unwrap();
        assert_eq!(leases.len(), 1);
        assert!(graphs.graph(inner).is_err() && graphs.node(leaf).is_err() && graphs.node(node).is_err());
    }

    #[test]
    fn graphs_for_the_device_keep_the_name_of_the_driver() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        let address = 0x7fff_0000_1230_usize;
        let exec = graphs.add_device_exec(raw(address), graph).unwrap();
        assert_eq!((exec.0, graphs.exec(exec)), (address as u64, Ok(raw(address))));
        assert!(graphs.check_exec_name(exec).is_err(), "no name for the guest to mint");
        assert!(
            graphs.add_device_exec(raw(FIRST_HANDLE as usize), graph).is_err(),
            "a name that the guest may mint"
        );
        graphs.remove_exec(exec).unwrap();
        assert!(graphs.exec(exec).is_err());
        graphs.add_device_exec(raw(address), graph).expect("the driver may use an address again");
    }

    #[test]
    fn a_failed_capture_takes_its_graph_along() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        graphs.capture_begun(5, graph);
        graphs.capture_ended(5, true);
        assert!(graphs.graph(graph).is_err());
    }
}
