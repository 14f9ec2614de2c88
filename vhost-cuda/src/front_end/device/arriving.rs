// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that arrive with their machine, and those that leave with it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vhost_cuda_common::budget::Charge;
use vhost_cuda_common::link::{self, ALREADY_SAVED};

use super::ending::wait_for;
use super::opening::{Held, NEXT_LABEL, Reservation};
use super::{Device, END_PATIENCE};
use crate::front_end::patient::{Patient, widen};
use crate::limits::account::Slot;
use crate::limits::room;
use crate::owner::Owner;
use crate::sessions::session::machine::MachineSession;
use crate::sessions::session::{Place, Session};
use crate::suspend::suspender::Ages;

/// A session that reads its state from a pipe.
pub struct Arrival {
    session: Arc<Session>,
    owner: Owner,
    held: Held,
    reservation: Reservation,
    pipe: Option<File>,
}

impl Arrival {
    /// Returns the pipe for its state, once.
    pub fn pipe(&mut self) -> Option<Patient> {
        self.pipe.take().map(Patient::new)
    }

    /// Waits until its worker has read all that is in the pipe.
    ///
    /// Errors: the reason for which it does not take the session. The worker ends.
    pub fn has_entered(&self) -> Result<(), String> {
        self.session.has_entered()
    }

    /// Gives the session up.
    pub fn give_up(self, device: &Device) {
        device.settings.endings.ended(self.session.label());
    }
}

impl Device {
    /// Returns the sessions that go with the machine, whose queues are stopped.
    ///
    /// Errors: one is being opened.
    pub fn sessions_to_save(&self) -> Result<Vec<Arc<Session>>, &'static str> {
        let sessions = self.sessions.lock();
        if sessions.opening > 0 {
            return Err("a session is being opened: try again");
        }
        Ok(sessions.open.values().filter(|session| session.goes_on()).cloned().collect())
    }

    /// Ends all sessions, because the device gets another state.
    ///
    /// Errors: they do not end in time.
    pub fn end_for_another_state(&self) -> Result<(), &'static str> {
        let ending = self.end_sessions(false);
        self.events.clear();
        let all = wait_for(&ending, Instant::now() + END_PATIENCE);
        if all { Ok(()) } else { Err("sessions that the device has do not end") }
    }

    /// Gives a session of another daemon a worker, which gets its contents in the folder beside the state that it names, or in `contents`
    /// if they have come ahead, and else with the rest. `charge` is for `contents`. Must not be called by a confined thread.
    ///
    /// Errors: the reason for which it gets none.
    pub fn arrive(
        self: &Arc<Self>,
        saved: MachineSession,
        contents: Option<&File>,
        charge: Option<Charge>,
    ) -> Result<Arrival, String> {
        if self.session(saved.id).is_some() || !saved.is_sound() {
            return Err("it is there already, or a number of it is out of range".to_owned());
        }
        let bytes = saved.residence.whole_bytes().ok_or("it is not suspended as a whole")?;
        let charged_uid = saved.charged_uid;
        let reserved = self.reserve(charged_uid);
        let (mut reservation, of_user) = reserved.ok_or(
            "its machine or its user has too many sessions, or the daemon has no descriptors for it",
        )?;
        room::check().map_err(|error| format!("the daemon is out of address space: {error}"))?;
        let label = NEXT_LABEL.fetch_add(1, Ordering::Relaxed);
        let beside = saved.contents.as_deref().map(|name| self.saved_contents(name, bytes)).transpose()?;
        let (contents, needed, charge) = match &beside {
            // The kernel keeps files in memory for all who map them, and can give them up.
            Some(files) => ((&files[..], ALREADY_SAVED), 0, None),
            None => ((contents.map_or(&[][..], std::slice::from_ref), 0), bytes, charge),
        };
        let there = charge.as_ref().map_or(0, Charge::amount) as u64;
        let mut host = self.settings.suspender.charge_contents(label, needed.saturating_sub(there));
        if let (Ok(host), Some(charge)) = (&mut host, charge) {
            host.merge(charge);
        }
        let host = host.map_err(|error| error.to_string())?;
        let slot = self.with_settled_memory(|| self.join_account());
        let slot = slot.map_err(|()| "its machine has not enough device memory (--memory)")?;
        let taken = self.take_worker(|| reservation.stands(&self.sessions.lock()));
        let worker = taken.map_err(|error| error.to_string())?.ok_or("its machine has gone")?;
        self.settings.pool.arrived();
        let membership = self.join_group(charged_uid, &worker.process);
        if let Some((terms, file)) = slot.as_ref().map(Slot::terms) {
            let sent = link::send_account(&worker.sockets.link, &terms, file);
            sent.map_err(|error| format!("its worker does not take its account: {error}"))?;
        }
        let owner = self.owner(saved.uid);
        let account = slot.as_ref().map(Slot::index);
        let place = Place { charged_uid, account, in_group: membership.is_some() };
        let (endings, tables) = (self.settings.endings.clone(), self.tables());
        let session = Session::of_machine(saved, label, owner.uid, place, worker, host, endings, tables);
        let held = Held { slot, membership, of_user, charge: reservation.charge.take() };
        let pipe = self.begin_to_enter(&session, owner, bytes, contents);
        let pipe = pipe.map_err(|error| {
            self.settings.endings.ended(session.label());
            format!("its worker does not read: {error}")
        })?;
        Ok(Arrival { session, owner, held, reservation, pipe: Some(pipe) })
    }

    /// Opens the files with the contents of a session, which take `bytes` bytes.
    ///
    /// Errors: the reason for which they are not there.
    fn saved_contents(&self, name: &str, bytes: u64) -> Result<Vec<File>, String> {
        let folder = self.settings.contents.as_ref();
        let folder =
            folder.ok_or("its contents are in a file beside the state (start the daemon with --contents)")?;
        let files = folder.find(name)?;
        let lengths: io::Result<Vec<u64>> = files.iter().map(|file| Ok(file.metadata()?.len())).collect();
        let lengths = lengths.map_err(|error| error.to_string())?;
        match lengths.into_iter().fold(0, u64::saturating_add) < bytes {
            true => Err("the files with its contents are too short".to_owned()),
            false => Ok(files),
        }
    }

    fn begin_to_enter(
        self: &Arc<Self>,
        session: &Session,
        owner: Owner,
        bytes: u64,
        contents: (&[File], u32),
    ) -> io::Result<File> {
        self.serve_questions(session, &session.assigned().worker.sockets, owner, Vec::new());
        let (reader, writer) = io::pipe()?;
        widen(&writer);
        session.enter(reader.into(), bytes, contents)?;
        Ok(OwnedFd::from(writer).into())
    }

    /// Opens a session that has entered. It goes on with the queues. Must not be called by a confined thread.
    ///
    /// Errors: the machine has gone, or there is no thread.
    pub fn open_arrival(self: &Arc<Self>, arrival: Arrival) -> Result<(), String> {
        let Arrival { session, owner, held, reservation, .. } = arrival;
        let mut sessions = self.sessions.lock();
        if !reservation.stands(&sessions) {
            drop(sessions);
            self.settings.endings.ended(session.label());
            return Err("its machine has gone".to_owned());
        }
        sessions.open.insert(session.id(), session.clone());
        self.stopped.store(true, Ordering::Release);
        drop(sessions);
        drop(reservation);
        self.start(&session, owner, held, Ages::default()).map_err(|error| {
            self.settings.endings.ended(session.label());
            format!("there is no thread for it: {error}")
        })
    }
}
