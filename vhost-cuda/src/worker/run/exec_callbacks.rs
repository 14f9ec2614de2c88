// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of the program that executable graphs got after they were made.
//!
//! Those of a graph's own nodes are tied to the graph (`handlers::graph_node`), and the driver has executable graphs
//! share them. What is put in later belongs to the executable graph alone, for which the driver has no such thing.
//! The guest is told to forget it when it was replaced, or the graph is gone, and the last launch is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use virtio_cuda_protocol::cuda::{CallbackId, ContextId, GraphExecId, GraphNodeId, StreamId};

use super::call::CallContext;
use super::callbacks::forget;
use crate::worker::gpu::{CUstream, CuResult, CudaError, with_capture_relaxed};

/// The stream value that means another stream in each thread.
const PER_THREAD: u64 = 2;

/// Where a graph was launched last. The driver executes launches of one graph one after the other, so that all are
/// over when this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Launch {
    stream: StreamId,
    context: ContextId,
    thread: ThreadId,
}

/// Functions of one executable graph.
#[derive(Debug, Default)]
struct Own {
    by_node: HashMap<u64, CallbackId>,
    last: Option<Launch>,
    /// A captured launch has copied them: the copy may live for ever.
    copied: bool,
}

/// Those of all executable graphs of a session.
#[derive(Debug, Default)]
pub struct ExecCallbacks {
    graphs: Mutex<HashMap<u64, Own>>,
    /// There are any: spares all other launches the lock.
    any: AtomicBool,
}

/// Functions that are to be forgotten, and after what.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Retired {
    callbacks: Vec<CallbackId>,
    after: Option<Launch>,
}

impl Own {
    fn retire(&self, callbacks: Vec<CallbackId>) -> Retired {
        if self.copied { Retired::default() } else { Retired { callbacks, after: self.last } }
    }
}

impl ExecCallbacks {
    fn graphs(&self) -> MutexGuard<'_, HashMap<u64, Own>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node has another function; answers the earlier one.
    #[must_use]
    pub fn replaced(&self, exec: GraphExecId, node: GraphNodeId, callback: CallbackId) -> Retired {
        let mut graphs = self.graphs();
        self.any.store(true, Ordering::Release);
        let own = graphs.entry(exec.0).or_default();
        let earlier = own.by_node.insert(node.0, callback);
        own.retire(earlier.into_iter().collect())
    }

    /// All functions come from a graph now, or the executable graph is gone.
    #[must_use]
    pub fn dropped(&self, exec: GraphExecId) -> Retired {
        if !self.any.load(Ordering::Acquire) {
            return Retired::default();
        }
        let Some(mut own) = self.graphs().remove(&exec.0) else { return Retired::default() };
        let all = own.by_node.drain().map(|(_, callback)| callback).collect();
        own.retire(all)
    }

    fn launched(&self, exec: GraphExecId, launch: Launch, captured: bool) {
        if let Some(own) = self.graphs().get_mut(&exec.0) {
            own.copied |= captured;
            own.last = Some(launch);
        }
    }

    fn has(&self, exec: GraphExecId) -> bool {
        self.any.load(Ordering::Acquire) && self.graphs().contains_key(&exec.0)
    }
}

/// Launches an executable graph.
pub fn launch(cx: &mut CallContext<'_>, exec: GraphExecId, stream: StreamId) -> CuResult<()> {
    let raw_stream = cx.resolve(stream)?;
    let raw = cx.resolve(exec)?;
    let own = &cx.session.exec_callbacks;
    if own.has(exec) {
        // Also if the launch fails: it may have begun.
        let captured = !matches!(cx.gpu().cuStreamIsCapturing(raw_stream), Ok((0,)));
        own.launched(exec, Launch { stream, context: cx.context, thread: thread::current().id() }, captured);
    }
    cx.gpu().cuGraphLaunch(raw, raw_stream)
}

/// Has the guest forget functions once they cannot be called any more. Where that cannot be found out, it remembers
/// them until it ends.
pub fn retire(cx: &mut CallContext<'_>, retired: Retired) {
    let Retired { callbacks, after } = retired;
    if callbacks.is_empty() {
        return;
    }
    let result = match after {
        None => {
            forget_all(callbacks);
            Ok(())
        }
        Some(launch) => after_launch(cx, launch, callbacks),
    };
    if let Err(error) = result {
        log::debug!("Functions of an executable graph are kept: {error}");
    }
}

fn forget_all(callbacks: Vec<CallbackId>) {
    for callback in callbacks {
        // SAFETY: the function takes any number.
        unsafe { forget(std::ptr::without_provenance_mut(callback.0 as usize)) };
    }
}

fn after_launch(cx: &mut CallContext<'_>, launch: Launch, callbacks: Vec<CallbackId>) -> CuResult<()> {
    if launch.stream.0 == PER_THREAD && launch.thread != thread::current().id() {
        return Err(CudaError::INVALID_HANDLE);
    }
    let stream = cx.resolve(launch.stream)?;
    cx.thread.make_current(cx.session, launch.context)?;
    let queue = || in_stream(cx, stream, callbacks);
    with_capture_relaxed(cx.gpu(), queue)
}

fn in_stream(cx: &CallContext<'_>, stream: CUstream, callbacks: Vec<CallbackId>) -> CuResult<()> {
    // The other questions would end a capture.
    if cx.gpu().cuStreamIsCapturing(stream)? != (0,) {
        return Err(CudaError::ILLEGAL_STATE);
    }
    if cx.gpu().cuStreamQuery(stream).is_ok() {
        forget_all(callbacks);
        return Ok(());
    }
    for callback in callbacks {
        let data = std::ptr::without_provenance_mut(callback.0 as usize);
        // SAFETY: the function takes any number.
        unsafe { cx.gpu().cuLaunchHostFunc(stream, Some(forget), data) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: GraphExecId = GraphExecId(0x100);
    const NODE: GraphNodeId = GraphNodeId(0x200);

    fn launch() -> Launch {
        Launch { stream: StreamId(1), context: ContextId(3), thread: thread::current().id() }
    }

    #[test]
    fn what_was_never_launched_is_forgotten_at_once() {
        let own = ExecCallbacks::default();
        assert!(!own.has(EXEC));
        assert_eq!(own.replaced(EXEC, NODE, CallbackId(1)), Retired::default());
        let earlier = own.replaced(EXEC, NODE, CallbackId(2));
        assert_eq!(earlier, Retired { callbacks: vec![CallbackId(1)], after: None });
        assert_eq!(own.dropped(EXEC), Retired { callbacks: vec![CallbackId(2)], after: None });
        assert_eq!(own.dropped(EXEC), Retired::default());
    }

    #[test]
    fn a_launch_is_waited_for() {
        let own = ExecCallbacks::default();
        let _ = own.replaced(EXEC, NODE, CallbackId(1));
        own.launched(EXEC, launch(), false);
        let earlier = own.replaced(EXEC, NODE, CallbackId(2));
        assert_eq!(earlier, Retired { callbacks: vec![CallbackId(1)], after: Some(launch()) });
    }

    #[test]
    fn what_a_capture_has_copied_is_kept() {
        let own = ExecCallbacks::default();
        let _ = own.replaced(EXEC, NODE, CallbackId(1));
        own.launched(EXEC, launch(), true);
        assert_eq!(own.replaced(EXEC, NODE, CallbackId(2)), Retired::default());
        assert_eq!(own.dropped(EXEC), Retired::default());
    }
}
