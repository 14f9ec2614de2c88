// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that are handed over to the next program, with their sessions, while no request is under way.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use log::error;
use serde::{Deserialize, Serialize};

use super::opening::{Held, Membership, NEXT_LABEL, UserSession};
use super::{Device, Ended};
use crate::exchange::SavedOffer;
use crate::front_end::relay::SavedRelay;
use crate::guest::memory::FileId;
use crate::guest::ring::SavedRing;
use crate::hand_over::files::{Inherited, Leaving};
use crate::limits::account::{Account, SavedAccount};
use crate::limits::descriptors;
use crate::sessions::process::WorkerSpec;
use crate::sessions::session::{SavedSession, Session};
use crate::suspend::suspender::Ages;

/// A device with its front-end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedDevice {
    /// The number of the connection, for the log.
    pub connection: u64,
    /// Its front-end.
    pub relay: SavedRelay,
    /// Its queues.
    pub rings: Vec<SavedRing>,
    /// Its sessions.
    pub sessions: Vec<SavedMember>,
    driver_version: u32,
    lost: Vec<u64>,
    is_paused: bool,
    ended: Ended,
    refusals: Vec<u64>,
    account: Option<SavedAccount>,
    memory_files: Vec<FileId>,
}

/// A session, and the objects that it shares with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMember {
    /// The session.
    pub session: SavedSession,
    offers: Vec<SavedOffer>,
    ages: Ages,
}

impl Device {
    /// Takes no more requests from the queues, until [`Self::release`].
    pub fn hold(&self) {
        self.rings.iter().for_each(|ring| ring.hold());
    }

    /// Takes requests from the queues again, also those that have come meanwhile.
    pub fn release(&self) {
        self.rings.iter().for_each(|ring| ring.release());
        if let Some(relay) = self.relay.get() {
            relay.notify();
        }
    }

    /// Returns what the next program needs of a device that is held. The daemon's threads are stopped. `patience` is the time for
    /// the front-end's last messages.
    ///
    /// Errors: the reason for which it cannot be handed over now.
    pub fn save(&self, patience: Duration, files: &mut Leaving) -> Result<SavedDevice, String> {
        let connection = self.connection;
        let busy = |why: String| format!("connection {connection}: {why}");
        let relay = self.relay.get().ok_or_else(|| busy("its front-end is connecting".into()))?;
        relay.settle(patience).map_err(|error| busy(error.to_string()))?;
        if self.transfers.load(Ordering::Acquire) {
            return Err(busy("its state is being saved or restored".into()));
        }
        let rings: Result<Vec<_>, _> = self.rings.iter().map(|ring| ring.save()).collect();
        let rings = rings.map_err(busy)?;
        let sessions = self.sessions.lock();
        if sessions.closed || sessions.opening > 0 || self.failed.load(Ordering::Acquire) {
            return Err(busy("a session is being opened, or the connection is ending".into()));
        }
        let mut save = |session: &Arc<Session>| {
            let label = session.label();
            let ages = self.settings.suspender.ages(label);
            let ages = ages.ok_or_else(|| format!("session {label} is being opened, or is ending"))?;
            let offers = self.settings.exchange.save(label, files);
            Ok(SavedMember { session: session.save(files)?, offers, ages })
        };
        let members: Result<Vec<_>, String> = sessions.open.values().map(&mut save).collect();
        Ok(SavedDevice {
            connection,
            sessions: members.map_err(busy)?,
            relay: relay.save(files),
            rings,
            driver_version: self.driver_version.load(Ordering::Relaxed),
            lost: self.events.save(),
            is_paused: self.pausing.is_paused(),
            ended: sessions.ended,
            refusals: self.refusals.counts().map(|(_, count)| count).collect(),
            account: self.account.lock().as_ref().map(|account| account.save(files)),
            memory_files: self.memory_files.lock().iter().copied().collect(),
        })
    }

    /// Goes on with what does not depend on guest memory. The queues are held.
    ///
    /// Errors: the state is wrong.
    pub fn restore(&self, saved: &mut SavedDevice, files: &mut Inherited) -> io::Result<()> {
        if saved.rings.len() != self.rings.len() {
            return Err(io::Error::other("another number of queues (--num-queues must be the same)"));
        }
        for (ring, &saved) in self.rings.iter().zip(&saved.rings) {
            ring.restore(saved);
        }
        self.driver_version.store(saved.driver_version, Ordering::Relaxed);
        self.pausing.restore(saved.is_paused);
        self.refusals.restore(&saved.refusals);
        self.sessions.lock().ended = saved.ended;
        self.memory_files.lock().extend(saved.memory_files.iter().copied());
        let account = saved.account.take().map(|account| Account::restore(account, files));
        *self.account.lock() = account.transpose()?;
        for &session in &saved.lost {
            // Delivered when the queue runs.
            self.send_lost(session);
        }
        let mut users = HashMap::new();
        for place in saved.sessions.iter().map(|member| &member.session.place).filter(|place| place.in_group)
        {
            *users.entry(place.charged_uid).or_insert(0) += 1;
        }
        if let (Some(groups), false) = (&self.settings.cgroups, users.is_empty()) {
            *self.group.lock() = Some(groups.group_again(self.connection, users));
        }
        Ok(())
    }

    /// Goes on with the sessions, after guest memory is there. One that cannot go on is lost, and its program is told so.
    pub fn restore_sessions(
        self: &Arc<Self>,
        members: Vec<SavedMember>,
        spec: &WorkerSpec,
        files: &mut Inherited,
    ) {
        for member in members {
            let (id, label) = (member.session.id, member.session.label);
            NEXT_LABEL.fetch_max(label.saturating_add(1), Ordering::Relaxed);
            if let Err(error) = self.restore_session(member, spec, files) {
                error!("session {label}: lost, because this program cannot go on with it: {error}");
                self.settings.endings.ended(label);
                self.send_lost(id);
            }
        }
    }

    fn restore_session(
        self: &Arc<Self>,
        member: SavedMember,
        spec: &WorkerSpec,
        files: &mut Inherited,
    ) -> io::Result<()> {
        let SavedMember { session: mut saved, offers, ages } = member;
        let (owner, place) = (self.owner(saved.uid), saved.place);
        self.stopped.fetch_or(saved.is_stopped, Ordering::AcqRel);
        saved.uid = owner.uid;
        let account = self.account.lock().clone();
        let slot = place.account.and_then(|index| Some(account?.join_again(index))).transpose()?;
        let charge = self.settings.suspender.charge_again(saved.residence.charged_bytes());
        let (endings, tables) = (self.settings.endings.clone(), self.tables());
        let session = Session::restore(saved, spec, files, charge, endings, tables)?;
        let assigned = session.assigned();
        self.settings.pool.adopt(&assigned.worker)?;
        let offers = offers.into_iter().map(|offer| offer.restore(files)).collect::<io::Result<_>>()?;
        self.serve_questions(&session, &assigned.worker.sockets, owner, offers);
        let mut sessions = self.sessions.lock();
        *sessions.users.entry(place.charged_uid).or_insert(0) += 1;
        sessions.open.insert(session.id(), session.clone());
        drop(sessions);
        let group = place.in_group && self.group.lock().is_some();
        let held = Held {
            slot,
            membership: group.then(|| Membership { device: self.clone(), uid: place.charged_uid }),
            of_user: UserSession { device: self.clone(), uid: place.charged_uid },
            // A limit that was lowered holds for new sessions.
            charge: self.settings.descriptors.budget.charge(descriptors::WORKER),
        };
        self.start(&session, owner, held, ages)
    }
}
