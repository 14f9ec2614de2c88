// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream capture: work that is put into a capturing stream becomes nodes of a graph. This file has the rules for
//! other calls meanwhile; `api` has the calls.

mod api;
mod branch;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use cuda_abi::CUgraphEdgeData;

use super::context::{self, Context};
use super::event::Captured;
use super::graph::{CUgraphNode, Graph, Node, Work};
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream, Stream};
use branch::{Branch, lock};

/// CUstreamCaptureMode
pub(super) const GLOBAL: u32 = 0;
pub(super) const RELAXED: u32 = 2;

thread_local! {
    /// This thread's CUstreamCaptureMode.
    pub(super) static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// All captures under way.
static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// The number of captures. The usual value 0 is read without a lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// From cuStreamBeginCapture to cuStreamEndCapture.
pub struct Capture {
    pub(super) id: u64,
    pub(super) graph: Arc<Graph>,
    mode: u32,
    thread: ThreadId,
    invalidated: AtomicBool,
    /// The ids of the stream in which it began, and of those that joined it.
    streams: Mutex<Vec<u64>>,
    /// The last nodes that destroyed streams have captured. They must be joined as well.
    left: Mutex<Vec<CUgraphNode>>,
}

impl Capture {
    /// Invalidates the capture: from now on its streams refuse work.
    pub(super) fn invalidate(&self) {
        self.invalidated.store(true, Ordering::Release);
    }

    pub(super) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Ordering::Acquire)
    }

    /// Ends the capture and all its streams' parts in it. Returns its result.
    pub(super) fn end(&self, origin: &Stream) -> CuResult<()> {
        let streams = std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner));
        let leaves = lock(origin.id).take().map_or(Vec::new(), |branch| branch.dependencies);
        let mut others = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in streams {
            let branch = lock(stream).take();
            others.extend(branch.iter().flat_map(|branch| &branch.dependencies).map(|(node, _)| *node));
        }
        let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|capture| capture.id != self.id);
        COUNT.store(active.len(), Ordering::Release);
        drop(active);
        self.graph.capture_ends();
        if self.is_invalidated() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let joined = self.graph.ancestors(leaves.iter().map(|(node, _)| *node).collect());
        if others.iter().all(|node| joined.contains(&node.0)) {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        }
    }

    /// Returns whether cuStreamEndCapture must be called by another thread: the one that began, unless the mode is
    /// relaxed.
    pub(super) fn is_foreign(&self) -> bool {
        self.mode != RELAXED && self.thread != thread::current().id()
    }
}

fn none_active() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// Begins a capture.
pub(super) fn begin(
    stream: &Arc<Stream>,
    mode: u32,
    graph: Arc<Graph>,
    dependencies: Vec<(CUgraphNode, CUgraphEdgeData)>,
) -> CuResult<()> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if stream.is_legacy() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut branch = lock(stream.id);
    if branch.get().is_some() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    graph.capture_begins();
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        mode,
        thread: thread::current().id(),
        invalidated: AtomicBool::new(false),
        streams: Mutex::new(vec![stream.id]),
        left: Mutex::default(),
    });
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    active.push(Arc::clone(&capture));
    COUNT.store(active.len(), Ordering::Release);
    branch.set(Branch { capture, origin: true, dependencies, shown: Default::default() });
    Ok(())
}

/// Returns whether a stream captures.
pub(super) fn captures(stream: &Stream) -> bool {
    lock(stream.id).get().is_some()
}

/// If the stream captures: makes work a node after the nodes that the stream has captured so far.
pub(super) fn add(stream: &Stream, work: impl FnOnce() -> CuResult<Work>) -> CuResult<bool> {
    if none_active() {
        return Ok(false);
    }
    let mut branch = lock(stream.id);
    let Some(branch) = branch.get_mut() else { return Ok(false) };
    if branch.capture.is_invalidated() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let node = branch.capture.graph.add(Node::new(work()?, branch.dependencies.clone()))?;
    branch.dependencies = vec![(node, CUgraphEdgeData::default())];
    Ok(true)
}

/// If the stream captures: returns the nodes for an event that is recorded now.
pub(super) fn dependencies(stream: &Stream) -> CuResult<Option<Captured>> {
    if none_active() {
        return Ok(None);
    }
    let branch = lock(stream.id);
    let Some(branch) = branch.get() else { return Ok(None) };
    if branch.capture.is_invalidated() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let nodes = branch.dependencies.iter().map(|(node, _)| node.0).collect();
    Ok(Some(Captured { capture: branch.capture.id, nodes }))
}

