// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls in streams that capture. The nodes that a library adds have kernels of its own, which only the same call can add again, so
//! the call is kept with its graph.

use std::sync::Arc;

use super::attempt::Attempt;
use crate::gpu::{CUgraph, CUgraphNode, CUstream, Driver, STREAM_LEGACY};
use crate::objects::graphs::{Captured, Record};
use crate::recipe::captured::bytes_of_call;
use crate::vendor::handles::{Locked, charge};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: i32 = 1;
/// The maximum number of nodes that are noted of one call. Bounds the time that it takes to find them.
const MAX_NODES: usize = 256;

/// A capture before a call.
pub(super) struct Capture {
    stream: CUstream,
    graph: CUgraph,
    /// The nodes that the call's first nodes depend on.
    before: Vec<CUgraphNode>,
}

impl Attempt<'_> {
    /// Returns the capture to which the call adds its nodes.
    pub(super) fn capture(
        &self,
        slots: &[u64],
        first: Option<&(usize, u64)>,
        locked: &[((usize, u64), Locked)],
    ) -> Option<Capture> {
        let graphs = &self.cx.session.graphs;
        if !graphs.is_capturing() {
            return None;
        }
        let stream = self.stream(slots, first, locked).filter(|stream| *stream != STREAM_LEGACY)?;
        if !self.cx.note_capture(stream) {
            return None;
        }
        let info = self.cx.gpu().capture_info(stream).ok().filter(|info| info.status == ACTIVE)?;
        // The worker's own graphs are not.
        if !graphs.is_named(info.graph) {
            return None;
        }
        Some(Capture { stream, graph: info.graph, before: info.links.nodes })
    }

    /// Notes the nodes that the call has added. Without them the graph is not made again.
    pub(super) fn note_captured(&self, capture: &Capture, block: &[u8]) {
        let session = self.cx.session;
        let Some(nodes) = added(self.cx.gpu(), capture.stream, capture.graph, &capture.before) else {
            return;
        };
        if nodes.is_empty() {
            return;
        }
        let charged = |bytes| charge(bytes).ok();
        let arguments = [self.loaded.rows.number, self.number].map(u32::to_le_bytes).concat();
        let captured = bytes_of_call(self.cx, &arguments, block).and_then(|(before, call)| {
            let before = session.graphs.share_record(before, charged)?;
            let charge = charged(call.len())?;
            Some(Arc::new(Captured { before, call: Record::new(call.into(), charge) }))
        });
        if let Some(captured) = captured {
            session.graphs.note_captured(capture.graph, &nodes, &captured);
        }
    }
}

/// Returns the nodes that were added to a capture since its next work depended on `before`. `None` if they are not known.
pub fn added(
    gpu: &Driver,
    stream: CUstream,
    graph: CUgraph,
    before: &[CUgraphNode],
) -> Option<Vec<CUgraphNode>> {
    let info = gpu.capture_info(stream).ok().filter(|info| info.status == ACTIVE && info.graph == graph)?;
    let (mut found, mut left) = (Vec::new(), info.links.nodes);
    while let Some(node) = left.pop() {
        if before.contains(&node) || found.contains(&node) {
            continue;
        }
        if found.len() == MAX_NODES {
            return None;
        }
        found.push(node);
        left.extend(gpu.node_links(graph, node, false).ok()?.0.found.nodes);
    }
    Some(found)
}
