// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's graphs, their nodes and executable graphs, by name.
//!
//! The driver creates nodes on its own (captures, clones, child graphs), so names are also looked up by its handles.
//! A node gets a name here the first time that it is reported to the guest.
//!
//! CUDA does not synchronise graphs. So a call gets the handle of a graph or node only while it holds the lock of its
//! *family*: a graph with the graphs that lie in its nodes. A call gets that lock with the first handle, and keeps it
//! until it is done. A call that uses several families names them first ([`Graphs::enter`]). Destroying a graph or
//! node takes the lock, too. That wait is short, because calls on graphs only compute. Executable graphs are objects
//! with a lock of their own.

mod captured;
mod captures;
pub mod sources;
mod tables;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;
use virtio_cuda_protocol::cuda::{
    FIRST_HANDLE, FIRST_WORKER_HANDLE, GraphExecId, GraphId, GraphNodeId, MemcpyNode, UserObjectId,
};

use self::sources::Made;
use super::{Exclusive, Held, MAX_OBJECTS, Object};
use crate::gpu::{CUgraph, CUgraphExec, CUgraphNode, CUuserObject, CuResult, CudaError};
pub use captured::{Captured, Place, Record};
pub use tables::Lease;
use tables::{Exec, Kind, Tables};

/// A stream that captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capturing {
    /// An object, identified by the driver's handle.
    Stream(usize),
    /// The default stream that a thread has in a context. It is not an object.
    OfThread {
        /// The kernel's thread id of the executor.
        thread: i32,
        /// The context's name.
        context: u64,
    },
}

/// All graphs of a session.
#[derive(Debug, Default)]
pub struct Graphs {
    tables: Mutex<Tables>,
    /// The number of capturing streams. While it is not zero, work that is added to such a stream changes a graph.
    capturing: AtomicUsize,
    /// Held by calls that use capturing streams and, while there are any, by calls on graphs.
    captures: Exclusive,
    /// True while graphs are made again.
    is_made_again: AtomicBool,
    /// The driver's user objects of the program's functions, while graphs are made again: several graphs may have one.
    ties: Mutex<HashMap<u64, usize>>,
    /// The calls before the last captured call of a library.
    last_record: Mutex<Weak<Record>>,
}

/// A reserved name. It is free again when dropped, unless it was given to an object.
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

