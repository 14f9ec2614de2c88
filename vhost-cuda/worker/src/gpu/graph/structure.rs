// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes of graphs and the edges between them.

use std::ptr::{null, null_mut};

use cudarc::driver::sys::CUgraphEdgeData;

use super::super::{CUgraph, CUgraphNode, CuResult, Driver};

const _: () = assert!(size_of::<CUgraphEdgeData>() == 8);

/// Nodes at the other ends of edges, with the `CUgraphEdgeData` of each.
#[derive(Debug, Default)]
pub struct Links {
    /// The nodes.
    pub nodes: Vec<CUgraphNode>,
    /// The same number of edges.
    pub edges: Vec<[u8; 8]>,
}

/// Edges of a graph.
#[derive(Debug, Default)]
pub struct Edges {
    /// The nodes at which they begin.
    pub from: Vec<CUgraphNode>,
    /// The nodes at which they end, in the same order.
    pub to: Links,
}

/// A part of a graph, with the graph: nodes have names by the graph that they are in.
#[derive(Debug)]
pub struct InGraph<T> {
    /// The graph.
    pub graph: CUgraph,
    /// Its part.
    pub found: T,
}

impl Links {
    /// Returns null if no edge has data: older drivers do not support edge data.
    pub(super) fn edges(&self) -> *const CUgraphEdgeData {
        let plain = self.edges.iter().all(|edge| *edge == [0; 8]);
        if plain { null() } else { self.edges.as_ptr().cast() }
    }
    pub(super) fn nodes(&self) -> *const CUgraphNode {
        if self.nodes.is_empty() { null() } else { self.nodes.as_ptr() }
    }
}

impl Driver {
    /// Returns the nodes of a graph, or its roots.
    pub fn graph_nodes(&self, graph: CUgraph, roots: bool) -> CuResult<(InGraph<Vec<CUgraphNode>>,)> {
        let get = |nodes: *mut CUgraphNode, count: &mut usize| {
            // SAFETY: `nodes` is null or has room for `count`.
            unsafe {
                if roots {
                    self.cuGraphGetRootNodes(graph, nodes, count)
                } else {
                    self.cuGraphGetNodes(graph, nodes, count)
                }
            }
        };
        let mut count = 0;
        get(null_mut(), &mut count)?;
        let mut nodes = vec![null_mut(); count];
        if count > 0 {
            get(nodes.as_mut_ptr(), &mut count)?;
        }
        nodes.truncate(count);
        Ok((InGraph { graph, found: nodes },))
    }

    /// Returns the edges of a graph.
    pub fn graph_edges(&self, graph: CUgraph) -> CuResult<(InGraph<Edges>,)> {
        let mut count = 0;
        // SAFETY: asks for the count only.
        unsafe { self.cuGraphGetEdges_v2(graph, null_mut(), null_mut(), null_mut(), &raw mut count) }?;
        let mut from = vec![null_mut(); count];
        let mut to = Links { nodes: vec![null_mut(); count], edges: vec![[0; 8]; count] };
        if count > 0 {
            // SAFETY: all three have room for `count`.
            unsafe {
                self.cuGraphGetEdges_v2(
                    graph,
                    from.as_mut_ptr(),
                    to.nodes.as_mut_ptr(),
                    to.edges.as_mut_ptr().cast(),
                    &raw mut count,
                )
            }?;
        }
        Ok((InGraph { graph, found: Edges { from, to } },))
    }

    /// Adds or removes edges.
    pub fn change_edges(&self, graph: CUgraph, Edges { from, to }: Edges, add: bool) -> CuResult<()> {
        let count = from.len().min(to.nodes.len());
        // SAFETY: as many nodes and edges as said.
        unsafe {
            if add {
                self.cuGraphAddDependencies_v2(graph, from.as_ptr(), to.nodes(), to.edges(), count)
            } else {
                self.cuGraphRemoveDependencies_v2(graph, from.as_ptr(), to.nodes(), to.edges(), count)
            }
        }
    }

    /// Returns the copy of a node in `clone`, a clone of its graph.
    pub fn find_in_clone(&self, node: CUgraphNode, clone: CUgraph) -> CuResult<(InGraph<CUgraphNode>,)> {
        let (found,) = self.cuGraphNodeFindInClone(node, clone)?;
        Ok((InGraph { graph: clone, found },))
    }

    /// Returns the nodes that a node of `graph` depends on, or those that depend on it.
    pub fn node_links(
        &self,
        graph: CUgraph,
        node: CUgraphNode,
        dependents: bool,
    ) -> CuResult<(InGraph<Links>,)> {
        let get = |nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: &mut usize| {
            // SAFETY: both are null or have room for `count`.
            unsafe {
                if dependents {
                    self.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)
                } else {
                    self.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
                }
            }
        };
        let mut count = 0;
        get(null_mut(), null_mut(), &mut count)?;
        let mut links = Links { nodes: vec![null_mut(); count], edges: vec![[0; 8]; count] };
        if count > 0 {
            get(links.nodes.as_mut_ptr(), links.edges.as_mut_ptr().cast(), &mut count)?;
        }
        Ok((InGraph { graph, found: links },))
    }
}
