// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a suspended session that go to a file, and come back. They pass the daemon as a file in memory, and their places as a pipe,
//! whose other end whoever asks has: it reads and writes nothing of them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
use vhost_cuda_common::link::{CHUNK_BYTES, TO_LOAD, TO_SAVE, TO_SAVED, VERSION_OF_CONTENTS};
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

/// The descriptors of contents on their way.
#[derive(Debug)]
pub struct Files {
    /// The contents.
    pub memory: OwnedFd,
    /// A pipe for their places in it.
    pub pipe: OwnedFd,
}

/// Returns the length of a file for so many bytes of contents.
///
/// Errors: `FileTooLarge`.
pub fn contents_bytes(bytes: u64) -> io::Result<u64> {
    bytes.max(1).checked_next_multiple_of(CHUNK_BYTES).ok_or(io::ErrorKind::FileTooLarge.into())
}

/// Creates a file in memory for so many bytes of contents. It takes memory when they are written.
pub fn contents_file(bytes: u64) -> io::Result<OwnedFd> {
    let file = memory_file(c"contents")?;
    file.set_len(contents_bytes(bytes)?)?;
    // Workers and `ctl` map it, and a worker executes code of the guest.
    add_seals(&file, FIXED_LENGTH)?;
    Ok(file.into())
}

impl Session {
    /// Has the worker move the contents of the suspended session to a file in memory. They count as its host memory still.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn write_contents(&self, to: Files) -> Result<(), SavingError> {
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

    /// Has the worker take the contents from a file in memory, which `charge` is for from now on.
    ///
    /// Errors: see [`SavingError`]; nothing has changed.
    pub fn load_contents(&self, from: Files, charge: Charge) -> Result<(), SavingError> {
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
        files: Option<Files>,
        time: Duration,
    ) -> Result<u64, SavingError> {
        if self.assigned().worker.version < VERSION_OF_CONTENTS {
            return Err(SavingError::State("its worker is of an older release"));
        }
        let files = files.map_or((None, None), |Files { memory, pipe }| (Some(memory), Some(pipe)));
        let answer = self.ask_with_files(&self.recipe, (kind, 0), payload, files, time)?;
        match Description::read(&answer).ok_or(AskError::Malformed)? {
            Description { obstacle: Some(reason), .. } => Err(SavingError::Refused(reason)),
            Description { bytes, .. } => Ok(bytes),
        }
    }
}
