// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes graphs again from bytes, of which nothing is trusted: another worker may have written them.

use virtio_cuda_protocol::cuda::{
    CallbackId, ContextId, GraphExecId, GraphId, GraphNodeId, NODE_GRAPH, UserObjectId,
};
use zerocopy::FromBytes;

use super::library::Repeater;
use super::{
    AttributeRow, EdgeRow, ExecHead, GraphHead, Head, MAX_DEPTH, NodeHead, OF_LIBRARY, References, call,
};
use crate::call::lifecycle::Create;
use crate::call::{CallContext, ThreadState};
use crate::gpu::{CuResult, CudaError, Edges, Links, NodeParameters};
use crate::handlers::graph::exec::{cuGraphNodeSetEnabled, cuGraphRetainUserObject, cuUserObjectCreate};
use crate::handlers::graph::node::{cuGraphExecNodeSetParams, graph_add_node};
use crate::state::SessionState;
use crate::words::attribute_value;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// Makes graphs.
struct Maker<'a> {
    session: &'static SessionState,
    thread: &'a mut ThreadState,
    context: ContextId,
    rest: &'a [u8],
    repeater: Repeater,
}

/// Makes the graphs of a session. Its contexts, functions, events and memory are there.
///
/// Errors: the driver's, and `CUDA_ERROR_INVALID_VALUE`. A part of the graphs may be there.
pub fn make(session: &'static SessionState, bytes: &[u8]) -> CuResult<()> {
    let (head, rest) = Head::read_from_prefix(bytes).map_err(|_| CudaError::INVALID_VALUE)?;
    let (mut thread, context) = (ThreadState::default(), ContextId(head.context));
    thread.make_current(session, context)?;
    session.graphs.begin_again(head.named);
    let repeater = Repeater::new(session, context);
    let mut maker = Maker { session, thread: &mut thread, context, rest, repeater };
    let made = maker.all(&head);
    session.graphs.end_again();
    drop(maker);
    thread.held.release();
    let gpu = &session.gpu;
    let ties = session.graphs.take_ties();
    let released = ties.into_iter().try_for_each(|tie| gpu.cuUserObjectRelease(tie, 1));
    session.graphs.hide_unused();
    let ended = session.graphs.take_unused().into_iter().try_for_each(|graph| gpu.cuGraphDestroy(graph));
    made.and(released).and(ended)
}

impl<'a> Maker<'a> {
    fn take<T: FromBytes>(&mut self) -> CuResult<T> {
        let (row, rest) = T::read_from_prefix(self.rest).map_err(|_| CudaError::INVALID_VALUE)?;
        self.rest = rest;
        Ok(row)
    }

