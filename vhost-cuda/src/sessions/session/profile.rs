// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a worker that records what its session does, for one or more profiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;
use vhost_cuda_common::link::TO_PROFILE;
use vhost_cuda_common::recording::{READ, Recording, START, STOP};
use vhost_cuda_profile::event::{Batch, Event};
use zerocopy::IntoBytes;

use super::Session;
use super::asked::{AskError, Asked};

/// The maximum number of profiles of a session at a time. Limits the daemon's memory for events that one of them has not read.
const MAX_PROFILES: usize = 4;
/// The maximum number of such events (3 MiB). Further ones are counted and lost.
const MAX_WAITING: usize = 1 << 14;

/// The reason for which a session has no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// Too many profiles of it are recorded.
    #[error("{MAX_PROFILES} profiles of the session are being recorded: wait for the end of one")]
    Busy,
    /// Its worker has not answered.
    #[error(transparent)]
    Asked(#[from] AskError),
    /// The daemon's program is being replaced.
    #[error("the recording has ended, because the daemon's program is being replaced: begin another one")]
    Replaced,
}

/// The profiles of a session.
#[derive(Debug, Default)]
pub struct Profiled {
    pub(super) asked: Asked,
    /// What the worker has said so far. Locked by the one who asks, until the answer has been handed out.
    recording: Mutex<Recording>,
    waiting: Mutex<AllWaiting>,
}

/// What each [`Profiling`] has not read, by its number.
#[derive(Debug, Default)]
struct AllWaiting {
    profiles: BTreeMap<u64, Waiting>,
    next_profile: u64,
}

/// Events that another profile has fetched.
#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Event>,
    dropped: u64,
}

impl Waiting {
    fn add(&mut self, events: &[Event], dropped: u64) {
        let room = MAX_WAITING - self.events.len();
        let (kept, lost) = events.split_at(room.min(events.len()));
        self.events.extend_from_slice(kept);
        self.dropped = self.dropped.saturating_add(dropped).saturating_add(lost.len() as u64);
    }
}

impl Profiled {
    /// Returns the request that the worker has not answered, for the next program.
    ///
    /// Errors: a profile is being recorded.
    pub fn save(&self) -> Result<Option<u64>, String> {
        if self.waiting.lock().profiles.is_empty() {
            Ok(self.asked.save())
        } else {
            Err("is being recorded for a profile".into())
        }
    }

    /// Goes on with what [`Self::save`] has returned in the program before this one.
    pub fn restore(request: Option<u64>) -> Self {
        Self { asked: Asked::restore(request), ..Self::default() }
    }
}

/// A profile of a session that is being recorded. It ends when this is dropped.
#[derive(Debug)]
pub struct Profiling {
    session: Arc<Session>,
    number: u64,
}

impl Profiling {
    /// Begins to record. The worker records once for all profiles of its session.
    ///
    /// Errors: see [`ProfileError`].
    pub fn start(session: &Arc<Session>) -> Result<Self, ProfileError> {
        let mut recording = session.profile.recording.lock();
        session.profile.asked.check()?;
        let mut waiting = session.profile.waiting.lock();
        if waiting.profiles.len() >= MAX_PROFILES {
            return Err(ProfileError::Busy);
        }
        waiting.next_profile += 1;
        let (number, is_first) = (waiting.next_profile, waiting.profiles.is_empty());
        waiting.profiles.insert(number, Waiting::default());
        drop(waiting);
        let profiling = Self { session: session.clone(), number };
        if is_first {
            *recording = Recording::default();
            // What comes with the answer is from before.
            let started = profiling.fetch(START, &mut recording);
            // It is locked once more if `profiling` is dropped.
            drop(recording);
            started?;
        }
        Ok(profiling)
    }

    /// Returns what was recorded since the last time, and the number of records that wait.
    ///
    /// Errors: see [`ProfileError`].
    pub fn read(&mut self) -> Result<(Batch, u64), ProfileError> {
        let session = self.session.clone();
        let mut recording = session.profile.recording.lock();
        let waiting = session.profile.waiting.lock().profiles.get_mut(&self.number).map(std::mem::take);
        let Waiting { events, dropped } = waiting.unwrap_or_default();
        if events.is_empty() && dropped == 0 {
            return self.fetch(READ, &mut recording);
        }
        // The worker may have more.
        Ok((Batch { events, dropped, ..self.batch() }, 1))
    }

    fn batch(&self) -> Batch {
        let (program, pid, _) = self.session.program();
        Batch { session: self.session.label(), program: program.to_owned(), pid, ..Batch::default() }
    }

