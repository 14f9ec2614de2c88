// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a suspended session that go to a file, and come back. They pass the daemon as a pipe, whose other end whoever asks has:
//! it reads and writes nothing of them.

use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{TO_LOAD, TO_SAVE, TO_SAVED, VERSION_OF_SAVING};
use vhost_cuda_common::recipes::Description;
use zerocopy::IntoBytes;

use super::Session;
use super::asked::{AskError, PATIENCE};
use super::moves::time_of;
use crate::sessions::residence::Phase;

/// The reason for which contents stay where they are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SavingError {
    /// The worker was not asked.
    #[error("{0}")]
    State(&'static str),
    /// It did not answer.
    #[error(transparent)]
    Unanswered(#[from] AskError),
    /// It refuses.
    #[error("{0}")]
    Refused(String),
}

impl Session {
    /// Has the worker write the contents of the suspended session to a pipe. They stay in host memory.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn write_contents(&self, to: OwnedFd) -> Result<(), SavingError> {
        let moves = self.residence.moves();
        if moves.phase != Phase::Suspended || moves.saved || moves.movable_bytes > 0 {
            return Err(SavingError::State("its contents are not in host memory"));
        }
        self.ask_about_contents(TO_SAVE, &[], Some(to), time_of(moves.stored_bytes)).map(drop)
    }

    /// Gives up the contents in host memory, after what was written last is safe.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn give_up_contents(&self) -> Result<(), SavingError> {
        self.ask_about_contents(TO_SAVED, &[], None, PATIENCE)?;
        self.residence.saved();
        Ok(())
    }

    /// Has the worker read the contents from a pipe, into the host memory of `charge`.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn load_contents(&self, from: OwnedFd, charge: Charge) -> Result<(), SavingError> {
        let moves = self.residence.moves();
        if !moves.saved {
            return Err(SavingError::State("its contents are in host memory"));
        }
        let most = charge.amount() as u64;
        let time = time_of(moves.suspended_bytes);
        let bytes = self.ask_about_contents(TO_LOAD, most.as_bytes(), Some(from), time)?;
        self.residence.loaded(bytes, charge);
        Ok(())
    }

    fn ask_about_contents(
        &self,
        kind: u32,
        payload: &[u8],
        pipe: Option<OwnedFd>,
        time: Duration,
    ) -> Result<u64, SavingError> {
        if self.assigned().worker.version < VERSION_OF_SAVING {
            return Err(SavingError::State("its worker is of an older release"));
        }
        let answer = self.ask_with(&self.recipe, kind, payload, pipe, time)?;
        match Description::read(&answer).ok_or(AskError::Malformed)? {
            Description { obstacle: Some(reason), .. } => Err(SavingError::Refused(reason)),
            Description { bytes, .. } => Ok(bytes),
        }
    }
}