impl Graphs {
    /// Returns the result of `find`, once the call holds the lock of its family. A call that holds only other
    /// families gets an error, as the driver reports for a node that is not in the graph.
    fn locked<T>(&self, held: &Held, find: impl Fn(&Tables) -> Option<(T, Exclusive)>) -> CuResult<T> {
        loop {
            // Repeated after each wait, because another call may have destroyed it.
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

    /// Locks the families of all these graphs and nodes, as far as they exist, for a call that uses several.
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

    /// Returns the driver's graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, as the driver returns for handles of graphs.
    pub fn graph(&self, held: &Held, id: GraphId) -> CuResult<CUgraph> {
        self.locked(held, |tables| {
            let graph = tables.graphs.get(&id.0).filter(|_| self.is_shown(tables, id.0))?;
            Some((graph.raw as CUgraph, graph.family.clone()))
        })
    }

    /// Returns whether calls may use a graph: programs do not see hidden ones.
    fn is_shown(&self, tables: &Tables, graph: u64) -> bool {
        self.is_made_again() || !tables.is_hidden(graph)
    }

    /// Returns the driver's node.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn node(&self, held: &Held, id: GraphNodeId) -> CuResult<CUgraphNode> {
        self.locked(held, |tables| {
            let node = tables.nodes.get(&id.0).filter(|node| self.is_shown(tables, node.graph))?;
            Some((node.raw as CUgraphNode, tables.family_of_node(id.0)?))
        })
    }

    /// Returns the driver's executable graph, with exclusive use for the call. Must be called after graphs and nodes
    /// were looked up.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn exec(&self, held: &Held, id: GraphExecId) -> CuResult<CUgraphExec> {
        let tables = self.tables.lock();
        let found = tables.execs.get(&id.0).map(|exec| (exec.object.clone(), exec.lock.clone()));
        drop(tables);
        let (object, lock) = found.ok_or(CudaError::INVALID_VALUE)?;
        if self.is_capturing() {
            held.lock_captures(&self.captures);
        }
        let raw = held.keep(object);
        if held.lock_exec(&lock) { Ok(raw) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Records the user object that stands for a node's function, if there is one. Returns the earlier one.
    pub fn set_function(&self, id: GraphNodeId, object: Option<CUuserObject>) -> Option<CUuserObject> {
        let mut tables = self.tables.lock();
        let object = object.map_or(0, |object| object as usize);
        let earlier = std::mem::replace(&mut tables.nodes.get_mut(&id.0)?.function, object);
        (earlier != 0).then_some(earlier as CUuserObject)
    }

    /// Returns the copy that the guest knows a node as, if the driver knows it as a child graph.
    pub fn disguised_copy(&self, id: GraphNodeId) -> Option<MemcpyNode> {
        self.tables.lock().nodes.get(&id.0).and_then(|node| node.copy)
    }

    /// Returns the graph that a node is in.
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
        let again = self.is_made_again();
        let names = if again { FIRST_HANDLE..u64::MAX } else { FIRST_HANDLE..FIRST_WORKER_HANDLE };
        if !names.contains(&name) || exists {
            return Err(CudaError::INVALID_VALUE);
        }
        if count >= MAX_OBJECTS && !again {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        if !tables.taken.insert((kind, name)) {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(Taken { graphs: self, kind, name })
    }

    /// Reserves a name that the guest chose, for a graph that is about to be created.
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

    /// Registers a graph by the name that the guest has chosen and taken. The call holds the lock of its family until it is done.
    pub fn add_graph(&self, held: &Held, id: GraphId, raw: CUgraph, parent: Option<GraphNodeId>) {
        let mut tables = self.tables.lock();
        tables.add_graph(id.0, raw, parent.map(|node| node.0));
        if let (Some(graph), None) = (tables.graphs.get(&id.0), parent) {
            // No other call has seen it.
            held.adopt_family(&graph.family);
        }
    }

    /// Registers a node by the name that the guest has chosen and taken.
    pub fn add_node(&self, id: GraphNodeId, raw: CUgraphNode, graph: GraphId, copy: Option<MemcpyNode>) {
        self.tables.lock().add_node(id.0, raw, graph.0, copy);
    }

    /// Registers a copy that is a child graph node in the driver.
    pub fn add_disguised(&self, raw: CUgraphNode, graph: CUgraph, copy: MemcpyNode) {
        let mut tables = self.tables.lock();
        let graph = match tables.graph_names.get(&(graph as usize)) {
            Some(&graph) => graph,
            None => {
                let name = tables.new_handle();
                tables.add_graph(name, graph, None);
                name
            }
        };
        let name = tables.new_handle();
        tables.add_node(name, raw, graph, Some(copy));
    }

    /// Returns the reservations of a graph's nodes, for an executable graph made from it.
    pub fn leases_of(&self, id: GraphId) -> Vec<Lease> {
        self.tables.lock().graphs.get(&id.0).map(|graph| graph.leases.clone()).unwrap_or_default()
    }

    /// Registers an executable graph of `graph` by the name that the guest has chosen and taken.
    ///
    /// Errors: the object, if its context was destroyed meanwhile.
    pub fn add_exec(&self, id: GraphExecId, object: Arc<Object>, graph: GraphId) -> Result<(), Arc<Object>> {
        let mut tables = self.tables.lock();
        // Checked with the tables locked: the thread that closes the context searches the tables afterwards.
        if !object.is_open() {
            drop(tables);
            return Err(object);
        }
        let made = Made::from(Self::source_of(&tables, graph));
        tables.execs.insert(id.0, Exec::new(object, made));
        Ok(())
    }

    /// Registers an executable graph that device code launches. Its name is the driver's own handle, because the
    /// program passes that value to kernels. The guest cannot choose such a name, because its range lies below.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` for a handle that the guest could have chosen, `CUDA_ERROR_OUT_OF_MEMORY`
    /// for too many. The object is then returned to the caller.
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
            tables.execs.insert(name, Exec::new(object, Made::default()));
            return Ok(GraphExecId(name));
        };
        drop(tables);
        Err((error, object))
    }

    /// Makes a graph own memory that one of its nodes allocates.
    pub fn add_lease(&self, id: GraphId, lease: Lease) {
        if let Some(graph) = self.tables.lock().graphs.get_mut(&id.0) {
            graph.leases.push(lease);
        }
    }

    /// Makes `to` share the memory that nodes of `from` allocate.
    pub fn share_leases(&self, from: GraphId, to: GraphId) {
        let mut tables = self.tables.lock();
        let leases = tables.graphs.get(&from.0).map(|graph| graph.leases.clone()).unwrap_or_default();
        if let Some(graph) = tables.graphs.get_mut(&to.0) {
            graph.leases.extend(leases);
        }
    }

    /// Returns the name of one of the driver's graphs. Creates a name if it has none.
    pub fn name_graph(&self, raw: CUgraph, parent: Option<GraphNodeId>) -> GraphId {
        let mut tables = self.tables.lock();
        if let Some(&name) = tables.graph_names.get(&(raw as usize)) {
            return GraphId(name);
        }
        let name = tables.new_handle();
        tables.add_graph(name, raw, parent.map(|node| node.0));
        GraphId(name)
    }

    /// Returns the name of one of the driver's nodes in `graph`. Creates a name if it has none. Returns 0 for a null
    /// handle.
    pub fn name_node(&self, raw: CUgraphNode, graph: GraphId) -> GraphNodeId {
        if raw.is_null() {
            return GraphNodeId(0);
        }
        let mut tables = self.tables.lock();
        if let Some(&name) = tables.node_names.get(&(raw as usize)) {
            return GraphNodeId(name);
        }
        let name = tables.new_handle();
        tables.add_node(name, raw, graph.0, None);
        GraphNodeId(name)
    }

    /// Returns the name of the graph that a node is in.
    pub fn graph_name_of(&self, id: GraphNodeId) -> CuResult<GraphId> {
        self.tables.lock().nodes.get(&id.0).map(|node| GraphId(node.graph)).ok_or(CudaError::INVALID_VALUE)
    }

    /// Returns the nodes of a graph that are copies to the guest and child graphs to the driver.
    pub fn disguised_in(&self, id: GraphId) -> Vec<(CUgraphNode, MemcpyNode)> {
        let tables = self.tables.lock();
        let in_graph = tables.nodes.values().filter(|node| node.graph == id.0);
        in_graph.filter_map(|node| Some((node.raw as CUgraphNode, node.copy?))).collect()
    }

    /// Removes a graph that the guest may destroy: one that lies in no node, and into which no stream captures. `None`: it stays,
    /// hidden, because it describes executable graphs.
    pub fn remove_graph(&self, id: GraphId) -> CuResult<Option<(CUgraph, Vec<Lease>)>> {
        let mut tables = self.tables.lock();
        let is_shown = self.is_shown(&tables, id.0);
        let graph = tables.graphs.get(&id.0).filter(|graph| is_shown && graph.parent.is_none());
        let raw = graph.map(|graph| graph.raw as CUgraph).ok_or(CudaError::INVALID_VALUE)?;
        if tables.captured().iter().any(|&(graph, _)| graph == id.0) {
            return Err(CudaError::ILLEGAL_STATE);
        }
        if tables.hide(id.0) {
            return Ok(None);
        }
        Ok(Some((raw, tables.remove_graph(id.0))))
    }

    /// Removes a node.
    pub fn remove_node(&self, id: GraphNodeId) -> CuResult<(CUgraphNode, Vec<Lease>)> {
        let mut tables = self.tables.lock();
        let raw = tables.nodes.get(&id.0).map(|node| node.raw as CUgraphNode);
        Ok((raw.ok_or(CudaError::INVALID_VALUE)?, tables.remove_node(id.0)))
    }

    /// Removes an executable graph.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn remove_exec(&self, id: GraphExecId) -> CuResult<Arc<Object>> {
        let mut tables = self.tables.lock();
        let Exec { object, made, .. } = tables.execs.remove(&id.0).ok_or(CudaError::INVALID_VALUE)?;
        tables.end_made(made);
        Ok(object)
    }

