// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What executable graphs were made from. The driver does not tell what is in one, so the graph that it was made from, or last updated
//! from, describes it, with what was changed in it alone.
//!
//! A graph that the program destroys stays in the driver, hidden, as long as it describes an executable graph. One that is changed
//! describes the executable graph no longer.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use virtio_cuda_protocol::cuda::{CallbackId, GraphExecId, GraphId, GraphNodeId, NODE_GRAPH};

use super::Graphs;
use super::tables::{Exec, Node, Tables};
use crate::gpu::{CUgraph, CUgraphNode, CUuserObject, CuResult, CudaError};
use crate::objects::Object;

/// The maximum of all parameters that are kept for executable graphs alone, in bytes.
const MAX_OWN_BYTES: usize = 16 << 20;

/// A graph from which executable graphs may have been made: the graph itself has a reference, and each of these.
#[derive(Debug, Default)]
pub struct Source {
    /// The graph's name.
    graph: AtomicU64,
    /// The number of changes of the graph.
    changes: AtomicU64,
    /// True if the program has destroyed the graph.
    is_hidden: AtomicBool,
}

impl Source {
    pub(super) fn of(graph: u64) -> Arc<Self> {
        Arc::new(Self { graph: graph.into(), ..Self::default() })
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.is_hidden.load(Ordering::Relaxed)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// Parameters of a node in an executable graph alone: the kind, and the guest's parameters.
pub type Own = (u32, Box<[u8]>);

/// What an executable graph consists of.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The graph that it was made from, or last updated from, and the number of its changes then.
    source: Option<(Arc<Source>, u64)>,
    /// The graph whose nodes name those of the executable graph.
    base: Weak<Source>,
    /// Parameters that were set in it since, by the driver's node.
    own: HashMap<usize, Own>,
    /// Nodes that have been switched off since.
    off: HashSet<usize>,
    /// The reason for which it cannot be described.
    lost: Option<&'static str>,
}

impl Made {
    pub(super) fn from(source: Option<Arc<Source>>) -> Self {
        let base = source.as_ref().map(Arc::downgrade).unwrap_or_default();
        Self { source: source.map(|source| (source.clone(), source.changes())), base, ..Self::default() }
    }

    fn own_bytes_of(&self, node: CUgraphNode) -> usize {
        self.own.get(&(node as usize)).map_or(0, |(_, bytes)| bytes.len())
    }

    fn own_bytes(&self) -> usize {
        self.own.values().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Returns the graph that describes it.
    ///
    /// Errors: the reason for which none does.
    fn source(&self) -> Result<&Arc<Source>, &'static str> {
        let (source, changes) = match (&self.source, self.lost) {
            (_, Some(lost)) => return Err(lost),
            (None, None) => {
                return Err("executable graphs for device code, and of graphs in nodes, are not followed");
            }
            (Some((source, changes)), None) => (source, *changes),
        };
        if source.changes() != changes {
            return Err("a graph was changed after it was made executable");
        }
        match self.base.upgrade() {
            Some(base) if !base.is_hidden() && !Arc::ptr_eq(&base, source) => {
                Err("an executable graph was updated from another graph")
            }
            _ => Ok(source),
        }
    }
}

/// A graph that lies in no node.
#[derive(Clone, Debug)]
pub struct GraphRow {
    pub name: GraphId,
    pub raw: usize,
    pub is_hidden: bool,
    /// The names of user objects, with the number of references.
    pub user_objects: Vec<(u64, u64)>,
}

/// An executable graph.
#[derive(Debug)]
pub struct ExecRow {
    pub name: GraphExecId,
    pub object: Arc<Object>,
    /// The graph that describes it.
    pub graph: GraphId,
    /// See [`Own`].
    pub own: Vec<(usize, Own)>,
    /// Nodes that may be switched off.
    pub off: Vec<usize>,
}

impl Tables {
    /// Returns the graph that contains this one and lies in no node.
    fn root(&self, mut graph: u64) -> u64 {
        while let Some(node) = self.graphs.get(&graph).and_then(|found| found.parent)
            && let Some(node) = self.nodes.get(&node)
        {
            graph = node.graph;
        }
        graph
    }

    /// Returns whether the program has destroyed the graph that contains this one.
    pub(super) fn is_hidden(&self, graph: u64) -> bool {
        self.graphs.get(&self.root(graph)).is_none_or(|graph| graph.source.is_hidden())
    }

