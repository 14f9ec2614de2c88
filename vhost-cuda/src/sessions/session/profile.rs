// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a worker that records what its session does, for a profile.

use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use vhost_cuda_profile::event::Batch;
use zerocopy::IntoBytes;

use super::Session;
use super::asked::{AskError, Asked};
use crate::sessions::link::TO_PROFILE;
use crate::sessions::recording::{READ, Recording, START, STOP};

/// The reason for which a session has no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// Another profile of it is recorded.
    #[error("another profile of the session is being recorded: wait for its end")]
    Busy,
    /// Its worker has not answered.
    #[error(transparent)]
    Asked(#[from] AskError),
}

/// The profile of a session.
#[derive(Debug, Default)]
pub struct Profiled {
    pub(super) asked: Asked,
    /// True while there is a [`Profiling`].
    is_taken: Mutex<bool>,
}

/// A profile of a session that is being recorded. It ends when this is dropped.
#[derive(Debug)]
pub struct Profiling {
    session: Arc<Session>,
    recording: Recording,
}

impl Profiling {
    /// Begins to record. Each session has one profile at a time.
    ///
    /// Errors: see [`ProfileError`].
    pub fn start(session: &Arc<Session>) -> Result<Self, ProfileError> {
        let mut is_taken = session.profile.is_taken.lock();
        if !session.profile.asked.is_answered()? || *is_taken {
            return Err(ProfileError::Busy);
        }
        *is_taken = true;
        drop(is_taken);
        let mut profiling = Self { session: session.clone(), recording: Recording::default() };
        // What comes with it is from before.
        profiling.ask(START)?;
        Ok(profiling)
    }

    /// Returns what was recorded since the last time, and the number of records that wait.
    ///
    /// Errors: see [`ProfileError`].
    pub fn read(&mut self) -> Result<(Batch, u64), ProfileError> {
        self.ask(READ)
    }

    fn ask(&mut self, what: u32) -> Result<(Batch, u64), ProfileError> {
        let answer = self.session.ask_for_profile(what)?;
        let (head, events) = self.recording.read(&answer).ok_or(AskError::Malformed)?;
        let (program, pid, _) = self.session.program();
        let no_gpu = match head.no_gpu {
            0 => None,
            500 => Some(
                "the host has no CUPTI (install NVIDIA's package of it, or name its folder with --libraries)"
                    .into(),
            ),
            error => Some(format!("the host's CUPTI refuses (CUDA error {error})")),
        };
        let (session, program) = (self.session.label(), program.to_owned());
        Ok((Batch { session, program, pid, events, dropped: head.dropped, no_gpu }, head.left))
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        // A worker that has ended records nothing. One that does not answer may go on, at its own cost: its records are bounded.
        let _ = self.session.ask_for_profile(STOP);
        *self.session.profile.is_taken.lock() = false;
    }
}

impl Session {
    fn ask_for_profile(&self, what: u32) -> Result<Vec<u8>, AskError> {
        self.ask(&self.profile.asked, TO_PROFILE, what.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::thread;

    use virtio_cuda_protocol::transport::{Open, REPLY_INVALID};

    use super::*;
    use crate::fixture::sleeping_worker;
    use crate::sessions::link::{FROM_REPLY, FromWorker, profile_request, receive_frame, send_reply};
    use crate::sessions::recording::{Answer, CALL, Record};
    use crate::sessions::session::End;
    use crate::sessions::session::asked::PATIENCE;

    /// Answers READ with a record, with garbage, with a refusal, and then not at all; all other requests with nothing.
    fn play(link: &UnixStream) {
        let mut reads = 0;
        while let Ok(Some(frame)) = receive_frame(link) {
            let Some(request) = profile_request(&frame.payload).filter(|_| frame.header.kind == TO_PROFILE)
            else {
                continue;
            };
            let mut answer = Answer::new(1 << 10, 500);
            reads += u32::from(request == READ);
            answer.record(Record { kind: CALL, begin: 5, end: 3, ..Record::default() });
            let mut payload = answer.finish(0, 0);
            let mut header = FromWorker { kind: FROM_REPLY, id: frame.header.id, ..FromWorker::default() };
            match (request, reads) {
                (READ, 1) => {}
                (READ, 2) => payload.truncate(50),
                (READ, 3) => header.status = REPLY_INVALID,
                (READ, _) => return,
                _ => payload = Answer::new(1 << 10, 0).finish(0, 0),
            }
            send_reply(link, &header, &payload).unwrap();
        }
    }

    #[test]
    fn nothing_that_a_worker_answers_is_trusted() {
        let (worker, theirs) = sleeping_worker();
        let open = Open { pid: 7, uid: 0, charged_uid: 0, name: [0; 16] };
        let session = Session::new(1, 1, &open, worker, Arc::default(), Box::new(Arc::default));
        let ((opens, opened), (ends, ended)) = (channel(), channel());
        let runner = session.clone();
        thread::spawn(move || runner.run(|| opens.send(()).unwrap(), |end| ends.send(end).unwrap()));
        thread::spawn(move || play(&theirs));
        opened.recv().unwrap();
        let mut profiling = Profiling::start(&session).unwrap();
        assert_eq!(Profiling::start(&session).err(), Some(ProfileError::Busy));
        let (batch, left) = profiling.read().unwrap();
        assert_eq!((batch.pid, batch.events.len(), batch.events[0].duration(), left), (7, 1, 0, 0));
        assert!(batch.no_gpu.unwrap().contains("CUPTI"));
        assert_eq!(profiling.read().err(), Some(ProfileError::Asked(AskError::Malformed)));
        drop(profiling);
        let mut again = Profiling::start(&session).unwrap();
        assert_eq!(again.read().err(), Some(ProfileError::Asked(AskError::Malformed)), "a refusal");
        // The worker hangs up instead of an answer: the session ends, and nobody waits.
        assert_eq!(again.read().err(), Some(ProfileError::Asked(AskError::Ended)));
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(End::Lost));
        drop(again);
        assert_eq!(Profiling::start(&session).err(), Some(ProfileError::Asked(AskError::Ended)));
    }
}
