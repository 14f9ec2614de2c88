// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that get another worker while their programs run: suspended deeply, moved from one worker to the other, and brought back.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Suspender;
use crate::sessions::process::Worker;
use crate::sessions::residence::{Extent, MoveError, Phase};
use crate::sessions::session::Session;
use crate::sessions::session::renewal::RenewalError;
use log::info;
use thiserror::Error;

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

/// The source of workers for a session that gets another one.
pub trait Workers {
    /// Takes a worker that has had no session.
    ///
    /// Errors: the reason for which there is none.
    fn take(&self) -> Result<Worker, String>;

    /// Takes back a worker of [`Self::take`] to which nothing was sent.
    fn put_back(&self, worker: Worker);

    /// Makes the worker one of the session's machine: all that a worker gets before guest memory.
    ///
    /// Errors: the worker does not take it.
    fn assign(&self, worker: &Worker) -> io::Result<()>;
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
        let result = self.change(session, time, workers, fresh);
        drop(renewing);
        // Also if it has failed. A session that did not run is brought back by its next call.
        let back = if ran { self.bring_back(session, Instant::now() + time).err() } else { None };
        session.residence().wake_again(session.label());
        result?;
        info!(
            "{}: worker {before} replaced by {}, without calls for {:.3} s",
            session.describe(),
            session.worker_pid(),
            stopped.elapsed().as_secs_f64()
        );
        back.map_or(Ok(()), |error| Err(Error::Back(error)))
    }

    fn change(
        &self,
        session: &Arc<Session>,
        time: Duration,
        workers: &impl Workers,
        fresh: Result<Worker, String>,
    ) -> Result<(), Error> {
        let suspended = self.suspend_to(session, time, false, Extent::Any).map_err(Error::from);
        if let Err(error) = suspended.and_then(|_| self.end_objects(session)) {
            fresh.into_iter().for_each(|worker| workers.put_back(worker));
            return Err(error);
        }
        let fresh = fresh.or_else(|_| workers.take()).map_err(Error::Worker)?;
        let stored = session.residence().moves().stored_bytes;
        let host = match self.charge_contents(session.label(), stored) {
            Ok(host) => host,
            Err(error) => {
                workers.put_back(fresh);
                return Err(error.into());
            }
        };
        session.renew(fresh, &host, |worker| workers.assign(worker)).map_err(Error::from)
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
