// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Waits for posted calls, on behalf of code that does not make a [`crate::Call`] itself, and answers whether there is anything
//! to wait for.

use virtio_cuda_protocol::cuda::{ContextId, Opcode, StreamId};

use crate::touched::Touched;
use crate::{Caller, CudaError, Session, caller, idle, lane, output, process};

/// Takes kept pages back.
pub fn unpin(session: &Session, tag: u64) -> Result<(), CudaError> {
    process::check()?;
    // Posted calls may use the pages.
    wait(session, &Touched::everything(), Caller::Internal)?;
    let _permit = session.outstanding();
    session.check().and_then(|()| session.transport().unpin(tag)).map_err(|error| error.result())
}

/// Waits until the calls posted so far that must precede a copy in `stream` are executed, as every call except a direct one
/// does by itself.
///
/// Errors: that of an earlier posted call, for the program.
pub fn before_copy(
    session: &Session,
    caller: Caller,
    context: ContextId,
    stream: StreamId,
) -> Result<(), CudaError> {
    process::check()?;
    let mut touched = Touched::of(Opcode::cuMemcpyAsync, context.0, false);
    touched.add(&stream);
    wait(session, &touched, caller)
}

fn wait(session: &Session, touched: &Touched, caller: Caller) -> Result<(), CudaError> {
    let answer = lane::order(session, Some(touched), caller);
    output::forward(session, answer.flags);
    answer.result
}

/// Returns whether the device has no work for this process, and no error of a posted call to report to the calling thread.
pub fn is_idle(session: &Session) -> bool {
    idle::is_idle() && is_settled(session)
}

/// Returns whether `stream` has no work, and there is no error of a posted call to report to the calling thread.
pub fn is_stream_idle(session: &Session, context: ContextId, stream: StreamId) -> bool {
    idle::is_stream_idle(context, stream) && is_settled(session)
}

fn is_settled(session: &Session) -> bool {
    !lane::has_deferred_error() && !caller::has_left() && process::check().is_ok() && session.check().is_ok()
}
