// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that go over to a fresh worker while they are suspended deeply.
//!
//! The old worker writes the session into a pipe from which the fresh one reads it, with all requests that it has not answered. Device
//! memory stays on the card: the old worker passes files that keep it over a socket between the two. Contents that are in host memory go over in
//! files in memory. From
//! the request to leave on, further ones wait here for the worker that has the session then: for the fresh one until the old one has
//! ended, or for the old one until the fresh one has ended. So no request is executed twice, and when one is answered, the other worker
//! does not map its pages any more.
//!
//! Until the fresh worker says that it has the session, nothing has changed for the guest: any failure leaves the session with the
//! old one. For a session that ran it says so when it has made all objects and graphs again. The end of the old one is always that of the session, but after that moment.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use log::error;
use thiserror::Error;
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{
    self, ENTERS_RUNNING, FROM_REPLY, FROM_WAKE, TO_CONTENTS, TO_ENTER, TO_LEAVE, TO_STAY, ToWorker,
    VERSION_OF_CONTENTS, VERSION_OF_ENTERING,
};
use vhost_cuda_common::recipes::Description;
use virtio_cuda_protocol::transport::REPLY_OK;
use zerocopy::IntoBytes;

use super::asked::{AskError, PATIENCE};
use super::moves::{MAKING, time_of};
use super::saving::contents_files;
use super::{Assigned, Fresh, Outgoing, Phase, Session, State};
use crate::confine::threads;
use crate::hand_over::freeze;
use crate::sessions::process::Worker;
use crate::sessions::residence::Moves;

/// The wake-ups that a worker may send before it says that it has the session: one of the suspension that it enters.
const WAKES: u32 = 1;