    /// Asks the worker, and keeps what it answers for the other profiles.
    fn fetch(&self, what: u32, recording: &mut Recording) -> Result<(Batch, u64), ProfileError> {
        let answer = self.session.ask_for_profile(what)?;
        let (head, events) = recording.read(&answer).ok_or(AskError::Malformed)?;
        let mut waiting = self.session.profile.waiting.lock();
        let others = waiting.profiles.iter_mut().filter(|(number, _)| **number != self.number);
        others.for_each(|(_, waiting)| waiting.add(&events, head.dropped));
        drop(waiting);
        let no_gpu = match head.no_gpu {
            0 => None,
            500 => Some(
                "the host has no CUPTI (install NVIDIA's package of it, or name its folder with --libraries)"
                    .into(),
            ),
            error => Some(format!("the host's CUPTI refuses (CUDA error {error})")),
        };
        Ok((Batch { events, dropped: head.dropped, no_gpu, ..self.batch() }, head.left))
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        // Nobody else may begin meanwhile.
        let _recording = self.session.profile.recording.lock();
        let mut waiting = self.session.profile.waiting.lock();
        waiting.profiles.remove(&self.number);
        let is_last = waiting.profiles.is_empty();
        drop(waiting);
        if is_last {
            // A worker that has ended records nothing. One that does not answer may go on, at its own cost: its records are
            // bounded.
            let _ = self.session.ask_for_profile(STOP);
        }
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

    use vhost_cuda_common::link::{FROM_REPLY, FromWorker, profile_request, receive_frame, send_reply};
    use vhost_cuda_common::recording::{Answer, CALL, Record};
    use virtio_cuda_protocol::transport::{Open, REPLY_INVALID};

    use super::*;
    use crate::sessions::fixture::sleeping_worker;
    use crate::sessions::session::asked::PATIENCE;
    use crate::sessions::session::{End, Place};

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
        let session =
            Session::new(1, 1, &open, Place::default(), worker, Arc::default(), Box::new(Arc::default));
        let ((opens, opened), (ends, ended)) = (channel(), channel());
        let runner = session.clone();
        thread::spawn(move || runner.run(|| opens.send(()).unwrap(), |end| ends.send(end).unwrap()));
        thread::spawn(move || play(&theirs));
        opened.recv().unwrap();
        let mut profiling = Profiling::start(&session).unwrap();
        assert!(session.profile.save().is_err());
        let mut beside: Vec<_> = (1..MAX_PROFILES).map(|_| Profiling::start(&session).unwrap()).collect();
        assert_eq!(Profiling::start(&session).err(), Some(ProfileError::Busy));
        let (batch, left) = profiling.read().unwrap();
        assert_eq!((batch.pid, batch.events.len(), batch.events[0].duration(), left), (7, 1, 0, 0));
        assert!(batch.no_gpu.unwrap().contains("CUPTI"));
        // What one has fetched, the others get, without another request.
        for other in &mut beside {
            assert_eq!(other.read().unwrap().0.events, batch.events);
        }
        drop(beside);
        assert_eq!(profiling.read().err(), Some(ProfileError::Asked(AskError::Malformed)));
        drop(profiling);
        assert_eq!(session.profile.save(), Ok(None));
        let mut again = Profiling::start(&session).unwrap();
        assert_eq!(again.read().err(), Some(ProfileError::Asked(AskError::Malformed)), "a refusal");
        // The worker hangs up instead of an answer: the session ends, and nobody waits.
        assert_eq!(again.read().err(), Some(ProfileError::Asked(AskError::Ended)));
        assert_eq!(ended.recv_timeout(PATIENCE), Ok(End::Lost));
        drop(again);
        assert_eq!(Profiling::start(&session).err(), Some(ProfileError::Asked(AskError::Ended)));
    }

    #[test]
    fn events_that_a_profile_does_not_read_are_bounded() {
        let event = Event::new(vhost_cuda_profile::event::Kind::Call, "f", 1, [0, 1]);
        let mut waiting = Waiting::default();
        waiting.add(&vec![event.clone(); MAX_WAITING - 1], 2);
        waiting.add(&[event.clone(), event.clone(), event], 0);
        assert_eq!((waiting.events.len(), waiting.dropped), (MAX_WAITING, 4));
        waiting.add(&[], u64::MAX);
        assert_eq!(waiting.dropped, u64::MAX, "a worker says any number");
    }
}
