// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that get another worker while their programs run: suspended deeply, moved from one worker to the other, and brought back.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::info;
use thiserror::Error;

use super::Suspender;
use crate::sessions::process::Worker;
use crate::sessions::residence::{Extent, MoveError, Phase};
use crate::sessions::session::Session;
use crate::sessions::session::asked::AskError;
use crate::sessions::session::renewal::RenewalError;

/// The reason for which a session has not got another worker, or has not come back with it.
#[derive(Debug, Error)]
pub enum Error {
    /// It was not moved.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The driver's objects have not ended, or it has stayed with its worker.
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    /// There is no other worker.
    #[error("there is no worker for it: {0}")]
    Worker(String),
    /// It has another worker, and is suspended.
    #[error("it has another worker, and stays suspended: {0}")]
    Back(MoveError),
}

impl Error {
    /// Returns whether the session had ended before.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Move(error) | Self::Back(error) => error.has_ended(),
            Self::Renewal(error) => matches!(error, RenewalError::Unanswered(AskError::Ended)),
            Self::Worker(_) => false,
        }
    }
}

/// The source of workers for a session that gets another one.
pub trait Workers {
    /// Takes a worker that has had no session.
    ///
    /// Errors: the reason for which there is no such worker.
    fn take(&self) -> Result<Worker, String>;

    /// Takes back a worker of [`Self::take`] to which nothing was sent.
    fn put_back(&self, worker: Worker);

    /// Makes the worker one of the session's machine: all that a worker gets before guest memory.
    ///
    /// Errors: the worker does not take it.
    fn assign(&self, worker: &Worker) -> io::Result<()>;
}

/// A renewal: its steps with their times, for the log.
struct Steps {
    /// True if the session ran before.
    ran: bool,
    begun: Instant,
    text: String,
}

impl Steps {
    fn end(&mut self, name: &str) {
        let between = if self.text.is_empty() { "" } else { ", " };
        self.text += &format!("{between}{name} in {:.3} s", self.begun.elapsed().as_secs_f64());
        self.begun = Instant::now();
    }
}

impl Suspender {
    /// Gives a session another worker. `time` is the time for its work to end. It runs afterwards if it ran before; otherwise it stays
    /// suspended.
    ///
    /// Errors: see [`Error`]. Unless that is [`Error::Back`], the session goes on with its worker as before, or has ended.
    pub fn renew(&self, session: &Arc<Session>, time: Duration, workers: &impl Workers) -> Result<(), Error> {
        let begun = Instant::now();
        let renewing = session.residence().renew(begun + time)?;
        session.check_renewal()?;
        let ran = session.residence().moves().phase == Phase::Running;
        let before = session.worker_pid();
        // While the program runs, because a worker may have to be started. Where the card has no room for one, it has when the session
        // is suspended.
        let fresh = workers.take();
        let stopped = Instant::now();
        let mut steps = Steps { ran, begun: stopped, text: String::new() };
        let result = self.change(session, time, workers, fresh, &mut steps);
        if !ran && result.is_ok() {
            // The context with which the worker has waited for a session ends, or it stays there until the session comes back.
            let _ = self.end_objects(session);
        }
        drop(renewing);
        // Also if it has failed. A session that did not run is brought back by its next call.
        let back = if ran { self.bring_back(session, Instant::now() + time).err() } else { None };
        session.residence().wake_again(session.label());
        result?;
        steps.end("brought back");
        info!(
            "{}: worker {before} replaced by {}, without calls for {:.3} s ({})",
            session.describe(),
            session.worker_pid(),
            stopped.elapsed().as_secs_f64(),
            steps.text
        );
        back.map_or(Ok(()), |error| Err(Error::Back(error)))
    }

    fn change(
        &self,
        session: &Arc<Session>,
        time: Duration,
        workers: &impl Workers,
        fresh: Result<Worker, String>,
        steps: &mut Steps,
    ) -> Result<(), Error> {
        let suspended = self.suspend_to(session, time, false, Extent::Held).map_err(Error::from);
        steps.end("suspended");
        if let Err(error) = suspended.and_then(|_| self.end_objects(session)) {
            fresh.into_iter().for_each(|worker| workers.put_back(worker));
            return Err(error);
        }
        steps.end("objects ended");
        let fresh = fresh.or_else(|_| workers.take()).map_err(Error::Worker)?;
        // Both workers have contents that are copied.
        let is_copied = !session.shares_contents(&fresh);
        let stored = if is_copied { session.residence().moves().stored_bytes } else { 0 };
        let host = match self.charge_contents(session.label(), stored) {
            Ok(host) => host,
            Err(error) => {
                workers.put_back(fresh);
                return Err(error.into());
            }
        };
        let renewed = session.renew(fresh, &host, steps.ran, |worker| workers.assign(worker));
        steps.end("gone over");
        renewed.map_err(Error::from)
    }

    /// Ends the driver's objects of a suspended session.
    pub(super) fn end_objects(&self, session: &Session) -> Result<(), Error> {
        if session.residence().moves().movable_bytes > 0 {
            return Err(RenewalError::State("it is suspended in part").into());
        }
        match session.deepen().map_err(RenewalError::from)? {
            Some(obstacle) => Err(RenewalError::Kept(obstacle).into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "renewing_test.rs"]
mod tests;
