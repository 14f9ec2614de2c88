// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions to a worker about its session, whose answers only the daemon sees.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use thiserror::Error;
use vhost_cuda_common::link::{ALREADY_SAVED, FromWorker, TO_CONTENTS, TO_LEAVE, TO_LOAD, TO_STOP, ToWorker};
use virtio_cuda_protocol::transport::REPLY_OK;

use super::{Outgoing, Phase, Session};
use crate::hand_over::freeze;

/// The time for a worker to answer. Its thread for it does nothing else, but the host's CUPTI may be slow to start.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The reason for which there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// The worker did not answer in time.
    #[error("its worker did not answer in time")]
    Stuck,
    /// The worker sent no valid answer.
    #[error("its worker gave no valid answer")]
    Malformed,
    /// The session goes over to another worker.
    #[error("the session is getting another worker: try again")]
    Away,
}

/// The question of one kind that is under way.
#[derive(Debug, Default)]
pub struct Asked {
    /// Locked until it is answered: others wait.
    turn: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The request that the worker has not answered. It stays, so that a late answer is known, and dropped.
    request: Option<u64>,
    answer: Option<Result<Vec<u8>, AskError>>,
    ended: bool,
}

impl Asked {
    /// Takes a worker's reply if it answers the question, else returns its payload.
    pub fn answered(&self, header: &FromWorker, payload: Vec<u8>) -> Result<(), Vec<u8>> {
        let mut state = self.state.lock();
        if state.request != Some(header.id) {
            return Err(payload);
        }
        state.request = None;
        let is_good = header.status == REPLY_OK;
        state.answer = Some(if is_good { Ok(payload) } else { Err(AskError::Malformed) });
        self.changed.notify_all();
        Ok(())
    }

    /// Ends a question that the worker will not answer any more, because another one has the session.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        if state.request.take().is_some() {
            state.answer = Some(Err(AskError::Away));
            self.changed.notify_all();
        }
    }

    /// Notes that the session has ended.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Returns whether the worker can be asked.
    ///
    /// Errors: [`AskError::Ended`], and [`AskError::Stuck`] while it has not answered an earlier question.
    pub fn check(&self) -> Result<(), AskError> {
        let state = self.state.lock();
        match state.request {
            _ if state.ended => Err(AskError::Ended),
            Some(_) => Err(AskError::Stuck),
            None => Ok(()),
        }
    }

    /// Returns the question that the worker has not answered, for the next program.
    pub fn save(&self) -> Option<u64> {
        self.state.lock().request
    }

    /// Goes on with what [`Self::save`] has returned in the program before this one: the late answer is known, and dropped.
    pub fn restore(request: Option<u64>) -> Self {
        Self { state: Mutex::new(State { request, ..State::default() }), ..Self::default() }
    }
}

/// Returns the flags of [`TO_CONTENTS`] before a request of this kind.
fn contents_flags(kind: u32) -> u32 {
    if kind == TO_LOAD { ALREADY_SAVED } else { 0 }
}

impl Session {
    /// Sends a frame of `kind` to the worker, and waits for the answer. `asked` is that of the kind.
    ///
    /// Errors: see [`AskError`].
    pub(super) fn ask(&self, asked: &Asked, kind: u32, payload: &[u8]) -> Result<Vec<u8>, AskError> {
        self.ask_with(asked, kind, payload, None, PATIENCE)
    }

    /// As [`Self::ask`], with a file for the worker, and with this time for the answer.
    ///
    /// Errors: see [`AskError`].
    pub(super) fn ask_with(
        &self,
        asked: &Asked,
        kind: u32,
        payload: &[u8],
        file: Option<OwnedFd>,
        patience: Duration,
    ) -> Result<Vec<u8>, AskError> {
        self.ask_with_files(asked, (kind, 0), payload, (Vec::new(), file), patience)
    }

    /// As [`Self::ask_with`], with flags, and with files for contents before the other one.
    ///
    /// Errors: see [`AskError`].
    pub(super) fn ask_with_files(
        &self,
        asked: &Asked,
        (kind, flags): (u32, u32),
        payload: &[u8],
        (contents, file): (Vec<OwnedFd>, Option<OwnedFd>),
        patience: Duration,
    ) -> Result<Vec<u8>, AskError> {
        let _turn = asked.turn.lock();
        // Until the question is recorded as under way.
        let permit = freeze::permit();
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(AskError::Ended);
        }
        if state.is_away {
            return Err(AskError::Away);
        }
        let mut now = asked.state.lock();
        if now.request.is_some() {
            return Err(AskError::Stuck);
        }
        state.next_request += 1;
        let id = state.next_request;
        (now.request, now.answer) = (Some(id), None);
        drop(now);
        // What comes later waits.
        state.is_away = kind == TO_LEAVE && !state.is_stopped;
        state.is_stopped |= kind == TO_STOP;
        let header = ToWorker { kind, flags, id, ..ToWorker::default() };
        // Still locked: requests reach the worker in the order of their numbers, and files for contents right before their request.
        for contents in contents {
            let header = ToWorker { kind: TO_CONTENTS, flags: contents_flags(kind), ..header };
            self.send(Outgoing::File(header, Vec::new(), contents));
        }
        self.send(match file {
            Some(file) => Outgoing::File(header, payload.to_vec(), file),
            None => Outgoing::of(&header, payload),
        });
        drop(state);
        drop(permit);
        let deadline = Instant::now() + patience;
        let mut now = asked.state.lock();
        loop {
            if let Some(answer) = now.answer.take() {
                return answer;
            }
            if now.ended {
                return Err(AskError::Ended);
            }
            if asked.changed.wait_until(&mut now, deadline).timed_out() && now.answer.is_none() {
                return Err(AskError::Stuck);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::link::FROM_REPLY;

    use super::*;

    #[test]
    fn a_late_answer_is_dropped_by_the_next_program() {
        let asked = Asked::restore(Some(7));
        assert_eq!((asked.save(), asked.check()), (Some(7), Err(AskError::Stuck)));
        let header = |id| FromWorker { kind: FROM_REPLY, id, ..FromWorker::default() };
        assert_eq!(asked.answered(&header(6), vec![1]), Err(vec![1]));
        assert_eq!(asked.answered(&header(7), vec![1]), Ok(()));
        assert_eq!((asked.save(), asked.check()), (None, Ok(())));
    }
}
