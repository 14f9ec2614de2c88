// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session stops with its machine, and goes on with it. Meanwhile nothing is written to guest memory: a front-end saves that memory first, and
//! the state of devices after it.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use vhost_cuda_common::gates::now;
use vhost_cuda_common::link::{Frame, stop_time_of};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::{MemEntry, REPLY_OK};

use super::{halt, refusal, release};
use crate::run::replies::Replies;
use crate::serve::executor::{Entered, Executors, Stopped};
use crate::state::SessionState;
use crate::suspend::wait_for_work;

/// Stops the session. The answer comes when it writes no more to guest memory, or with the reason for which it may.
pub fn stop(
    session: &'static SessionState,
    executors: &mut Executors,
    frame: &Frame,
    replies: &Arc<Replies>,
) {
    let id = frame.header.id;
    let answer = |description: Description| replies.send(id, &(REPLY_OK, description.to_bytes()));
    let until = stop_time_of(&frame.payload).and_then(|time| Instant::now().checked_add(time));
    let Some(until) = until else { return answer(refusal("a frame of the wrong size")) };
    if executors.stopped.is_some() || session.gate.has_left() {
        return answer(refusal("it is stopped already, or leaves"));
    }
    match halt(session, executors, until) {
        Ok(threads) => executors.stopped = Some(Stopped::Here(Arc::new(threads), now())),
        Err(reason) => {
            release(session);
            return answer(refusal(reason));
        }
    }
    let theirs = replies.clone();
    let run = move || {
        let obstacle = wait_for_work(session, until).err();
        theirs.send(id, &(REPLY_OK, Description { obstacle, ..Description::default() }.to_bytes()));
    };
    if let Err(error) = thread::Builder::new().name("stop".into()).spawn(run) {
        answer(refusal(format!("there is no thread to wait for its work: {error}")));
    }
}

/// Begins with a session that has entered: its machine goes on, and guest memory is there.
pub fn begin(session: &'static SessionState, executors: &mut Executors, entered: Entered) {
    let Entered { threads, areas, stopped_at } = entered;
    if let Err(reason) = fill(session, areas) {
        crate::end_process(&format!("a session cannot go on in its new machine: {reason}"));
    }
    // No time has passed in the guest.
    let passed = now() as f64 / 1e6 - stopped_at;
    session.suspension.times.lock().past.values_mut().for_each(|at| *at += passed);
    executors.resume(threads);
}

/// Maps the areas of a session's window.
///
/// Errors: the reason.
pub fn fill(session: &SessionState, areas: Vec<(u64, Vec<MemEntry>)>) -> Result<(), String> {
    let (memory, mut window) = (session.memory(), session.window());
    areas.into_iter().try_for_each(|(base, entries)| window.fill(base, memory.clone(), entries))
}
