// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's graphs, their nodes and executable graphs, by name.
//!
//! The driver makes nodes on its own (captures, clones, graphs in nodes), so names are found for its handles
//! too: the first time that a node is to be told to the guest it gets one here.
//!
//! CUDA does not synchronise graphs. So the handle of a graph or node is answered to a call that holds the lock of its
//! *family* only: a graph with the graphs that lie in its nodes. A call gets that lock with the first handle, and keeps it
//! until it is done; one that uses several families names them first ([`Graphs::enter`]). Destroying a graph or node takes
//! the lock, too. That wait is short: calls on graphs only compute. Executable graphs are objects with a lock of their own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{
    FIRST_HANDLE, FIRST_WORKER_HANDLE, GraphExecId, GraphId, GraphNodeId, MemcpyNode, UserObjectId,
};

use super::{Exclusive, Held, MAX_OBJECTS, Object, exclusive};
use crate::worker::gpu::{CUgraph, CUgraphExec, CUgraphNode, CUuserObject, CuResult, CudaError};

/// In what a capture is remembered by: the default stream of a thread.
pub const OF_THREAD: usize = 1 << 63;
/// Distance of names that are minted here.
const STEP: u64 = 16;

/// The reservation of an allocating node: its base address, shared by everything that can allocate it.
pub type Lease = Arc<u64>;

#[derive(Debug)]
struct Graph {
    raw: usize,
    /// The node that it lies in.
    parent: Option<u64>,
    /// The lock of the graph that contains it, directly or not.
    family: Exclusive,
    leases: Vec<Lease>,
    /// Handles of conditional nodes.
    handles: Vec<u64>,
    /// References to user objects, by name.
    user_objects: HashMap<u64, u64>,
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

#[derive(Clone, Debug)]
struct Exec {
    object: Arc<Object>,
    lock: Exclusive,
}

/// A stream's capture.
#[derive(Clone, Copy, Debug, Default)]
struct Capture {
    /// The graph that it adds to, once that has a name.
    graph: Option<u64>,
    /// The graph dies if the capture does: it began with the capture.
    ends_with_it: bool,
}

#[derive(Debug, Default)]
struct Tables {
    graphs: HashMap<u64, Graph>,
    graph_names: HashMap<usize, u64>,
    nodes: HashMap<u64, Node>,
    node_names: HashMap<usize, u64>,
    execs: HashMap<u64, Exec>,
    /// Streams that capture.
    captures: HashMap<usize, Capture>,
    /// Handles of conditional nodes.
    handles: HashSet<u64>,
    /// Names for what is being made.
    taken: HashSet<(Kind, u64)>,
    minted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Graph,
    Node,
    Exec,
}

/// All graphs of a session.
#[derive(Debug, Default)]
pub struct Graphs {
    tables: Mutex<Tables>,
    /// Streams that capture. While there are any, what is added to such a stream changes a graph.
    capturing: AtomicUsize,
    /// Held by calls that use streams which capture and, while there are any, by calls on graphs.
    captures: Exclusive,
}

/// A name that nobody else can take; free again when dropped, unless it was given to something.
#[derive(Debug)]
pub struct Taken<'a> {
    graphs: &'a Graphs,
    kind: Kind,
    name: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.graphs.tables.lock().taken.remove(&(self.kind, self.name));
    }
}

impl Tables {
    fn mint(&mut self) -> u64 {
        self.minted += STEP;
        FIRST_WORKER_HANDLE + self.minted
    }

    fn family_of_node(&self, name: u64) -> Option<Exclusive> {
        Some(self.graphs.get(&self.nodes.get(&name)?.graph)?.family.clone())
    }

    fn add_graph(&mut self, name: u64, raw: CUgraph, parent: Option<u64>) {
        let family = parent.and_then(|node| self.family_of_node(node)).unwrap_or_else(exclusive);
        self.graph_names.insert(raw as usize, name);
        let graph = Graph {
            raw: raw as usize,
            parent,
            family,
            leases: Vec::new(),
            handles: Vec::new(),
            user_objects: HashMap::new(),
        };
        self.graphs.insert(name, graph);
    }

