// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of NVIDIA's libraries that were captured, by the nodes that they have added. Only the library can add such nodes again
//! ([`crate::handlers::graph::again`]).

use std::sync::Arc;

use vhost_cuda_common::budget::Charge;
use virtio_cuda_protocol::cuda::GraphId;

use super::Graphs;
use crate::gpu::{CUgraph, CUgraphNode};

/// Bytes, with the memory that they are charged for.
#[derive(Debug)]
pub struct Record {
    pub bytes: Box<[u8]>,
    _charge: Charge,
}

impl Record {
    pub fn new(bytes: Box<[u8]>, charge: Charge) -> Self {
        Self { bytes, _charge: charge }
    }
}

/// A captured call.
#[derive(Debug)]
pub struct Captured {
    /// The calls that make its handles and have set what they were at that time. Calls with the same handles share them.
    pub before: Arc<Record>,
    /// The call.
    pub call: Record,
}

/// A node of a captured call: its place among those that the call has added.
pub type Place = (Arc<Captured>, u32);

impl Graphs {
    /// Returns whether one of the driver's graphs has a name.
    pub fn is_named(&self, graph: CUgraph) -> bool {
        self.tables.lock().graph_names.contains_key(&(graph as usize))
    }

    /// Notes the nodes that a captured call has added to a graph, in the order in which they are found again.
    pub fn note_captured(&self, graph: CUgraph, nodes: &[CUgraphNode], captured: &Arc<Captured>) {
        let Some(name) = self.tables.lock().graph_names.get(&(graph as usize)).copied() else { return };
        for (place, node) in (0..).zip(nodes) {
            self.set_captured(GraphId(name), *node, (captured.clone(), place));
        }
    }

    /// Notes that a node is the one at that place of a captured call.
    pub fn set_captured(&self, graph: GraphId, node: CUgraphNode, place: Place) {
        if let Some(graph) = self.tables.lock().graphs.get_mut(&graph.0) {
            graph.captured.insert(node as usize, place);
        }
    }

    /// Returns the captured call that has added a node.
    pub fn captured(&self, graph: GraphId, node: CUgraphNode) -> Option<Place> {
        self.tables.lock().graphs.get(&graph.0)?.captured.get(&(node as usize)).cloned()
    }

    /// Returns the record of these bytes: the last one again, if it has the same. `None` if there is no memory for them.
    pub fn share_record(
        &self,
        bytes: Vec<u8>,
        charge: impl FnOnce(usize) -> Option<Charge>,
    ) -> Option<Arc<Record>> {
        let mut last = self.last_record.lock();
        if let Some(record) = last.upgrade().filter(|record| *record.bytes == bytes[..]) {
            return Some(record);
        }
        let charge = charge(bytes.len())?;
        let record = Arc::new(Record::new(bytes.into(), charge));
        *last = Arc::downgrade(&record);
        Some(record)
    }
}
