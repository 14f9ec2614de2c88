// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capturing streams, and the graphs into which they capture. The driver continues to use such a graph, so no node
//! may be removed from it.

use std::sync::atomic::Ordering;

use virtio_cuda_protocol::cuda::{GraphId, GraphNodeId};

use super::tables::Capture;
use super::{Capturing, Graphs};
use crate::gpu::{CuResult, CudaError};
use crate::objects::Exclusive;

impl Graphs {
    /// Returns whether any stream captures, or is about to.
    pub fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire) > 0
    }

    /// Returns the lock of all captures.
    pub fn captures(&self) -> &Exclusive {
        &self.captures
    }

    /// Notes that a stream is about to capture. From now on other calls that use it check whether it captures.
    /// Returns `false` if it captured before.
    pub fn capture_begins(&self, stream: Capturing) -> bool {
        let mut tables = self.tables.lock();
        let before = tables.captures.len();
        tables.captures.entry(stream).or_default();
        self.capturing.store(tables.captures.len(), Ordering::Release);
        tables.captures.len() > before
    }

    /// Records the graph into which a stream captures. With `ends_with_it` the graph ends if the capture fails.
    pub fn capture_begun(&self, stream: Capturing, graph: GraphId, ends_with_it: bool) {
        self.tables.lock().captures.insert(stream, Capture { graph: Some(graph.0), ends_with_it });
    }

    /// Ends a capture. After an error the driver has destroyed its graph.
    pub fn capture_ended(&self, stream: Capturing, failed: bool) {
        let mut tables = self.tables.lock();
        let capture = tables.captures.remove(&stream);
        self.capturing.store(tables.captures.len(), Ordering::Release);
        if let Some(Capture { graph: Some(graph), ends_with_it: true }) = capture
            && failed
        {
            tables.remove_graph(graph);
        }
    }

    /// Forgets captures of default streams, which are not objects and end with their context.
    pub fn default_captures_ended(&self, of_context: u64) {
        let is_over = |stream: &Capturing| matches!(stream, Capturing::OfThread { context, .. } if *context == of_context);
        let over: Vec<_> = self.tables.lock().captures.keys().copied().filter(is_over).collect();
        over.into_iter().for_each(|stream| self.capture_ended(stream, true));
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
}
