// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session gets another worker: it leaves this one as a stream, or enters this one from it (`TO_LEAVE`, `TO_STAY`, `TO_ENTER`).
//!
//! The session is suspended deeply, so the driver has nothing of it but reserved addresses. What is left is tables, contents in host
//! memory, and guest threads. These stop between two calls ([`crate::serve::left`]). A call that waits for the session's memory turns back, and
//! its request or its record in a lane goes along: the other worker executes it.
//!
//! Until the daemon ends the worker that the session has left, that one can go on with it.

#[cfg(any(test, fuzzing))]
pub mod fixture;
mod form;
mod reading;
mod writing;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use log::debug;
use vhost_cuda_common::link::{Frame, pool_of};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::REPLY_OK;

pub use self::reading::session as read;
use crate::run::callbacks::CALLBACKS;
use crate::run::replies::Replies;
use crate::serve::executor::Executors;
use crate::serve::left::Left;
use crate::state::SessionState;

fn refusal(reason: impl Into<String>) -> Description {
    Description { obstacle: Some(reason.into()), ..Description::default() }
}

/// Lets the session leave. The answer comes when all of it is written, or when it stays for a reason.
pub fn leave(
    session: &'static SessionState,
    executors: &mut Executors,
    frame: &mut Frame,
    replies: &Arc<Replies>,
) {
    let id = frame.header.id;
    let answer = |description: Description| replies.send(id, &(REPLY_OK, description.to_bytes()));
    let Some(pipe) = frame.file.take() else { return answer(refusal("a frame without its file")) };
    if session.suspension.is_moving.swap(true, Ordering::Acquire) {
        return answer(refusal("another move is under way"));
    }
    let threads = match stop(session, executors) {
        Ok(threads) => threads,
        Err(reason) => {
            go_on(session);
            return answer(refusal(reason));
        }
    };
    let theirs = replies.clone();
    let run = move || {
        let description = match written(session, &threads, pipe) {
            Ok(bytes) => Description { bytes, ..Description::default() },
            Err(reason) => {
                debug!("the session stays: {reason}");
                go_on(session);
                refusal(reason)
            }
        };
        theirs.send(id, &(REPLY_OK, description.to_bytes()));
    };
    if let Err(error) = thread::Builder::new().name("leave".into()).spawn(run) {
        go_on(session);
        answer(refusal(format!("there is no thread to write it: {error}")));
    }
}

/// Stops all guest threads of a session that can leave.
///
/// Errors: the reason for which it cannot.
fn stop(session: &SessionState, executors: &mut Executors) -> Result<Vec<Left>, &'static str> {
    let is_deep = session.suspension.suspended.lock().as_ref().is_some_and(|now| now.deep.is_some());
    if !is_deep {
        return Err("it is not suspended deeply");
    }
    session.gate.leave();
    session.order.set_left(true);
    CALLBACKS.set_left(true);
    let threads = executors.leave()?;
    writing::obstacle(session).map_or(Ok(threads), Err)
}

fn written(session: &SessionState, threads: &[Left], pipe: File) -> Result<u64, String> {
    let begun = Instant::now();
    let written = writing::session(BufWriter::new(pipe), session, threads).map_err(|error| error.to_string());
    debug!("the session is written: {:.3} s", begun.elapsed().as_secs_f64());
    written
}

/// Lets the session go on in this worker, if it was about to leave or has left.
pub fn stay(session: &SessionState) {
    if session.gate.has_left() {
        go_on(session);
    }
}

fn go_on(session: &SessionState) {
    session.order.set_left(false);
    CALLBACKS.set_left(false);
    session.suspension.is_moving.store(false, Ordering::Release);
    session.gate.stay();
}

/// Lets a session enter, and goes on with its threads after the answer: until then the other worker may write to guest memory.
pub fn enter(
    session: &'static SessionState,
    executors: &mut Executors,
    frame: &mut Frame,
    replies: &Arc<Replies>,
) {
    let entered = match (frame.file.take(), pool_of(&frame.payload)) {
        (Some(pipe), Some(most)) => {
            read(BufReader::new(pipe), session, most).map_err(|error| error.to_string())
        }
        _ => Err("a frame without its file, or of the wrong size".to_owned()),
    };
    let (threads, description) = match entered {
        Ok((threads, bytes)) => (threads, Description { bytes, ..Description::default() }),
        Err(reason) => {
            debug!("a session cannot enter: {reason}");
            (Vec::new(), refusal(reason))
        }
    };
    replies.send(frame.header.id, &(REPLY_OK, description.to_bytes()));
    executors.resume(threads);
}

#[cfg(test)]
mod tests;