    fn bytes(&mut self, count: u32) -> CuResult<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count as usize).ok_or(CudaError::INVALID_VALUE)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Makes a call, and ends it.
    fn during<T>(
        &mut self,
        bulk: &[u8],
        body: impl FnOnce(&mut CallContext<'_>) -> CuResult<T>,
    ) -> CuResult<T> {
        let result = body(&mut call(self.session, self.thread, self.context, bulk));
        self.thread.held.release();
        result
    }

    fn all(&mut self, head: &Head) -> CuResult<()> {
        let mut objects = Vec::new();
        for _ in 0..head.objects {
            let References { object, count } = self.take()?;
            // One more, so that it does not end before its graphs are there.
            let first = count.checked_add(1).and_then(|first| u32::try_from(first).ok());
            let first = first.ok_or(CudaError::INVALID_VALUE)?;
            let (id, callback) = (UserObjectId(object), CallbackId(object));
            self.during(&[], |cx| cuUserObjectCreate(cx, id, callback, first, NO_DESTRUCTOR_SYNC))?;
            objects.push(id);
        }
        for _ in 0..head.graphs {
            let row: GraphHead = self.take()?;
            let graph = GraphId(row.name);
            self.during(&[], |cx| {
                let name = graph.reserve(cx)?;
                let (raw,) = cx.gpu().cuGraphCreate(0)?;
                graph.made(cx, name, raw)
            })?;
            self.nodes(&row, 0)?;
            if row.is_hidden != 0 {
                self.session.graphs.hide_again(graph)?;
            }
        }
        for _ in 0..head.execs {
            self.exec()?;
        }
        let (session, gpu) = (self.session, &self.session.gpu);
        objects.into_iter().try_for_each(|object| session.objects.user_objects.release(gpu, object, 1))?;
        if self.rest.is_empty() { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Fills a graph.
    fn nodes(&mut self, head: &GraphHead, depth: usize) -> CuResult<()> {
        let graph = GraphId(head.name);
        for _ in 0..head.nodes {
            self.node(graph, depth)?;
        }
        let mut rows = Vec::new();
        for _ in 0..head.edges {
            rows.push(self.take::<EdgeRow>()?);
        }
        self.during(&[], |cx| {
            let mut edges = Edges::default();
            let raw = cx.graph(graph)?;
            for EdgeRow { from, to, data } in rows {
                edges.from.push(cx.node(GraphNodeId(from))?);
                edges.to.nodes.push(cx.node(GraphNodeId(to))?);
                edges.to.edges.push(data);
            }
            if edges.from.is_empty() { Ok(()) } else { cx.gpu().change_edges(raw, edges, true) }
        })?;
        for _ in 0..head.objects {
            let References { object, count } = self.take()?;
            let count = u32::try_from(count).map_err(|_| CudaError::INVALID_VALUE)?;
            self.during(&[], |cx| cuGraphRetainUserObject(cx, graph, UserObjectId(object), count, 0))?;
        }
        Ok(())
    }

    fn node(&mut self, graph: GraphId, depth: usize) -> CuResult<()> {
        let head: NodeHead = self.take()?;
        let (node, bytes) = (GraphNodeId(head.name), self.bytes(head.bytes)?);
        if head.kind == NODE_GRAPH {
            return self.child(graph, node, depth);
        }
        match head.kind {
            OF_LIBRARY => self.repeater.make(graph, node, bytes)?,
            kind => drop(self.during(bytes, |cx| graph_add_node(cx, graph, node, kind, 0))?),
        }
        for _ in 0..head.attributes {
            let AttributeRow { id, value } = self.take()?;
            let id = i32::try_from(id).map_err(|_| CudaError::INVALID_VALUE)?;
            self.during(&[], |cx| {
                let raw = cx.node(node)?;
                // Some that a node has by its kernel cannot be set.
                match cx.gpu().node_attribute(raw, id)? {
                    (now,) if now == value => Ok(()),
                    _ => cx.gpu().set_node_attribute(id, attribute_value(cx, id, value)?, raw),
                }
            })?;
        }
        Ok(())
    }

    /// Adds a node with a graph in it. The driver copies the graph of such a node when it is added, so that is an empty one, and the
    /// copy is filled.
    fn child(&mut self, graph: GraphId, node: GraphNodeId, depth: usize) -> CuResult<()> {
        let inner: GraphHead = self.take()?;
        if depth + 1 >= MAX_DEPTH {
            return Err(CudaError::INVALID_VALUE);
        }
        self.during(&[], |cx| {
            let (gpu, graphs) = (cx.gpu(), &cx.session.graphs);
            let _node = graphs.take_node_name(node)?;
            let _inner = graphs.take_graph_name(GraphId(inner.name))?;
            let raw_graph = cx.graph(graph)?;
            let (empty,) = gpu.cuGraphCreate(0)?;
            // SAFETY: a graph does not refer to memory.
            let added =
                unsafe { gpu.add_node(raw_graph, &Links::default(), &mut NodeParameters::Graph(empty)) };
            let ended = gpu.cuGraphDestroy(empty);
            let (raw, _) = added?;
            graphs.add_node(node, raw, graph, None);
            let (raw_inner,) = gpu.cuGraphChildGraphNodeGetGraph(raw)?;
            graphs.add_graph(cx.held(), GraphId(inner.name), raw_inner, Some(node));
            ended
        })?;
        self.nodes(&inner, depth + 1)
    }

    fn exec(&mut self) -> CuResult<()> {
        let head: ExecHead = self.take()?;
        let (exec, graph) = (GraphExecId(head.name), GraphId(head.graph));
        if head.flags & DEVICE_LAUNCH != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        self.during(&[], |cx| {
            let name = exec.reserve(cx)?;
            let (raw,) = cx.gpu().instantiate_with_flags(cx.graph(graph)?, head.flags)?;
            exec.made(cx, name, raw)
        })?;
        for _ in 0..head.own {
            let NodeHead { name, kind, bytes, .. } = self.take()?;
            let bytes = self.bytes(bytes)?;
            self.during(bytes, |cx| cuGraphExecNodeSetParams(cx, exec, GraphNodeId(name), kind))?;
        }
        for _ in 0..head.off {
            let node = GraphNodeId(self.take()?);
            self.during(&[], |cx| cuGraphNodeSetEnabled(cx, exec, node, 0))?;
        }
        Ok(())
    }
}
