// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs: nodes and their dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cuda_abi::CUgraphEdgeData;

use super::user_object::References;
use super::work::Work;
use crate::conditions::Condition;
use crate::driver::ffi::In;
use crate::driver::handle::{Handle, Registry};
use crate::driver::result::{CUresult, CuResult};

/// A graph's handle.
pub type CUgraph = Handle<Graph>;
/// A node's handle.
pub type CUgraphNode = Handle<Place>;

static GRAPHS: Registry<Graph> = Registry::new();
static NODES: Registry<Place> = Registry::new();

impl crate::driver::handle::Object for Place {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Node);
}

impl crate::driver::handle::Object for Graph {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Graph);
}

/// The graph that a node is in.
pub struct Place(Weak<Graph>);

/// Refuses ports, which exist for programmatic launches only. These wait for the whole kernel here.
pub(super) fn check_edge(edge: CUgraphEdgeData) -> CuResult<CUgraphEdgeData> {
    let known = edge.from_port <= 2 && edge.to_port == 0 && edge.kind <= 1 && edge.reserved == [0; 5];
    if known { Ok(edge) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Returns whether an edge has data beyond a plain dependency, which the older calls cannot return.
pub(in super::super) fn loses_edges(edges: &[CUgraphEdgeData]) -> bool {
    edges.iter().any(|edge| *edge != CUgraphEdgeData::default())
}

/// A node: its work and its dependencies.
#[derive(Clone)]
pub(in super::super) struct Node {
    pub(super) work: Work,
    pub(super) dependencies: Vec<(CUgraphNode, CUgraphEdgeData)>,
    /// The node that it was cloned from.
    pub(super) original: Option<CUgraphNode>,
}

impl Node {
    pub(in super::super) fn new(work: Work, dependencies: Vec<(CUgraphNode, CUgraphEdgeData)>) -> Node {
        Node { work, dependencies, original: None }
    }
}

/// A graph.
pub struct Graph {
    pub(super) handle: CUgraph,
    /// The nodes by handle, in the order of their creation.
    nodes: Mutex<BTreeMap<usize, Node>>,
    /// User objects that live as long as the graph.
    pub(super) references: References,
    /// The parent, if it is a child graph: it cannot be destroyed or launched by itself.
    parent: Mutex<Option<Weak<Graph>>>,
    /// The conditions that its kernels can set.
    conditions: Mutex<Vec<Arc<Condition>>>,
    /// The number of active captures into it.
    captures: AtomicUsize,
}

impl Drop for Graph {
    fn drop(&mut self) {
        for node in self.lock().keys() {
            NODES.remove(Handle::new(*node));
        }
    }
}

impl Graph {
    /// Creates an empty graph whose handle is not registered.
    pub(in super::super) fn new() -> Arc<Graph> {
        Arc::new(Graph {
            handle: Handle::unique(),
            nodes: Mutex::default(),
            references: References::default(),
            parent: Mutex::default(),
            conditions: Mutex::default(),
            captures: AtomicUsize::new(0),
        })
    }

    /// Counts a stream that begins to capture into it.
    pub(in super::super) fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the end of a capture.
    pub(in super::super) fn capture_ends(&self) {
        self.captures.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses to destroy the graph or its nodes while a stream captures into it.
    fn check_not_captured(&self) -> CuResult<()> {
        match self.captures.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        }
    }

    /// Registers the handle.
    pub(in super::super) fn publish(self: &Arc<Self>) -> CUgraph {
        GRAPHS.insert(self.handle, Arc::clone(self));
        self.handle
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node whose dependencies must be nodes of this graph.
    pub(in super::super) fn add(self: &Arc<Self>, node: Node) -> CuResult<CUgraphNode> {
        let handle = CUgraphNode::unique();
        let mut nodes = self.lock();
        let mut seen = BTreeSet::new();
        for (dependency, _) in &node.dependencies {
            if !nodes.contains_key(&dependency.0) || !seen.insert(dependency.0) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        // Memory is freed as often as it is allocated, and memory of another graph once.
        if let Work::Free(ptr, _) = node.work {
            let works = || nodes.values().map(|node| &node.work);
            let allocated =
                works().filter(|work| matches!(work, Work::Alloc(memory) if memory.ptr == ptr)).count();
            let freed = works().filter(|work| matches!(work, Work::Free(same, _) if *same == ptr)).count();
            if freed >= allocated.max(1) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        let inside = match &node.work {
            Work::Child(child) => std::slice::from_ref(child),
            Work::Conditional(node) => node.graphs.as_slice(),
            _ => &[],
        };
        for graph in inside {
            *graph.parent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(self));
        }
        nodes.insert(handle.0, node);
        drop(nodes);
        NODES.insert(handle, Arc::new(Place(Arc::downgrade(self))));
        Ok(handle)
    }

    /// Reads nodes of this graph from a call's arguments, with edge data or without.
    pub(in super::super) fn read_dependencies(
        &self,
        nodes: In<CUgraphNode>,
        edges: In<CUgraphEdgeData>,
        count: usize,
    ) -> CuResult<Vec<(CUgraphNode, CUgraphEdgeData)>> {
        let known = self.lock();
        // More nodes than the graph has would contain duplicates.
        if count > known.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut found = Vec::with_capacity(count);
        for index in 0..count {
            let node = nodes.at(index)?;
            let edge =
                if edges.is_null() { CUgraphEdgeData::default() } else { check_edge(edges.at(index)?)? };
            if !known.contains_key(&node.0) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            found.push((node, edge));
        }
        Ok(found)
    }

    /// Returns these nodes and all their direct and indirect dependencies.
    pub(in super::super) fn ancestors(&self, mut open: Vec<CUgraphNode>) -> BTreeSet<usize> {
        let nodes = self.lock();
        let mut found = BTreeSet::new();
        while let Some(node) = open.pop() {
            if found.insert(node.0)
                && let Some(node) = nodes.get(&node.0)
            {
                open.extend(node.dependencies.iter().map(|(dependency, _)| *dependency));
            }
        }
        found
    }

    /// Returns a node that prevents kernels from launching the graph.
    pub(super) fn not_for_device(&self) -> Option<CUgraphNode> {
        let nodes = self.lock();
        let unfit = nodes.iter().find(|(_, node)| match &node.work {
            Work::Kernel(kernel) => kernel.function.kernel().is_ok_and(|kernel| kernel.launches_kernels),
            Work::Copy(copy) => !copy.is_for_device(),
            Work::Fill(_) => false,
            Work::Child(graph) => graph.not_for_device().is_some(),
            _ => true,
        });
        unfit.map(|(node, _)| Handle::new(*node))
    }

    /// Returns whether kernels may change any of its nodes, here or in a child.
    pub(super) fn is_updatable(&self) -> bool {
        self.lock().values().any(|node| match &node.work {
            Work::Kernel(kernel) => kernel.updatable.is_some(),
            Work::Child(graph) => graph.is_updatable(),
            _ => false,
        })
    }

    /// Returns whether it is the graph of a child node.
    pub(super) fn is_child(&self) -> bool {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Makes the graph own a condition.
    pub(super) fn add_condition(&self, condition: Arc<Condition>) {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner).push(condition);
    }

    /// Returns whether each of its conditions has a node, here or in a graph of a node.
    pub(super) fn uses_its_conditions(&self) -> bool {
        let conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.iter().all(|condition| self.uses(condition))
    }

    fn uses(&self, condition: &Arc<Condition>) -> bool {
        self.lock().values().any(|node| match &node.work {
            Work::Child(child) => child.uses(condition),
            Work::Conditional(node) => {
                Arc::ptr_eq(&node.condition, condition)
                    || node.graphs.iter().any(|graph| graph.uses(condition))
            }
            _ => false,
        })
    }

    /// Returns a copy with new nodes. Not for graphs that allocate memory or have conditional nodes.
    pub(super) fn copy(&self) -> CuResult<Arc<Graph>> {
        let copy = Graph::new();
        copy.references.share(&self.references);
        let nodes = self.lock().clone();
        let mut renamed = BTreeMap::new();
        for (old, node) in &nodes {
            let work = match &node.work {
                Work::Child(child) => Work::Child(child.copy()?),
                Work::Alloc(_) | Work::Free(..) | Work::Conditional(_) => {
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
                other => other.clone(),
            };
            let new = copy.add(Node { work, dependencies: Vec::new(), original: Some(Handle::new(*old)) })?;
            renamed.insert(*old, new);
        }
        // Afterwards, because edges may lead from newer nodes to older ones.
        for (old, node) in nodes {
            let rename = |(from, edge): (CUgraphNode, CUgraphEdgeData)| Some((*renamed.get(&from.0)?, edge));
            if let Some(new) = copy.lock().get_mut(&renamed[&old].0) {
                new.dependencies = node.dependencies.into_iter().filter_map(rename).collect();
            }
        }
        Ok(copy)
    }

    /// Returns the nodes in an order in which each follows its dependencies, or `None` if these are circular.
    pub(super) fn sorted(&self) -> Option<Vec<(CUgraphNode, Node)>> {
        let mut waiting = self.lock().clone();
        let mut sorted = Vec::with_capacity(waiting.len());
        let mut open: BTreeMap<usize, usize> =
            waiting.iter().map(|(handle, node)| (*handle, node.dependencies.len())).collect();
        let mut dependents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (handle, node) in &waiting {
            for (from, _) in &node.dependencies {
                dependents.entry(from.0).or_default().push(*handle);
            }
        }
        let mut ready: BTreeSet<usize> = open.iter().filter(|(_, n)| **n == 0).map(|(h, _)| *h).collect();
        while let Some(handle) = ready.pop_first() {
            if let Some(node) = waiting.remove(&handle) {
                sorted.push((Handle::new(handle), node));
            }
            for dependent in dependents.remove(&handle).unwrap_or_default() {
                if let Some(left) = open.get_mut(&dependent) {
                    *left -= 1;
                    if *left == 0 {
                        ready.insert(dependent);
                    }
                }
            }
        }
        waiting.is_empty().then_some(sorted)
    }
}

/// Returns the graph of a handle.
pub(in super::super) fn find(handle: CUgraph) -> CuResult<Arc<Graph>> {
    GRAPHS.get(handle).ok_or_else(|| handle.refusal())
}

/// Removes a handle.
pub(super) fn forget(handle: CUgraph) {
    GRAPHS.remove(handle);
}

/// cuGraphDestroy
pub(super) fn destroy(handle: CUgraph) -> CuResult<()> {
    let graph = find(handle)?;
    if graph.is_child() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    graph.check_not_captured()?;
    GRAPHS.remove(handle).map(|_| ()).ok_or_else(|| handle.refusal())
}

/// Returns the graph that contains a node.
pub(super) fn graph_of(node: CUgraphNode) -> CuResult<Arc<Graph>> {
    NODES.get(node).and_then(|place| place.0.upgrade()).ok_or_else(|| node.refusal())
}

/// Returns the work of a node.
pub(super) fn work_of(node: CUgraphNode) -> CuResult<Work> {
    let graph = graph_of(node)?;
    let work = graph.lock().get(&node.0).map(|node| node.work.clone());
    work.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Checks that a node is of a kind.
pub(super) fn check_kind(node: CUgraphNode, kind: u32) -> CuResult<()> {
    if work_of(node)?.kind() == kind { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Changes the work of a node. Its kind must stay.
pub(super) fn set_work(node: CUgraphNode, work: Work) -> CuResult<()> {
    let graph = graph_of(node)?;
    let mut nodes = graph.lock();
    let found = nodes.get_mut(&node.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if found.work.kind() != work.kind() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    found.work = work;
    Ok(())
}

/// cuGraphDestroyNode
pub(super) fn destroy_node(handle: CUgraphNode) -> CuResult<()> {
    let graph = graph_of(handle)?;
    graph.check_not_captured()?;
    let mut nodes = graph.lock();
    let stays = |node: &Node| match &node.work {
        Work::Alloc(_) | Work::Free(..) => true,
        Work::Kernel(kernel) => kernel.updatable.is_some(),
        _ => false,
    };
    if nodes.get(&handle.0).is_some_and(stays) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    // Dropped after the lock, because a child graph locks, too.
    let removed = nodes.remove(&handle.0);
    for node in nodes.values_mut() {
        node.dependencies.retain(|(dependency, _)| *dependency != handle);
    }
    drop(nodes);
    drop(removed);
    NODES.remove(handle);
    Ok(())
}