    /// Removes the executable graphs of a context that is about to be destroyed.
    #[must_use]
    pub fn take_execs(&self, context: u64) -> Vec<Arc<Object>> {
        let mut tables = self.tables.lock();
        let removed = tables.execs.extract_if(|_, exec| exec.object.context() == context);
        let removed: Vec<_> = removed.map(|(_, exec)| (exec.object, exec.made)).collect();
        let end = |(object, made)| {
            tables.end_made(made);
            object
        };
        removed.into_iter().map(end).collect()
    }

    /// Forgets the graphs in a node, which now contains others.
    pub fn remove_inside(&self, id: GraphNodeId) -> Vec<Lease> {
        self.tables.lock().remove_inside(id.0)
    }

    /// Registers a handle by which device code sets the condition of a node of a graph.
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

    /// Returns whether the driver has created this handle for a conditional node.
    pub fn is_conditional_handle(&self, handle: u64) -> bool {
        self.tables.lock().handles.contains(&handle)
    }

    /// Returns the number of references to a user object that the program has given to a graph.
    pub fn user_objects(&self, id: GraphId, object: UserObjectId) -> u64 {
        let tables = self.tables.lock();
        tables.graphs.get(&id.0).and_then(|graph| graph.user_objects.get(&object.0).copied()).unwrap_or(0)
    }

    /// Records the number of references to a user object that a graph has now.
    pub fn set_user_objects(&self, id: GraphId, object: UserObjectId, count: u64) {
        if let Some(graph) = self.tables.lock().graphs.get_mut(&id.0) {
            if count == 0 {
                graph.user_objects.remove(&object.0);
            } else {
                graph.user_objects.insert(object.0, count);
            }
        }
    }

    /// Gives a clone of a graph as many references to user objects as the original has.
    pub fn share_user_objects(&self, from: GraphId, to: GraphId) {
        let mut tables = self.tables.lock();
        let objects = tables.graphs.get(&from.0).map(|graph| graph.user_objects.clone()).unwrap_or_default();
        if let Some(graph) = tables.graphs.get_mut(&to.0) {
            graph.user_objects = objects;
        }
    }
}

#[cfg(test)]
#[path = "graphs_test.rs"]
mod tests;
