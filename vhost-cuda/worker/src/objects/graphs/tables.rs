// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of graphs, nodes and executable graphs, by name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use virtio_cuda_protocol::cuda::{FIRST_WORKER_HANDLE, MemcpyNode};

use super::Capturing;
use super::captured::Place;
use super::sources::{Made, Source};
use crate::gpu::{CUgraph, CUgraphNode};
use crate::objects::{Exclusive, Object, exclusive};

/// The reservation of an allocating node: its base address, shared by everything that can allocate it.
pub type Lease = Arc<u64>;

/// The difference between two names that are created here.
const STEP: u64 = 16;

#[derive(Debug)]
pub(super) struct Graph {
    pub(super) raw: usize,
    /// The node that it lies in.
    pub(super) parent: Option<u64>,
    /// The lock of the graph that contains it, directly or not.
    pub(super) family: Exclusive,
    pub(super) leases: Vec<Lease>,
    /// Handles of conditional nodes.
    pub(super) handles: Vec<u64>,
    /// References to user objects, by name.
    pub(super) user_objects: HashMap<u64, u64>,
    /// What executable graphs know of it.
    pub(super) source: Arc<Source>,
    /// The graph that it is a copy of.
    pub(super) original: Weak<Source>,
    /// Nodes that calls of libraries have added.
    pub(super) captured: HashMap<usize, Place>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) raw: usize,
    pub(super) graph: u64,
    /// The copy that the guest knows this node as. In the driver it is a child graph with a copy and the callbacks
    /// around it.
    pub(super) copy: Option<MemcpyNode>,
    /// The user object that stands for the program's function in the node, or 0.
    pub(super) function: usize,
}

#[derive(Debug)]
pub(super) struct Exec {
    pub(super) object: Arc<Object>,
    pub(super) lock: Exclusive,
    pub(super) made: Made,
}

impl Exec {
    pub(super) fn new(object: Arc<Object>, made: Made) -> Self {
        Self { object, lock: exclusive(), made }
    }
}

/// A stream's capture.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Capture {
    /// The graph that it adds to, once that has a name.
    pub(super) graph: Option<u64>,
    /// True if the graph began with the capture and ends if the capture fails.
    pub(super) ends_with_it: bool,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) graphs: HashMap<u64, Graph>,
    pub(super) graph_names: HashMap<usize, u64>,
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) node_names: HashMap<usize, u64>,
    pub(super) execs: HashMap<u64, Exec>,
    /// Streams that capture.
    pub(super) captures: HashMap<Capturing, Capture>,
    /// Handles of conditional nodes.
    pub(super) handles: HashSet<u64>,
    /// Names of objects that are being created.
    pub(super) taken: HashSet<(Kind, u64)>,
    /// Hidden graphs that describe nothing any more, until they are destroyed.
    pub(super) unused: Vec<usize>,
    /// The bytes of parameters that executable graphs have for themselves.
    pub(super) own_bytes: usize,
    /// Names that were given here.
    pub(super) created: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Graph,
    Node,
    Exec,
}

impl Tables {
    /// Returns tables without objects, that give no name again.
    pub(super) fn emptied(&self) -> Self {
        Self { created: self.created, ..Self::default() }
    }

    pub(super) fn new_handle(&mut self) -> u64 {
        self.created += STEP;
        FIRST_WORKER_HANDLE + self.created
    }

    pub(super) fn family_of_node(&self, name: u64) -> Option<Exclusive> {
        Some(self.graphs.get(&self.nodes.get(&name)?.graph)?.family.clone())
    }

    pub(super) fn add_graph(&mut self, name: u64, raw: CUgraph, parent: Option<u64>) {
        let family = parent.and_then(|node| self.family_of_node(node)).unwrap_or_else(exclusive);
        self.graph_names.insert(raw as usize, name);
        let graph = Graph {
            raw: raw as usize,
            parent,
            family,
            leases: Vec::new(),
            handles: Vec::new(),
            user_objects: HashMap::new(),
            source: Source::of(name),
            original: Weak::new(),
            captured: HashMap::new(),
        };
        self.graphs.insert(name, graph);
    }

    pub(super) fn add_node(&mut self, name: u64, raw: CUgraphNode, graph: u64, copy: Option<MemcpyNode>) {
        self.node_names.insert(raw as usize, name);
        self.nodes.insert(name, Node { raw: raw as usize, graph, copy, function: 0 });
    }

    pub(super) fn remove_node(&mut self, name: u64) -> Vec<Lease> {
        if let Some(node) = self.nodes.remove(&name)
            && self.node_names.get(&node.raw) == Some(&name)
        {
            // Kept if the driver has meanwhile given the address to a new node of another thread.
            self.node_names.remove(&node.raw);
            if let Some(graph) = self.graphs.get_mut(&node.graph) {
                graph.captured.remove(&node.raw);
            }
        }
        self.remove_inside(name)
    }

    /// Returns the graphs into which streams capture, and all graphs that contain these, each with the node in
    /// between. The driver continues to use these graphs and the nodes that were captured last.
    pub(super) fn captured(&self) -> Vec<(u64, Option<u64>)> {
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
    pub(super) fn remove_inside(&mut self, name: u64) -> Vec<Lease> {
        let inside: Vec<u64> = self
            .graphs
            .iter()
            .filter(|(_, graph)| graph.parent == Some(name))
            .map(|(&name, _)| name)
            .collect();
        inside.into_iter().flat_map(|graph| self.remove_graph(graph)).collect()
    }

    /// Forgets a graph with all its contents.
    pub(super) fn remove_graph(&mut self, name: u64) -> Vec<Lease> {
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