    /// Hides a graph if executable graphs were made from it. Returns whether it stays.
    pub(super) fn hide(&mut self, name: u64) -> bool {
        let Some(graph) = self.graphs.get(&name) else { return false };
        // Memory of a graph ends with it.
        if Arc::strong_count(&graph.source) == 1 || !graph.leases.is_empty() {
            return false;
        }
        let (raw, source) = (graph.raw, graph.source.clone());
        let (user_objects, captured) = (graph.user_objects.clone(), graph.captured.clone());
        let copies: Vec<_> = self.nodes.values().filter(|node| node.graph == name).copied().collect();
        self.remove_graph(name);
        let hidden = self.new_handle();
        source.graph.store(hidden, Ordering::Relaxed);
        source.is_hidden.store(true, Ordering::Relaxed);
        self.add_graph(hidden, raw as CUgraph, None);
        if let Some(graph) = self.graphs.get_mut(&hidden) {
            (graph.source, graph.user_objects, graph.captured) = (source, user_objects, captured);
        }
        for node in copies.into_iter().filter(|node| node.copy.is_some()) {
            let name = self.new_handle();
            self.add_node(name, node.raw as CUgraphNode, hidden, node.copy);
        }
        true
    }

    /// Notes that an executable graph has ended, or describes another graph now.
    pub(super) fn end_made(&mut self, made: Made) {
        self.own_bytes -= made.own_bytes();
        let Some((source, _)) = made.source else { return };
        if source.is_hidden() && Arc::strong_count(&source) == 2 {
            let name = source.graph.load(Ordering::Relaxed);
            if let Some(graph) = self.graphs.get(&name) {
                self.unused.push(graph.raw);
            }
            self.remove_graph(name);
        }
    }
}

impl Graphs {
    /// Notes a change of a graph, or of one that lies in it.
    pub fn changed(&self, id: GraphId) {
        let tables = self.tables.lock();
        if let Some(graph) = tables.graphs.get(&tables.root(id.0)) {
            graph.source.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes a change of a node.
    pub fn node_changed(&self, id: GraphNodeId) {
        let mut tables = self.tables.lock();
        let Some(&Node { raw, graph, .. }) = tables.nodes.get(&id.0) else { return };
        if let Some(graph) = tables.graphs.get_mut(&graph) {
            graph.captured.remove(&raw);
        }
        drop(tables);
        self.changed(GraphId(graph));
    }

    /// Returns the graph as the source of an executable graph. `None` for one that lies in a node.
    pub(super) fn source_of(tables: &Tables, id: GraphId) -> Option<Arc<Source>> {
        let graph = tables.graphs.get(&id.0)?;
        graph.parent.is_none().then(|| graph.source.clone())
    }

    /// Notes that an executable graph has all parameters of a graph now.
    pub fn updated(&self, exec: GraphExecId, graph: GraphId) {
        let mut tables = self.tables.lock();
        let source = Self::source_of(&tables, graph);
        let Some(Exec { made, .. }) = tables.execs.get_mut(&exec.0) else { return };
        let mut before = std::mem::replace(made, Made::from(source));
        made.base = before.base.clone();
        made.lost = before.lost;
        let is_same = match (&made.source, &before.source) {
            (Some((now, _)), Some((before, _))) => Arc::ptr_eq(now, before),
            _ => false,
        };
        if is_same {
            made.off = std::mem::take(&mut before.off);
        } else if !before.off.is_empty() {
            made.lost = Some("a node was switched off before its executable graph was updated");
        }
        tables.end_made(before);
    }

    /// Notes parameters that were set in an executable graph alone.
    pub fn set_own(&self, exec: GraphExecId, node: CUgraphNode, kind: u32, bytes: &[u8]) {
        let mut tables = self.tables.lock();
        let room = MAX_OWN_BYTES - tables.own_bytes.min(MAX_OWN_BYTES);
        let Some(Exec { made, .. }) = tables.execs.get_mut(&exec.0) else { return };
        let before = made.own_bytes_of(node);
        if made.lost.is_some() {
            return;
        }
        let lost = match kind {
            NODE_GRAPH => Some("a graph in a node of an executable graph was replaced"),
            _ if bytes.len() > room + before => {
                Some("parameters of executable graphs are longer than 16 MiB")
            }
            _ => None,
        };
        let (added, gone) = if lost.is_some() {
            let gone = made.own_bytes();
            (made.lost, made.own) = (lost, HashMap::new());
            (0, gone)
        } else {
            made.own.insert(node as usize, (kind, bytes.into()));
            (bytes.len(), before)
        };
        tables.own_bytes = tables.own_bytes + added - gone;
    }

    /// Notes that a node of an executable graph was switched on or off.
    pub fn set_off(&self, exec: GraphExecId, node: CUgraphNode, is_off: bool) {
        let mut tables = self.tables.lock();
        let Some(Exec { made, .. }) = tables.execs.get_mut(&exec.0) else { return };
        if is_off {
            made.off.insert(node as usize);
        } else {
            made.off.remove(&(node as usize));
        }
    }

    /// Returns graphs that describe nothing any more. The caller destroys them.
    pub fn take_unused(&self) -> Vec<CUgraph> {
        let unused = std::mem::take(&mut self.tables.lock().unused);
        unused.into_iter().map(|raw| raw as CUgraph).collect()
    }

    /// Notes that a graph is the copy of another one.
    pub fn set_original(&self, clone: GraphId, original: GraphId) {
        let mut tables = self.tables.lock();
        let source = tables.graphs.get(&original.0).map(|graph| Arc::downgrade(&graph.source));
        if let Some(graph) = tables.graphs.get_mut(&clone.0) {
            graph.original = source.unwrap_or_default();
        }
    }

    /// Returns all graphs that lie in no node, and all executable graphs.
    ///
    /// Errors: the reason for which they cannot be described.
    pub fn rows(&self) -> Result<(Vec<GraphRow>, Vec<ExecRow>), &'static str> {
        let tables = self.tables.lock();
        if !tables.handles.is_empty() {
            return Err("conditional nodes of graphs are not followed");
        }
        let mut graphs = Vec::new();
        for (&name, graph) in tables.graphs.iter().filter(|(_, graph)| graph.parent.is_none()) {
            if graph.original.upgrade().is_some_and(|original| !original.is_hidden()) {
                return Err("copies of graphs (cuGraphClone) are not followed while the originals are there");
            }
            let user_objects = graph.user_objects.iter().map(|(&name, &count)| (name, count)).collect();
            let is_hidden = graph.source.is_hidden();
            graphs.push(GraphRow { name: GraphId(name), raw: graph.raw, is_hidden, user_objects });
        }
        let mut execs = Vec::new();
        for (&name, Exec { object, made, .. }) in &tables.execs {
            let graph = GraphId(made.source()?.graph.load(Ordering::Relaxed));
            let own = made.own.iter().map(|(&node, own)| (node, own.clone())).collect();
            let off = made.off.iter().copied().collect();
            execs.push(ExecRow { name: GraphExecId(name), object: object.clone(), graph, own, off });
        }
        drop(tables);
        graphs.sort_by_key(|graph| graph.name.0);
        execs.sort_by_key(|exec| exec.name.0);
        Ok((graphs, execs))
    }

    /// Takes all executable graphs, and all graphs that lie in no node, which the caller destroys in this order.
    pub fn take_all(&self) -> (Vec<Arc<Object>>, Vec<CUgraph>) {
        let mut tables = self.tables.lock();
        let execs = std::mem::take(&mut tables.execs).into_values().map(|exec| exec.object).collect();
        let whole = tables.graphs.values().filter(|graph| graph.parent.is_none());
        let graphs = whole.map(|graph| graph.raw).chain(tables.unused.iter().copied());
        let graphs = graphs.map(|raw| raw as CUgraph).collect();
        *tables = tables.emptied();
        (execs, graphs)
    }

    /// Returns the number of names that the worker has given.
    pub fn named(&self) -> u64 {
        self.tables.lock().created
    }

    /// While graphs are made again, they may have names that the worker has given, `named` of them so far, and hidden ones can be used.
    pub fn begin_again(&self, named: u64) {
        self.is_made_again.store(true, Ordering::Release);
        let mut tables = self.tables.lock();
        tables.created = tables.created.max(named);
    }

    /// Ends what [`Self::begin_again`] has begun.
    pub fn end_again(&self) {
        self.is_made_again.store(false, Ordering::Release);
    }

    /// Returns whether graphs are made again.
    pub fn is_made_again(&self) -> bool {
        self.is_made_again.load(Ordering::Acquire)
    }

    /// Returns the driver's user object of a function of the program, which `create` makes for the first node that has it.
    pub fn shared_tie(
        &self,
        callback: CallbackId,
        create: impl FnOnce() -> Option<CUuserObject>,
    ) -> Option<CUuserObject> {
        match self.ties.lock().entry(callback.0) {
            Entry::Occupied(tie) => Some(*tie.get() as CUuserObject),
            Entry::Vacant(place) => Some(*place.insert(create()? as usize) as CUuserObject),
        }
    }

    /// Takes all of [`Self::shared_tie`]. The caller releases a reference to each.
    pub fn take_ties(&self) -> Vec<CUuserObject> {
        self.ties.lock().drain().map(|(_, tie)| tie as CUuserObject).collect()
    }

    /// Hides a graph that is made again for executable graphs only.
    pub fn hide_again(&self, id: GraphId) -> CuResult<()> {
        let tables = self.tables.lock();
        let graph = tables.graphs.get(&id.0).ok_or(CudaError::INVALID_VALUE)?;
        graph.source.is_hidden.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes hidden graphs that describe nothing: of a stream that another worker has written.
    pub fn hide_unused(&self) {
        let mut tables = self.tables.lock();
        let is_unused = |source: &Arc<Source>| source.is_hidden() && Arc::strong_count(source) == 1;
        let unused: Vec<_> = tables
            .graphs
            .iter()
            .filter(|(_, graph)| is_unused(&graph.source))
            .map(|(&name, graph)| (name, graph.raw))
            .collect();
        for (name, raw) in unused {
            tables.unused.push(raw);
            tables.remove_graph(name);
        }
    }
}
