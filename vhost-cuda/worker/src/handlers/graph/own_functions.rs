// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Launches of executable graphs that have functions of their own (`run::exec_callbacks`), and the end of these
//! functions.

use std::thread;

use virtio_cuda_protocol::cuda::{CallbackId, GraphExecId, StreamId};

use crate::call::CallContext;
use crate::gpu::{CUstream, CuResult, CudaError, with_capture_relaxed};
use crate::run::callbacks::forget;
use crate::run::exec_callbacks::{Launch, Retired};

/// `CU_STREAM_PER_THREAD`, which means another stream in each thread.
const PER_THREAD: u64 = 2;

/// Launches an executable graph.
pub fn launch(cx: &mut CallContext<'_>, exec: GraphExecId, stream: StreamId) -> CuResult<()> {
    let raw_stream = cx.resolve(stream)?;
    let captured = cx.note_capture(raw_stream);
    let raw = cx.resolve(exec)?;
    let own = &cx.session.exec_callbacks;
    if own.has(exec) {
        // Also if the launch fails, because it may have begun.
        own.launched(exec, Launch { stream, context: cx.context, thread: thread::current().id() }, captured);
    }
    cx.gpu().cuGraphLaunch(raw, raw_stream)
}

/// Makes the guest forget functions once they cannot be called any longer. Where that is unknown, the guest remembers
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
    // The other queries would invalidate a capture.
    if cx.note_capture(stream) {
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
