// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a suspended session that go to files, and come back. The files pass the daemon, and the places of contents a pipe,
//! whose other end whoever asks has: it reads and writes nothing of them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use thiserror::Error;
use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
use vhost_cuda_common::link::{
    CHUNK_BYTES, NEXT_SUSPENSION, TO_CONTENTS, TO_LOAD, TO_SAVE, TO_SAVED, ToWorker, VERSION_OF_CONTENTS,
};
use vhost_cuda_common::parts::FILES;
use vhost_cuda_common::recipes::Description;
use zerocopy::IntoBytes;

use super::asked::{AskError, PATIENCE};
use super::moves::time_of;
use super::{Outgoing, Session};
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
    /// Those of the contents.
    pub contents: Vec<OwnedFd>,
    /// A pipe for their places there.
    pub pipe: OwnedFd,
}

/// Creates files in memory for so many bytes of contents. They take memory when they are written.
pub fn contents_files(bytes: u64) -> io::Result<Vec<OwnedFd>> {
    let chunks = bytes.div_ceil(CHUNK_BYTES);
    let count = chunks.clamp(1, FILES as u64);
    let create = |more: u64| {
        let file = memory_file(c"contents")?;
        file.set_len((chunks + more) / count * CHUNK_BYTES)?;
        // Workers map it, and a worker executes code of the guest.
        add_seals(&file, FIXED_LENGTH)?;
        Ok(file.into())
    };
    (0..count).rev().map(create).collect()
}

impl Session {
    /// Gives the worker files for the contents of the next suspension. Without files they go where they would without this call.
    ///
    /// Errors: there are no descriptors.
    pub fn offer(&self, files: &[OwnedFd]) -> io::Result<()> {
        let files = files.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
        let state = self.state.lock();
        if self.is_open(&state) && self.assigned().worker.version >= VERSION_OF_CONTENTS {
            let header = ToWorker { kind: TO_CONTENTS, id: NEXT_SUSPENSION, ..ToWorker::default() };
            // What was offered before.
            self.send(Outgoing::of(&header, &[]));
            files.into_iter().for_each(|file| self.send(Outgoing::File(header, Vec::new(), file)));
        }
        Ok(())
    }

    /// Has the worker move the contents of the suspended session to files. They count as its host memory still.
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

    /// Has the worker take the contents from files, which `charge` is for from now on. [`Self::give_up_contents`] gives them up again.
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
        let files = files.map_or((Vec::new(), None), |Files { contents, pipe }| (contents, Some(pipe)));
        let answer = self.ask_with_files(&self.recipe, (kind, 0), payload, files, time)?;
        match Description::read(&answer).ok_or(AskError::Malformed)? {
            Description { obstacle: Some(reason), .. } => Err(SavingError::Refused(reason)),
            Description { bytes, .. } => Ok(bytes),
        }
    }
}