/// The reason for which a session stays with its worker.
#[derive(Debug, Error)]
pub enum RenewalError {
    /// Its worker was not asked.
    #[error("{0}")]
    State(&'static str),
    /// Its worker did not answer.
    #[error(transparent)]
    Unanswered(#[from] AskError),
    /// Its worker keeps it.
    #[error("{0}")]
    Kept(String),
    /// The other worker did not take it.
    #[error("the other worker does not take it: {0}")]
    Refused(String),
    /// The daemon or the host cannot do it.
    #[error("it cannot go over to another worker: {0}")]
    Host(#[from] io::Error),
}

impl Session {
    /// Returns whether a session can go over to another worker, as far as that is known before it is suspended.
    ///
    /// Errors: see [`RenewalError`].
    pub fn check_renewal(&self) -> Result<(), RenewalError> {
        if self.state.lock().is_stopped {
            return Err(RenewalError::State("its machine is stopped"));
        }
        self.check_departure()
    }

    /// The same for a session that has stopped with its machine, and goes with it.
    ///
    /// Errors: see [`RenewalError`].
    pub fn check_departure(&self) -> Result<(), RenewalError> {
        if self.assigned().worker.version < VERSION_OF_ENTERING {
            return Err(RenewalError::State("its worker is of an older release"));
        }
        if self.profile.save().is_err() {
            return Err(RenewalError::State("it is being recorded for a profile"));
        }
        Ok(())
    }

    /// Gives the session another worker. It is suspended deeply, and nothing else moves it ([`Residence::renew`]).
    ///
    /// `host` is host memory for its contents, if both workers have them for a moment ([`Self::shares_contents`]). With `runs`, the other worker
    /// brings the session back before the old one ends. `assign` tells the worker all that comes before guest memory.
    ///
    /// Errors: see [`RenewalError`]. The session is as before, unless it has ended.
    ///
    /// [`Residence::renew`]: crate::sessions::residence::Residence::renew
    pub fn renew(
        &self,
        worker: Worker,
        host: &Charge,
        runs: bool,
        assign: impl FnOnce(&Worker) -> io::Result<()>,
    ) -> Result<(), RenewalError> {
        worker.messages.label.set(self.label);
        let named = self.assigned().named.as_ref().map(|named| Arc::new(named.for_another_mapper()));
        let fresh = Arc::new(Assigned { worker, named });
        let mut state = self.state.lock();
        if !self.is_open(&state) {
            return Err(AskError::Ended.into());
        }
        // Known from here on to all that end the session.
        let assigned = fresh.clone();
        state.fresh = Some(Fresh { assigned, has_entered: false, memory_changed: false });
        drop(state);
        let mut has_left = false;
        let result = self.hand_over(&fresh, host, runs, assign, &mut has_left);
        if result.is_err() {
            self.go_back(has_left);
        }
        result
    }

    /// Returns whether contents go over to this worker in a file in memory, so that they are there once.
    pub fn shares_contents(&self, fresh: &Worker) -> bool {
        self.assigned().worker.version.min(fresh.version) >= VERSION_OF_CONTENTS
    }

    /// Returns true as long as the session goes on.
    pub fn goes_on(&self) -> bool {
        self.is_open(&self.state.lock())
    }

    pub(super) fn is_open(&self, state: &State) -> bool {
        state.phase == Phase::Open && !self.is_leaving.load(Ordering::Acquire)
    }

    fn hand_over(
        &self,
        fresh: &Arc<Assigned>,
        host: &Charge,
        runs: bool,
        assign: impl FnOnce(&Worker) -> io::Result<()>,
        has_left: &mut bool,
    ) -> Result<(), RenewalError> {
        let Moves { stored_bytes: stored, suspended_bytes, .. } = self.residence.moves();
        let limit = time_of(stored);
        let is_shared = suspended_bytes.max(stored) > 0 && self.shares_contents(&fresh.worker);
        let [contents, theirs] = match is_shared.then_some(stored) {
            None => [Vec::new(), Vec::new()],
            // The memory is on the card, or has zeros only.
            Some(0) => {
                let (one, other) = UnixStream::pair()?;
                // Workers may not set these: neither waits for the other one without end.
                for socket in [&one, &other] {
                    socket.set_read_timeout(Some(limit))?;
                    socket.set_write_timeout(Some(limit))?;
                }
                [vec![one.into()], vec![other.into()]]
            }
            Some(stored) => {
                let files = contents_files(stored)?;
                let theirs: io::Result<Vec<OwnedFd>> = files.iter().map(OwnedFd::try_clone).collect();
                [files, theirs?]
            }
        };
        let link = &fresh.worker.sockets.link;
        // It has read nothing of the session yet, and takes all of this at once.
        link.set_write_timeout(Some(PATIENCE))?;
        assign(&fresh.worker)?;
        self.guard(fresh);
        self.write_memory(fresh)?;
        let (reader, writer) = io::pipe()?;
        let id = {
            let mut state = self.state.lock();
            state.next_request += 1;
            state.next_request
        };
        let flags = if runs { ENTERS_RUNNING } else { 0 };
        let header = ToWorker { kind: TO_ENTER, flags, id, ..ToWorker::default() };
        let most = host.amount() as u64;
        for file in theirs {
            let header = ToWorker { kind: TO_CONTENTS, flags: 0, ..header };
            link::send_with_file(link, &header, &[], file)?;
        }
        link::send_with_file(link, &header, most.as_bytes(), OwnedFd::from(reader))?;
        link.set_write_timeout(None)?;
        let (left, entered) = thread::scope(|scope| {
            let receive = || {
                threads::read_foreign_bytes();
                receive(fresh, id, limit + PATIENCE + if runs { MAKING } else { Duration::ZERO })
            };
            let name = format!("session-{}-e", self.label);
            let receiving = thread::Builder::new().name(name).spawn_scoped(scope, receive)?;
            let left = self.leave(contents, writer.into(), limit, 0);
            if left.is_err() {
                // It would wait for the rest.
                fresh.worker.kill();
            }
            let entered = receiving.join().map_err(|_| io::Error::other("its thread has failed"))?;
            io::Result::Ok((left, entered))
        })?;
        *has_left = left.is_ok();
        let wakes = match (left, entered) {
            (Ok(()), Ok(wakes)) => wakes,
            // The old one sees then only that nobody reads.
            (_, Err(Entering::Refused(why))) => return Err(RenewalError::Refused(why)),
            (Ok(()), Err(Entering::Failed(error))) => return Err(RenewalError::Refused(error.to_string())),
            (Err(error), _) => return Err(error),
        };
        self.commit(fresh, wakes)
    }

    /// Has the present worker write the session to a pipe. `flags` are those of [`TO_LEAVE`]. From now on requests wait, unless it does not do it.
    pub(super) fn leave(
        &self,
        contents: Vec<OwnedFd>,
        to: OwnedFd,
        limit: Duration,
        flags: u32,
    ) -> Result<(), RenewalError> {
        let answer = self.ask_with_files(&self.recipe, (TO_LEAVE, flags), &[], (contents, Some(to)), limit);
        let was_asked = self.state.lock().is_away;
        match answer.and_then(|answer| said(&answer).ok_or(AskError::Malformed)) {
            Ok(said) => said.map_err(RenewalError::Kept),
            Err(error @ (AskError::Stuck | AskError::Malformed)) if was_asked => {
                // It may have left, or leave at any time.
                error!("{}: ended while it was to go over to another worker: {error}", self.describe());
                self.end_worker();
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the old worker. Returns when its successor has the session.
    fn commit(&self, fresh: &Arc<Assigned>, wakes: u32) -> Result<(), RenewalError> {
        let old = self.assigned();
        let mut state = self.state.lock();
        let goes_on = self.is_open(&state);
        match &mut state.fresh {
            Some(fresh) if goes_on => fresh.has_entered = true,
            _ => return Err(AskError::Ended.into()),
        }
        // From here on its end is not that of the session. The thread that reads its replies notices it.
        old.worker.kill();
        let has_ended = self.ended.wait_while_for(&mut state, |state| state.fresh.is_some(), PATIENCE);
        if has_ended.timed_out()
            && let Some(fresh) = &mut state.fresh
        {
            // It hangs in the kernel, and may write pages of the guest until it has ended. Its end is that of the session again.
            fresh.has_entered = false;
            drop(state);
            error!("{}: its worker does not end: the session ends with it", self.describe());
            return Err(AskError::Stuck.into());
        }
        drop(state);
        if !Arc::ptr_eq(&self.assigned(), fresh) {
            return Err(AskError::Ended.into());
        }
        for _ in 0..wakes {
            self.residence.woken(self.label);
        }
        Ok(())
    }

    /// Ends a worker that has not got the session, and goes on with the one that has it.
    fn go_back(&self, has_left: bool) {
        self.end_fresh();
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_away) {
            if has_left {
                self.send(Outgoing::of(&ToWorker { kind: TO_STAY, ..ToWorker::default() }, &[]));
            }
            self.send_waiting(&mut state);
        }
    }
}

/// The reason for which a worker has not got a session.
#[derive(Debug, Error)]
pub(super) enum Entering {
    /// It says why.
    #[error("{0}")]
    Refused(String),
    /// It does not answer as it must.
    #[error("{0}")]
    Failed(io::Error),
}

/// Reads a worker's answer to a request that a session leaves or enters: the reason if it does not. `None`: it is malformed.
fn said(answer: &[u8]) -> Option<Result<(), String>> {
    Description::read(answer).map(|description| description.obstacle.map_or(Ok(()), Err))
}

/// Receives the answer of a worker to request `id`, and returns the number of wake-ups before it. Nothing that it sends is trusted.
pub(super) fn receive(fresh: &Assigned, id: u64, time: Duration) -> Result<u32, Entering> {
    let link = &fresh.worker.sockets.link;
    let failed = |why: &str| Err(Entering::Failed(io::Error::other(why)));
    let until = Instant::now() + time;
    let mut wakes = 0;
    loop {
        let message = freeze::Message::within(link, until.saturating_duration_since(Instant::now()));
        match link::receive_reply(message).map_err(Entering::Failed)? {
            None => return failed("it has ended"),
            Some((header, payload)) if header.kind == FROM_WAKE && payload.is_empty() && wakes < WAKES => {
                wakes += 1;
            }
            Some((header, payload)) if header.kind == FROM_REPLY && header.id == id => {
                return match said(&payload).filter(|_| header.status == REPLY_OK) {
                    Some(said) => said.map(|()| wakes).map_err(Entering::Refused),
                    None => failed("it gave no valid answer"),
                };
            }
            Some(_) => return failed("it sent a frame that nobody asked for"),
        }
    }
}

#[cfg(test)]
#[path = "renewal_test.rs"]
mod tests;
