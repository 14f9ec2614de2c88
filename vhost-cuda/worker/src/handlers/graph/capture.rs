// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream capture, and host functions in streams.

use rustix::thread::gettid;
use vhost_cuda_common::recording::LANE;
use virtio_cuda_protocol::cuda::{CallbackId, GraphId, MemcpyNode, Reader, StreamId};

use crate::call::CallContext;
use crate::gpu::{CUstream, CuResult, CudaError, Links};
use crate::handlers::graph::node::{add_wrapped_copy, tie_callback};
use crate::objects::graphs::Capturing;
use crate::run::callbacks::{CALLBACKS, run_node, run_once};
use crate::words::contents::{all_links, bulk, take};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: i32 = 1;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET_DEPENDENCIES: u32 = 1;
/// `CU_STREAM_PER_THREAD`. Each thread has its own default stream in each context.
const PER_THREAD: u64 = 2;

/// Returns the key by which captures identify the stream of a call.
fn capturing(cx: &CallContext<'_>, stream: StreamId, raw: CUstream) -> Capturing {
    if stream.0 == PER_THREAD {
        return Capturing::OfThread { thread: gettid().as_raw_nonzero().get(), context: cx.home() };
    }
    Capturing::Stream(raw as usize)
}

/// Returns whether work for the stream is captured. An error of this query is ignored, because the work itself gets
/// the same error.
pub fn captures(cx: &CallContext<'_>, stream: CUstream) -> bool {
    // The capture may have begun after the call has looked the stream up.
    cx.note_capture(stream) && matches!(cx.gpu().cuStreamIsCapturing(stream), Ok((ACTIVE,)))
}

/// Begins a capture by `begin`, so that no other call uses the stream without noticing it.
fn begin_capture(
    cx: &CallContext<'_>,
    id: StreamId,
    stream: CUstream,
    begin: impl FnOnce() -> CuResult<()>,
) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    let new = graphs.capture_begins(capturing(cx, id, stream));
    begin().inspect_err(|_| {
        // Not if the error means that the stream captures already.
        if new {
            graphs.capture_ended(capturing(cx, id, stream), false);
        }
    })
}

/// Begins a capture. Its graph is known from now on, and must be forgotten if the capture fails.
pub fn cuStreamBeginCapture_v2(cx: &mut CallContext<'_>, stream: StreamId, mode: u32) -> CuResult<()> {
    let raw = cx.resolve(stream)?;
    cx.held().lock_captures(cx.session.graphs.captures());
    begin_capture(cx, stream, raw, || cx.gpu().cuStreamBeginCapture_v2(raw, mode))?;
    let info = cx.gpu().capture_info(raw)?;
    if info.status == ACTIVE {
        let graph = cx.session.graphs.name_graph(info.graph, None);
        cx.session.graphs.capture_begun(capturing(cx, stream, raw), graph, true);
    }
    Ok(())
}

/// Ends a capture.
pub fn cuStreamEndCapture(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<(GraphId,)> {
    let raw = cx.resolve(stream)?;
    let ended = cx.gpu().cuStreamEndCapture(raw);
    // Errors about the stream leave the capture as it is.
    if !matches!(ended, Err(CudaError::INVALID_HANDLE | CudaError::ILLEGAL_STATE | CudaError::WRONG_THREAD)) {
        cx.session.graphs.capture_ended(capturing(cx, stream, raw), ended.is_err());
    }
    let (graph,) = ended?;
    if graph.is_null() {
        return Ok((GraphId(0),));
    }
    Ok((cx.session.graphs.name_graph(graph, None),))
}

/// Captures into a graph.
pub fn cuStreamBeginCaptureToGraph(
    cx: &mut CallContext<'_>,
    stream: StreamId,
    graph: GraphId,
    mode: u32,
) -> CuResult<()> {
    let raw = cx.resolve(stream)?;
    cx.held().lock_captures(cx.session.graphs.captures());
    let raw_graph = cx.graph(graph)?;
    let links = all_links(cx)?;
    begin_capture(cx, stream, raw, || cx.gpu().begin_capture_to(raw, raw_graph, &links, mode))?;
    cx.session.graphs.changed(graph);
    cx.session.graphs.capture_begun(capturing(cx, stream, raw), graph, false);
    Ok(())
}

/// Captures a copy of memory that the GPU cannot access.
pub fn capture_memcpy(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let copy: MemcpyNode = take(&mut Reader::new(&bulk(cx)?))?;
    let info = cx.gpu().capture_info(stream)?;
    if info.status != ACTIVE {
        return Err(CudaError::ILLEGAL_STATE);
    }
    let node = add_wrapped_copy(cx, info.graph, &info.links, &copy)?;
    cx.session.graphs.add_disguised(node, info.graph, copy);
    let next = Links { nodes: vec![node], edges: vec![[0; 8]] };
    cx.gpu().update_capture(stream, next, SET_DEPENDENCIES)
}

/// Makes the guest run a function in stream order, or captures it as a node.
pub fn cuLaunchHostFunc(cx: &mut CallContext<'_>, stream: StreamId, callback: CallbackId) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let captured = captures(cx, stream);
    let function = if captured { run_node } else { run_once };
    let data = std::ptr::without_provenance_mut(callback.0 as usize);
    // SAFETY: the functions take any number.
    unsafe { cx.gpu().cuLaunchHostFunc(stream, Some(function), data) }?;
    if captured {
        tie_callback(cx, cx.gpu().capture_info(stream)?.graph, callback);
    }
    Ok(())
}

/// Returns the next callback that is due.
pub fn session_next_callback(cx: &mut CallContext<'_>, done: u64) -> CuResult<(u64, CallbackId, i32, u32)> {
    CALLBACKS.finish(done);
    let Some(due) = CALLBACKS.next(cx.thread.path == LANE) else { return Ok((0, CallbackId(0), 0, 0)) };
    // The user object has the name of its destructor.
    cx.session.objects.user_objects.remove(due.callback.0);
    Ok((due.ticket, due.callback, due.status, due.todo))
}
