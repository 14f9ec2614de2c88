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
pub mod stopping;
mod writing;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use vhost_cuda_common::link::{ENTERS_RUNNING, ENTERS_STOPPED, Frame, LEAVES_AHEAD, pool_of};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::REPLY_OK;

pub use self::reading::session as read;
use crate::run::callbacks::CALLBACKS;
use crate::run::replies::Replies;
use crate::serve::again::MAKERS;
use crate::serve::executor::{Entered, Executors, Stopped};
use crate::serve::left::Left;
use crate::state::SessionState;
use crate::suspend::held::Way;
use crate::suspend::{come_back, saving};

/// The time for executors to stop between two calls.
const PATIENCE: Duration = Duration::from_secs(5);

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
    let way = saving::lent(session, frame);
    let Some(pipe) = frame.file.take() else { return answer(refusal("a frame without its file")) };
    if session.suspension.is_moving.swap(true, Ordering::Acquire) {
        return answer(refusal("another move is under way"));
    }
    // It stays stopped with its machine, whether it can leave or not.
    let is_stopped = executors.stopped.is_some();
    let stays = move || match is_stopped {
        true => session.suspension.is_moving.store(false, Ordering::Release),
        false => go_on(session),
    };
    let (threads, stopped_at) = match stopped(session, executors) {
        Ok(stopped) => stopped,
        Err(reason) => {
            stays();
            return answer(refusal(reason));
        }
    };
    let theirs = replies.clone();
    let is_ahead = frame.header.flags & LEAVES_AHEAD != 0;
    let run = move || {
        let description = match written(session, &threads, stopped_at, pipe, way, is_ahead) {
            Ok(bytes) => Description { bytes, ..Description::default() },
            Err(reason) => {
                debug!("the session stays: {reason}");
                refusal(reason)
            }
        };
        if is_stopped || description.obstacle.is_some() {
            stays();
        }
        theirs.send(id, &(REPLY_OK, description.to_bytes()));
    };
    if let Err(error) = thread::Builder::new().name("leave".into()).spawn(run) {
        stays();
        answer(refusal(format!("there is no thread to write it: {error}")));
    }
}

/// Returns the guest threads of a session that can leave, all of which have stopped, and the time when they have stopped with the machine.
///
/// Errors: the reason for which it cannot.
fn stopped(
    session: &SessionState,
    executors: &mut Executors,
) -> Result<(Arc<Vec<Left>>, Option<u64>), &'static str> {
    let is_deep = session.suspension.suspended.lock().as_ref().is_some_and(|now| now.deep.is_some());
    if !is_deep {
        return Err("it is not suspended deeply");
    }
    let stopped = match &executors.stopped {
        Some(Stopped::Here(threads, at)) => (threads.clone(), Some(*at)),
        Some(Stopped::Entered(_)) => return Err("its machine has not run since it was loaded"),
        None => (Arc::new(halt(session, executors, Instant::now() + PATIENCE)?), None),
    };
    writing::obstacle(session).map_or(Ok(stopped), Err)
}

/// Stops all guest threads between two calls.
///
/// Errors: the reason; they go on when the caller says so.
fn halt(
    session: &SessionState,
    executors: &mut Executors,
    until: Instant,
) -> Result<Vec<Left>, &'static str> {
    session.gate.leave();
    session.order.set_left(true);
    CALLBACKS.set_left(true);
    executors.leave(until)
}

fn written(
    session: &SessionState,
    threads: &[Left],
    stopped_at: Option<u64>,
    pipe: File,
    way: Option<Way>,
    is_ahead: bool,
) -> Result<u64, String> {
    let begun = Instant::now();
    let written = writing::session(BufWriter::new(pipe), session, threads, stopped_at, way, is_ahead);
    debug!("the session is written: {:.3} s", begun.elapsed().as_secs_f64());
    written.map_err(|error| error.to_string())
}

/// Lets the session go on in this worker, if it was about to leave or has left, or if it was stopped.
pub fn stay(session: &'static SessionState, executors: &mut Executors) {
    match executors.stopped.take() {
        Some(Stopped::Entered(entered)) => stopping::begin(session, executors, entered),
        Some(Stopped::Here(..)) => release(session),
        None if session.gate.has_left() => go_on(session),
        None => {}
    }
}

fn go_on(session: &SessionState) {
    session.suspension.is_moving.store(false, Ordering::Release);
    release(session);
}

/// Lets the guest threads go on.
fn release(session: &SessionState) {
    session.order.set_left(false);
    CALLBACKS.set_left(false);
    session.gate.stay();
}

/// Lets a session enter. Its threads go on after the answer, because the other worker may write to guest memory until then, or with its
/// machine.
pub fn enter(
    session: &'static SessionState,
    executors: &mut Executors,
    frame: &mut Frame,
    replies: &Arc<Replies>,
) {
    let way = saving::lent(session, frame);
    let is_stopped = frame.header.flags & ENTERS_STOPPED != 0;
    let entered = match (frame.file.take(), pool_of(&frame.payload)) {
        (Some(pipe), Some(most)) => {
            read(BufReader::new(pipe), session, most, way, is_stopped).map_err(|error| error.to_string())
        }
        _ => Err("a frame without its file, or of the wrong size".to_owned()),
    };
    // No thread of the guest goes on yet: if this fails, the other worker has all of the session.
    let runs = frame.header.flags & ENTERS_RUNNING != 0 && !is_stopped;
    let entered = entered.and_then(|entered| {
        if runs {
            come_back(session, MAKERS)?;
        }
        let charged = session.allocations().quota.entered();
        charged.map_err(|error| format!("its memory is more than its machine may have: {error}"))?;
        Ok(entered)
    });
    let (entered, description) = match entered {
        Ok((entered, bytes)) => (entered, Description { bytes, ..Description::default() }),
        Err(reason) => {
            debug!("a session cannot enter: {reason}");
            (Entered::default(), refusal(reason))
        }
    };
    replies.send(frame.header.id, &(REPLY_OK, description.to_bytes()));
    match is_stopped {
        true => executors.stopped = Some(Stopped::Entered(entered)),
        false => executors.resume(entered.threads),
    }
}

#[cfg(test)]
mod tests;