    fn add_node(&mut self, name: u64, raw: CUgraphNode, graph: u64, copy: Option<MemcpyNode>) {
        self.node_names.insert(raw as usize, name);
        self.nodes.insert(name, Node { raw: raw as usize, graph, copy, function: 0 });
    }

    fn remove_node(&mut self, name: u64) -> Vec<Lease> {
        if let Some(node) = self.nodes.remove(&name)
            && self.node_names.get(&node.raw) == Some(&name)
        {
            // Not if the driver has given the address to a node of another thread meanwhile.
            self.node_names.remove(&node.raw);
        }
        self.remove_inside(name)
    }

    /// The graphs into which streams capture, and all graphs that contain these, each with the node in between. The driver
    /// goes on to use these graphs, and the nodes that were captured last.
    fn captured(&self) -> Vec<(u64, Option<u64>)> {
        let mut places = Vec::new();
        for graph in self.captures.values().filter_map(|capture| capture.graph) {
            let mut place = Some((graph, None));
            while let Some((graph, node)) = place {
                places.push((graph, node));
                let parent = self.graphs.get(&graph).and_then(|graph| graph.parent);
                place = parent.and_then(|node| Some((self.nodes.get(&node)?.graph, Some(node))));
            }
        }
        places
    }

    /// Forgets the graphs in a node.
    fn remove_inside(&mut self, name: u64) -> Vec<Lease> {
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
        if self.graph_names.get(&graph.raw) == Some(&name) {
            self.graph_names.remove(&graph.raw);
        }
        for handle in &graph.handles {
            self.handles.remove(handle);
        }
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
    /// Returns whether any stream captures, or is about to.
    pub fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire) > 0
    }

    /// The lock of everything that captures.
    pub fn captures(&self) -> &Exclusive {
        &self.captures
    }

    /// Returns the result of `find`, once the call holds the lock of its family. If it holds only others, that is an
    /// error: the driver would find that a node is not in the graph.
    fn locked<T>(&self, held: &Held, find: impl Fn(&Tables) -> Option<(T, Exclusive)>) -> CuResult<T> {
        loop {
            // Anew after each wait: another call may have destroyed it.
            let found = find(&self.tables.lock());
            let (found, family) = found.ok_or(CudaError::INVALID_VALUE)?;
            if held.has(&family) {
                return Ok(found);
            }
            if held.has_family() || held.has_exec() {
                return Err(CudaError::INVALID_VALUE);
            }
            self.lock(held, SmallVec::from_iter([family]));
        }
    }

    fn lock(&self, held: &Held, families: SmallVec<[Exclusive; 2]>) {
        if self.is_capturing() {
            held.lock_captures(&self.captures);
        }
        held.lock_families(families);
    }

    /// Locks the families of all these, as far as they exist, for a call that uses several.
    pub fn enter(&self, held: &Held, graphs: &[GraphId], nodes: &[GraphNodeId]) {
        let tables = self.tables.lock();
        let of_graphs = graphs.iter().filter_map(|id| Some(tables.graphs.get(&id.0)?.family.clone()));
        let of_nodes = nodes.iter().filter_map(|id| tables.family_of_node(id.0));
        let families: SmallVec<_> = of_graphs.chain(of_nodes).collect();
        drop(tables);
        if !families.is_empty() {
            self.lock(held, families);
        }
    }

    /// The driver's graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, which the driver says of handles of graphs.
    pub fn graph(&self, held: &Held, id: GraphId) -> CuResult<CUgraph> {
        self.locked(held, |tables| {
            let graph = tables.graphs.get(&id.0)?;
            Some((graph.raw as CUgraph, graph.family.clone()))
        })
    }

    /// The driver's node.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn node(&self, held: &Held, id: GraphNodeId) -> CuResult<CUgraphNode> {
        self.locked(held, |tables| {
            Some((tables.nodes.get(&id.0)?.raw as CUgraphNode, tables.family_of_node(id.0)?))
        })
    }

    /// The driver's executable graph, which the call has for itself. After graphs and nodes that the call uses.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn exec(&self, held: &Held, id: GraphExecId) -> CuResult<CUgraphExec> {
        let found = self.tables.lock().execs.get(&id.0).cloned();
        let Exec { object, lock } = found.ok_or(CudaError::INVALID_VALUE)?;
        if self.is_capturing() {
            held.lock_captures(&self.captures);
        }
        let raw = held.keep(object);
        if held.lock_exec(&lock) { Ok(raw) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Notes the user object that stands for a node's function, if there is one; answers the earlier one.
    pub fn set_function(&self, id: GraphNodeId, object: Option<CUuserObject>) -> Option<CUuserObject> {
        let mut tables = self.tables.lock();
        let object = object.map_or(0, |object| object as usize);
        let earlier = std::mem::replace(&mut tables.nodes.get_mut(&id.0)?.function, object);
        (earlier != 0).then_some(earlier as CUuserObject)
    }

    /// The copy that a node is to the guest, if the driver knows it as something else.
    pub fn disguised_copy(&self, id: GraphNodeId) -> Option<MemcpyNode> {
        self.tables.lock().nodes.get(&id.0).and_then(|node| node.copy)
    }

    /// The graph that a node is in.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn graph_of(&self, held: &Held, id: GraphNodeId) -> CuResult<CUgraph> {
        self.locked(held, |tables| {
            let graph = tables.graphs.get(&tables.nodes.get(&id.0)?.graph)?;
            Some((graph.raw as CUgraph, graph.family.clone()))
        })
    }

    fn take_name(&self, kind: Kind, name: u64) -> CuResult<Taken<'_>> {
        let mut tables = self.tables.lock();
        let (exists, count) = match kind {
            Kind::Graph => (tables.graphs.contains_key(&name), tables.graphs.len()),
            Kind::Node => (tables.nodes.contains_key(&name), tables.nodes.len()),
            Kind::Exec => (tables.execs.contains_key(&name), tables.execs.len()),
        };
        if !(FIRST_HANDLE..FIRST_WORKER_HANDLE).contains(&name) || exists {
            return Err(CudaError::INVALID_VALUE);
        }
        if count >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        if !tables.taken.insert((kind, name)) {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(Taken { graphs: self, kind, name })
    }

    /// Takes a name that the guest minted, for a graph that is about to be made.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a reserved or used name, `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn take_graph_name(&self, id: GraphId) -> CuResult<Taken<'_>> {
        self.take_name(Kind::Graph, id.0)
    }

    /// As [`Self::take_graph_name`], for a node.
    pub fn take_node_name(&self, id: GraphNodeId) -> CuResult<Taken<'_>> {
        self.take_name(Kind::Node, id.0)
    }

    /// As [`Self::take_graph_name`], for an executable graph.
    pub fn take_exec_name(&self, id: GraphExecId) -> CuResult<Taken<'_>> {
        self.take_name(Kind::Exec, id.0)
    }

    /// Names a graph as the guest wants, which has taken the name. The call has it for itself until it is done.
    pub fn add_graph(&self, held: &Held, id: GraphId, raw: CUgraph, parent: Option<GraphNodeId>) {
        let mut tables = self.tables.lock();
        tables.add_graph(id.0, raw, parent.map(|node| node.0));
        if let (Some(graph), None) = (tables.graphs.get(&id.0), parent) {
            // Nobody else has seen it.
            held.adopt_family(&graph.family);
        }
    }

    /// Names a node as the guest wants, which has taken the name.
    pub fn add_node(&self, id: GraphNodeId, raw: CUgraphNode, graph: GraphId, copy: Option<MemcpyNode>) {
        self.tables.lock().add_node(id.0, raw, graph.0, copy);
    }

    /// Names a copy that the driver knows as a graph in a node.
    pub fn add_disguised(&self, raw: CUgraphNode, graph: CUgraph, copy: MemcpyNode) {
        let mut tables = self.tables.lock();
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

    /// Returns the reservations of a graph's nodes, for an executable graph made from it.
    pub fn leases_of(&self, id: GraphId) -> Vec<Lease> {
        self.tables.lock().graphs.get(&id.0).map(|graph| graph.leases.clone()).unwrap_or_default()
    }

    /// Names an executable graph as the guest wants, which has taken the name. The object is the caller's again if its
    /// context was destroyed meanwhile.
    pub fn add_exec(&self, id: GraphExecId, object: Arc<Object>) -> Result<(), Arc<Object>> {
        let mut tables = self.tables.lock();
        // With the tables locked: whoever closes the context looks here afterwards.
        if !object.is_open() {
            drop(tables);
            return Err(object);
        }
        tables.execs.insert(id.0, Exec { object, lock: exclusive() });
        Ok(())
    }

    /// Names an executable graph that device code launches as the driver does: the program gives that value to kernels.
    ///
    /// Such names are never the guest's: those lie below.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` for a handle that the guest could have minted, `CUDA_ERROR_OUT_OF_MEMORY` for
    /// too many. The object is then the caller's again.
    pub fn add_device_exec(&self, object: Arc<Object>) -> Result<GraphExecId, (CudaError, Arc<Object>)> {
        let name = object.raw::<u8>() as u64;
        let mut tables = self.tables.lock();
        let error = if !object.is_open() {
            CudaError::CONTEXT_IS_DESTROYED
        } else if name < FIRST_WORKER_HANDLE || tables.execs.contains_key(&name) {
            CudaError::NOT_SUPPORTED
        } else if tables.execs.len() >= MAX_OBJECTS {
            CudaError::OUT_OF_MEMORY
        } else {
            tables.execs.insert(name, Exec { object, lock: exclusive() });
            return Ok(GraphExecId(name));
        };
        drop(tables);
        Err((error, object))
    }

    /// Has a graph own memory that a node of it allocates.
    pub fn add_lease(&self, id: GraphId, lease: Lease) {
        if let Some(graph) = self.tables.lock().graphs.get_mut(&id.0) {
            graph.leases.push(lease);
        }
    }

    /// Has `to` share the memory that nodes of `from` allocate.
    pub fn share_leases(&self, from: GraphId, to: GraphId) {
        let mut tables = self.tables.lock();
        let leases = tables.graphs.get(&from.0).map(|graph| graph.leases.clone()).unwrap_or_default();
        if let Some(graph) = tables.graphs.get_mut(&to.0) {
            graph.leases.extend(leases);
        }
    }

    /// The name of a graph of the driver's, minted if it has none.
    pub fn name_graph(&self, raw: CUgraph, parent: Option<GraphNodeId>) -> GraphId {
        let mut tables = self.tables.lock();
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
        let mut tables = self.tables.lock();
        if let Some(&name) = tables.node_names.get(&(raw as usize)) {
            return GraphNodeId(name);
        }
        let name = tables.mint();
        tables.add_node(name, raw, graph.0, None);
        GraphNodeId(name)
    }

    /// The name of the graph that a node is in.
    pub fn graph_name_of(&self, id: GraphNodeId) -> CuResult<GraphId> {
        self.tables.lock().nodes.get(&id.0).map(|node| GraphId(node.graph)).ok_or(CudaError::INVALID_VALUE)
    }

    /// Nodes of a graph that are copies to the guest and something else to the driver.
    pub fn disguised_in(&self, id: GraphId) -> Vec<(CUgraphNode, MemcpyNode)> {
        let tables = self.tables.lock();
        let in_graph = tables.nodes.values().filter(|node| node.graph == id.0);
        in_graph.filter_map(|node| Some((node.raw as CUgraphNode, node.copy?))).collect()
    }

    /// Takes out a graph that the guest may destroy: one that lies in no node, and into which no stream captures.
    pub fn remove_graph(&self, id: GraphId) -> CuResult<(CUgraph, Vec<Lease>)> {
        let mut tables = self.tables.lock();
        let graph = tables.graphs.get(&id.0).filter(|graph| graph.parent.is_none());
        let raw = graph.map(|graph| graph.raw as CUgraph).ok_or(CudaError::INVALID_VALUE)?;
        if tables.captured().iter().any(|&(graph, _)| graph == id.0) {
            return Err(CudaError::ILLEGAL_STATE);
        }
        Ok((raw, tables.remove_graph(id.0)))
    }

    /// Refuses to remove a node of a graph into which a stream captures, or one that contains such a graph.
    ///
    /// Errors: `CUDA_ERROR_ILLEGAL_STATE`.
    pub fn check_removable(&self, id: GraphNodeId) -> CuResult<()> {
        let tables = self.tables.lock();
        let of = tables.nodes.get(&id.0).map(|node| node.graph);
        let used = |&(graph, node): &(u64, Option<u64>)| match node {
            Some(node) => node == id.0,
            None => Some(graph) == of,
        };
        if tables.captured().iter().any(used) { Err(CudaError::ILLEGAL_STATE) } else { Ok(()) }
    }

    /// Refuses to replace the graph in a node while a stream captures into it, or into one in it.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_replaceable(&self, id: GraphNodeId) -> CuResult<()> {
        let used = self.tables.lock().captured().iter().any(|&(_, node)| node == Some(id.0));
        if used { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
    }

    /// Takes out a node.
    pub fn remove_node(&self, id: GraphNodeId) -> CuResult<(CUgraphNode, Vec<Lease>)> {
        let mut tables = self.tables.lock();
        let raw = tables.nodes.get(&id.0).map(|node| node.raw as CUgraphNode);
        Ok((raw.ok_or(CudaError::INVALID_VALUE)?, tables.remove_node(id.0)))
    }

    /// Takes out an executable graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn remove_exec(&self, id: GraphExecId) -> CuResult<Arc<Object>> {
        let exec = self.tables.lock().execs.remove(&id.0);
        exec.map(|exec| exec.object).ok_or(CudaError::INVALID_VALUE)
    }

    /// Takes out the executable graphs of a context that is to be destroyed.
    #[must_use]
    pub fn take_execs(&self, context: u64) -> Vec<Arc<Object>> {
        let mut tables = self.tables.lock();
        let gone = tables.execs.extract_if(|_, exec| exec.object.context() == context);
        gone.map(|(_, exec)| exec.object).collect()
    }

    /// Forgets the graphs in a node, which has others now.
    pub fn remove_inside(&self, id: GraphNodeId) -> Vec<Lease> {
        self.tables.lock().remove_inside(id.0)
    }

    /// Notes a handle by which device code steers a conditional node of a graph.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` for too many.
    pub fn add_conditional_handle(&self, id: GraphId, handle: u64) -> CuResult<()> {
        let mut tables = self.tables.lock();
        if tables.handles.len() >= MAX_OBJECTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        tables.handles.insert(handle);
        if let Some(graph) = tables.graphs.get_mut(&id.0) {
            graph.handles.push(handle);
        }
        Ok(())
    }

    /// Returns whether the driver gave out a handle for a conditional node.
    pub fn is_conditional_handle(&self, handle: u64) -> bool {
        self.tables.lock().handles.contains(&handle)
    }

    /// References to a user object that a graph has, as far as the program gave them.
    pub fn user_objects(&self, id: GraphId, object: UserObjectId) -> u64 {
        let tables = self.tables.lock();
        tables.graphs.get(&id.0).and_then(|graph| graph.user_objects.get(&object.0).copied()).unwrap_or(0)
    }

    /// Notes how many references to a user object a graph has now.
    pub fn set_user_objects(&self, id: GraphId, object: UserObjectId, count: u64) {
        if let Some(graph) = self.tables.lock().graphs.get_mut(&id.0) {
            if count == 0 {
                graph.user_objects.remove(&object.0);
            } else {
                graph.user_objects.insert(object.0, count);
            }
        }
    }

    /// Has a copy of a graph own as many references to user objects.
    pub fn share_user_objects(&self, from: GraphId, to: GraphId) {
        let mut tables = self.tables.lock();
        let objects = tables.graphs.get(&from.0).map(|graph| graph.user_objects.clone()).unwrap_or_default();
        if let Some(graph) = tables.graphs.get_mut(&to.0) {
            graph.user_objects = objects;
        }
    }

    /// Notes that a stream is about to capture: from now on others who use it look whether it does. `false`: it captured
    /// before.
    pub fn capture_begins(&self, stream: usize) -> bool {
        let mut tables = self.tables.lock();
        let before = tables.captures.len();
        tables.captures.entry(stream).or_default();
        self.capturing.store(tables.captures.len(), Ordering::Release);
        tables.captures.len() > before
    }

    /// Forgets captures of streams that are no objects: a context is destroyed, which may be theirs.
    pub fn default_captures_ended(&self) {
        let tables = self.tables.lock();
        let of_threads = tables.captures.keys().filter(|&&stream| stream & OF_THREAD != 0);
        let of_threads: Vec<usize> = of_threads.copied().collect();
        drop(tables);
        of_threads.into_iter().for_each(|stream| self.capture_ended(stream, true));
    }

    /// Notes the graph into which a stream captures. `ends_with_it`: it dies if the capture does.
    pub fn capture_begun(&self, stream: usize, graph: GraphId, ends_with_it: bool) {
        self.tables.lock().captures.insert(stream, Capture { graph: Some(graph.0), ends_with_it });
    }

    /// A capture is over; with an error the driver has destroyed its graph.
    pub fn capture_ended(&self, stream: usize, failed: bool) {
        let mut tables = self.tables.lock();
        let capture = tables.captures.remove(&stream);
        self.capturing.store(tables.captures.len(), Ordering::Release);
        if let Some(Capture { graph: Some(graph), ends_with_it: true }) = capture
            && failed
        {
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
            assert_eq!(graphs.take_graph_name(GraphId(bad)).unwrap_err(), CudaError::INVALID_VALUE);
        }
        let taken = graphs.take_graph_name(GraphId(FIRST_HANDLE)).unwrap();
        graphs.take_graph_name(GraphId(FIRST_HANDLE)).expect_err("another thread makes it");
        graphs.take_node_name(GraphNodeId(FIRST_HANDLE)).expect("kinds have names of their own");
        graphs.add_graph(&Held::default(), GraphId(FIRST_HANDLE), raw(8), None);
        drop(taken);
        assert_eq!(graphs.take_graph_name(GraphId(FIRST_HANDLE)).unwrap_err(), CudaError::INVALID_VALUE);
    }

    #[test]
    fn nodes_of_the_driver_get_one_name() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        let node = graphs.name_node(raw(16), graph);
        assert_eq!(graphs.name_node(raw(16), graph), node);
        assert_ne!(graphs.name_node(raw(24), graph), node);
        assert_eq!(graphs.name_node(raw(0), graph), GraphNodeId(0));
        assert_eq!(graphs.node(&Held::default(), node), Ok(raw(16)));
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
        let held = Held::default();
        assert!(graphs.graph(&held, inner).is_err());
        assert!(graphs.node(&held, leaf).is_err() && graphs.node(&held, node).is_err());
    }

    #[test]
    fn graphs_for_the_device_keep_the_name_of_the_driver() {
        let graphs = Graphs::default();
        let address = 0x7fff_0000_1230_usize;
        let object = |address| Arc::new(Object::new::<u8>(raw(address)));
        let exec = graphs.add_device_exec(object(address)).unwrap();
        assert_eq!((exec.0, graphs.exec(&Held::default(), exec)), (address as u64, Ok(raw(address))));
        assert!(graphs.take_exec_name(exec).is_err(), "no name for the guest to mint");
        let taken = graphs.add_device_exec(object(FIRST_HANDLE as usize));
        assert_eq!(taken.unwrap_err().0, CudaError::NOT_SUPPORTED, "a name that the guest may mint");
        graphs.remove_exec(exec).unwrap();
        assert!(graphs.exec(&Held::default(), exec).is_err());
        graphs.add_device_exec(object(address)).expect("the driver may use an address again");
    }

    #[test]
    fn a_failed_capture_takes_its_graph_along() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        assert!(graphs.capture_begins(5) && !graphs.capture_begins(5));
        graphs.capture_begun(5, graph, true);
        assert!(graphs.is_capturing());
        graphs.capture_ended(5, true);
        assert!(!graphs.is_capturing() && graphs.graph(&Held::default(), graph).is_err());
    }

    #[test]
    fn nothing_is_taken_from_a_graph_into_which_a_stream_captures() {
        let graphs = Graphs::default();
        let outer = graphs.name_graph(raw(8), None);
        let (around, beside) = (graphs.name_node(raw(16), outer), graphs.name_node(raw(24), outer));
        let inner = graphs.name_graph(raw(32), Some(around));
        let leaf = graphs.name_node(raw(40), inner);
        graphs.capture_begins(5);
        graphs.capture_begun(5, inner, false);
        assert!(graphs.remove_graph(outer).is_err(), "it contains the graph");
        assert!(graphs.check_removable(leaf).is_err() && graphs.check_removable(around).is_err());
        assert!(graphs.check_replaceable(around).is_err());
        assert!(graphs.check_removable(beside).is_ok() && graphs.check_replaceable(beside).is_ok());
        graphs.capture_ended(5, true);
        assert!(graphs.graph(&Held::default(), inner).is_ok(), "it was there before the capture");
        assert!(graphs.check_removable(leaf).is_ok() && graphs.check_replaceable(around).is_ok());
        assert!(graphs.remove_graph(outer).is_ok());
    }

    #[test]
    fn a_context_takes_captures_of_threads_along() {
        let graphs = Graphs::default();
        let (ours, other) = (graphs.name_graph(raw(8), None), graphs.name_graph(raw(16), None));
        for (stream, graph) in [(OF_THREAD | 7, ours), (7, other)] {
            graphs.capture_begins(stream);
            graphs.capture_begun(stream, graph, true);
        }
        graphs.default_captures_ended();
        assert!(graphs.graph(&Held::default(), ours).is_err());
        assert!(graphs.graph(&Held::default(), other).is_ok() && graphs.is_capturing());
    }

    #[test]
    fn a_call_has_a_graph_and_what_is_in_it_for_itself() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        let node = graphs.name_node(raw(16), graph);
        let inner = graphs.name_graph(raw(24), Some(node));
        let mut held = Held::default();
        graphs.graph(&held, inner).unwrap();
        assert_eq!((graphs.graph(&held, graph), graphs.node(&held, node)), (Ok(raw(8)), Ok(raw(16))));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| graphs.node(&Held::default(), node).map(drop));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished(), "it waits for the first call");
            // Which destroys the node.
            graphs.remove_node(node).unwrap();
            held.release();
            assert_eq!(other.join().unwrap(), Err(CudaError::INVALID_VALUE));
        });
    }

    #[test]
    fn several_families_are_taken_at_once() {
        let graphs = Graphs::default();
        let (one, other) = (graphs.name_graph(raw(8), None), graphs.name_graph(raw(16), None));
        let node = graphs.name_node(raw(24), other);
        let mut held = Held::default();
        graphs.graph(&held, one).unwrap();
        assert_eq!(graphs.node(&held, node), Err(CudaError::INVALID_VALUE), "of another graph");
        held.release();
        graphs.enter(&held, &[one, GraphId(99)], &[node]);
        assert!(graphs.node(&held, node).is_ok() && graphs.graph(&held, one).is_ok());
        assert!(graphs.graph(&held, GraphId(99)).is_err());
    }

    #[test]
    fn an_address_that_the_driver_uses_again_keeps_its_new_name() {
        let graphs = Graphs::default();
        let (one, other) = (graphs.name_graph(raw(8), None), graphs.name_graph(raw(16), None));
        let node = graphs.name_node(raw(24), one);
        // The driver has destroyed the node and made another one at its address before the first lost its name.
        graphs.add_node(GraphNodeId(FIRST_HANDLE), raw(24), other, None);
        graphs.remove_node(node).unwrap();
        assert_eq!(graphs.name_node(raw(24), other), GraphNodeId(FIRST_HANDLE));
    }

    #[test]
    fn handles_of_conditional_nodes_die_with_their_graph() {
        let graphs = Graphs::default();
        let graph = graphs.name_graph(raw(8), None);
        graphs.add_conditional_handle(graph, 77).unwrap();
        assert!(graphs.is_conditional_handle(77));
        graphs.remove_graph(graph).unwrap();
        assert!(!graphs.is_conditional_handle(77));
    }
}