/// Returns the active capture with this id.
fn active(id: u64) -> Option<Arc<Capture>> {
    let captures = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    captures.iter().find(|active| active.id == id).cloned()
}

/// Invalidates a capture if it is still active.
pub(super) fn invalidate(captured: &Captured) {
    active(captured.capture).inspect(|capture| capture.invalidate());
}

/// cuStreamWaitEvent of an event that was recorded in a capture: makes the stream take part in the capture.
pub(super) fn join(stream: &Stream, captured: &Captured) -> CuResult<()> {
    let mut branch = lock(stream.id);
    let Some(capture) = active(captured.capture) else {
        branch.get().inspect(|branch| branch.capture.invalidate());
        return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
    };
    if capture.is_invalidated() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if stream.is_legacy() {
        capture.invalidate();
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    let nodes = captured.nodes.iter().map(|node| (CUgraphNode::new(*node), CUgraphEdgeData::default()));
    match branch.get_mut() {
        Some(branch) if branch.capture.id != capture.id => {
            branch.capture.invalidate();
            capture.invalidate();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        Some(branch) => {
            for (node, edge) in nodes {
                if branch.dependencies.iter().all(|(known, _)| *known != node) {
                    branch.dependencies.push((node, edge));
                }
            }
        }
        None => {
            capture.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.id);
            let dependencies = nodes.collect();
            branch.set(Branch { capture, origin: false, dependencies, shown: Default::default() });
        }
    }
    Ok(())
}

pub(super) fn fail(stream: &Stream, error: CUresult) -> CuResult<()> {
    if none_active() {
        return Ok(());
    }
    match lock(stream.id).get() {
        Some(branch) => {
            branch.capture.invalidate();
            Err(error)
        }
        None => Ok(()),
    }
}

/// Refuses work that cannot be captured.
pub(super) fn refuse(stream: &Stream) -> CuResult<()> {
    fail(stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses captured work that depends on work outside of the capture.
pub(super) fn isolate(stream: &Stream) -> CuResult<()> {
    fail(stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
}

/// Handles the destruction of a stream. A capture continues without it unless it began there.
pub(super) fn abandon(stream: &Stream) {
    if none_active() {
        return;
    }
    let origin = {
        let mut branch = lock(stream.id);
        match branch.get() {
            Some(part) if part.origin => Some(Arc::clone(&part.capture)),
            Some(part) => {
                let nodes = part.dependencies.iter().map(|(node, _)| *node);
                part.capture.left.lock().unwrap_or_else(PoisonError::into_inner).extend(nodes);
                branch.take();
                None
            }
            None => None,
        }
    };
    if let Some(capture) = origin {
        capture.invalidate();
        let _ = capture.end(stream);
    }
}

/// Refuses to wait for a context that has capturing streams.
pub(super) fn refuse_any(context: &Context) -> CuResult<()> {
    if none_active() {
        return Ok(());
    }
    context.live_streams().iter().try_for_each(|stream| refuse(stream))
}

/// Refuses work in the legacy stream that would wait for a capturing stream, or that a capturing stream would wait
/// for.
pub(super) fn check_order(context: &Context, stream: &Stream) -> CuResult<()> {
    if none_active() || !stream.is_legacy() {
        return Ok(());
    }
    let blocking = context.live_streams().into_iter().filter(|stream| !stream.non_blocking);
    let mut result = Ok(());
    for stream in blocking {
        result = result.and(fail(&stream, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    }
    result
}

/// Returns the context that executes work for a stream: the stream's own one, though some context must be current.
pub(super) fn place_work(handle: CUstream) -> CuResult<(Arc<Context>, Arc<Stream>)> {
    context::current()?;
    let (context, stream) = stream::with_stream(handle)?;
    check_order(&context, &stream)?;
    Ok((context, stream))
}

/// Returns whether work in the legacy stream would disturb a capture.
pub(super) fn disturbs(context: &Context) -> bool {
    !none_active() && context.live_streams().iter().any(|stream| !stream.non_blocking && captures(stream))
}

/// Refuses calls that may disturb captures, according to the modes of the captures and of this thread.
pub(super) fn check_safe() -> CuResult<()> {
    let mode = MODE.try_with(Cell::get).unwrap_or(GLOBAL);
    if none_active() || mode == RELAXED {
        return Ok(());
    }
    let thread = thread::current().id();
    let active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = Ok(());
    for capture in active.iter() {
        let own = capture.thread == thread && capture.mode != RELAXED;
        if own || mode == GLOBAL && capture.mode == GLOBAL {
            capture.invalidate();
            result = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    result
}
