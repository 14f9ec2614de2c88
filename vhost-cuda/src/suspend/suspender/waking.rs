// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that come back: because a call of their programs waits, or because the operator says so.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, error, log};
use vhost_cuda_common::link::{MOVED, MOVED_BEFORE, Moved, NO_DEVICE_MEMORY};

use super::Suspender;
use crate::limits::throttle::Throttle;
use crate::sessions::endings::PATIENCE;
use crate::sessions::residence::{Extent, MoveError};
use crate::sessions::session::Session;
use crate::shares::room::Room;

/// The time for which calls of a suspended session wait for room on the card, before they fail with error 2.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(60);
/// The time between two attempts to bring a session back while nobody makes room: sessions that run may free memory.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Limits messages about calls that were refused.
static REFUSALS: Throttle = Throttle::new(10, Duration::from_secs(60));

/// Starts the thread that serves the labels in `woken`.
pub fn start(suspender: &Arc<Suspender>, woken: Receiver<u64>) -> io::Result<()> {
    let suspender = Arc::downgrade(suspender);
    thread::Builder::new().name("wake-ups".into()).spawn(move || serve(&suspender, &woken)).map(drop)
}

fn serve(suspender: &Weak<Suspender>, woken: &Receiver<u64>) {
    for label in woken {
        let Some(suspender) = suspender.upgrade() else { return };
        let session = suspender.sessions.lock().get_mut(&label).and_then(|entry| {
            // The label may be older than a refusal of the calls that waited. One thread for each session at most.
            let begins =
                entry.session.residence().is_waited_for() && !std::mem::replace(&mut entry.is_waking, true);
            begins.then(|| entry.session.clone())
        });
        let Some(session) = session else { continue };
        let waking = suspender.clone();
        let work = move || {
            waking.wake(&session);
            waking.woke(&session);
        };
        if let Err(error) = thread::Builder::new().name(format!("session-{label}-r")).spawn(work) {
            error!("session {label}: no thread to bring its memory back: {error}");
            let session = suspender.sessions.lock().get_mut(&label).map(|entry| {
                entry.is_waking = false;
                entry.session.clone()
            });
            // Not while the sessions are locked: it waits while the daemon's program is being replaced.
            if let Some(session) = session {
                session.refuse_resume();
            }
        }
    }
}

impl Suspender {
    /// Brings back a session of which a call waits, or lets the call fail.
    fn wake(&self, session: &Session) {
        let result = self.bring_back(session, Instant::now() + WAIT_FOR_ROOM);
        // The operator may have held it meanwhile: then its calls wait.
        let is_waited_for = session.residence().is_waited_for();
        if let (Err(error), true) = (result, is_waited_for) {
            log!(
                REFUSALS.level(Level::Warn),
                "{}: its calls fail, and it stays suspended: {error}",
                session.describe()
            );
            session.refuse_resume();
        }
    }

    /// Records that the thread of [`Self::wake`] ends.
    fn woke(&self, session: &Session) {
        if let Some(entry) = self.sessions.lock().get_mut(&session.label()) {
            entry.is_waking = false;
        }
        // For a wake-up that came in between.
        session.residence().wake_again(session.label());
    }

    /// Brings a session back. While the card has no room, waits for sessions that are ending, and suspends others, until
    /// `deadline`. If these find no host memory, it comes back in pieces, and they leave to where its contents were.
    ///
    /// Errors: see [`MoveError`].
    pub(super) fn bring_back(
        &self,
        session: &Session,
        deadline: Instant,
    ) -> Result<Option<Moved>, MoveError> {
        let label = session.label();
        let mut pause = FIRST_PAUSE;
        let mut turn = None;
        loop {
            let room = *self.room.lock();
            let extent = if turn.is_some() { Extent::Pieces } else { Extent::Whole };
            let error = match session.resume(extent) {
                Ok(None) => return Ok(None),
                // The worker may have brought it back before, when it has got the session.
                Ok(Some(moved)) if [MOVED, MOVED_BEFORE].contains(&moved.outcome) => {
                    self.tried(label);
                    if self.options.keep.is_zero() {
                        session.forget();
                    }
                    return Ok(Some(moved));
                }
                Ok(Some(moved)) => {
                    MoveError::Failed { outcome: NO_DEVICE_MEMORY, cuda: 0, devices: moved.full_devices }
                }
                Err(error) => error,
            };
            let goes_on = match error {
                MoveError::Busy => session.residence().settled(deadline),
                MoveError::Renewing => session.residence().has_renewed(deadline),
                MoveError::Failed { outcome: NO_DEVICE_MEMORY, devices, .. } => {
                    self.endings.settle(PATIENCE, false)
                        || match self.find_room(Some(label), devices) {
                            Room::Made => true,
                            Room::NoHostMemory if turn.is_none() => {
                                turn = self.take_turn(label);
                                turn.is_some()
                            }
                            _ => false,
                        }
                        || self.wait_for_room(room, &mut pause, deadline)
                }
                _ => false,
            };
            if !goes_on || Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// Lets a session come back in pieces. `None` if another one does.
    fn take_turn(&self, label: u64) -> Option<Turn<'_>> {
        let mut in_pieces = self.in_pieces.lock();
        in_pieces.is_none().then(|| {
            *in_pieces = Some(label);
            Turn(self)
        })
    }

    /// Waits until there may be more room than at `before`, for at most `pause`, which grows. Returns false at
    /// `deadline`.
    fn wait_for_room(&self, before: u64, pause: &mut Duration, deadline: Instant) -> bool {
        let until = (Instant::now() + *pause).min(deadline);
        *pause = (*pause * 2).min(LAST_PAUSE);
        let mut room = self.room.lock();
        while *room == before && !self.has_room.wait_until(&mut room, until).timed_out() {}
        Instant::now() < deadline
    }
}

/// The turn of a session to come back in pieces.
struct Turn<'a>(&'a Suspender);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.in_pieces.lock() = None;
    }
}
