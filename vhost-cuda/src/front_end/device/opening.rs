// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The opening of a session: its slot, worker, account and control group; and the steps after its end.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, log, warn};
use vhost_cuda_common::budget::{Budget, Charge};
use vhost_cuda_common::link;
use virtio_cuda_protocol::transport::{
    Open, Opened, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST,
};
use zerocopy::{FromBytes, IntoBytes};

use super::services::OfSession;
use super::{Device, SHORTAGES, Sessions};
use crate::confine::threads;
use crate::exchange::{FileBudgets, Restored, Sharer};
use crate::guest::request::Request;
use crate::guest::ring::Chain;
use crate::limits::account::{Account, Slot};
use crate::limits::throttle::Throttle;
use crate::limits::{descriptors, room};
use crate::owner::Owner;
use crate::sessions::endings::PATIENCE;
use crate::sessions::process::{Process, Sockets, Worker, WorkerError};
use crate::sessions::report::Refusal;
use crate::sessions::session::{End, Place, Session, Tables};
use crate::suspend::suspender::{Ages, FIRST_DEVICE};

/// The user id of the guest's root, whose sessions are limited only by the machine's limit.
pub(super) const ROOT: u32 = 0;
/// Limits messages about sessions that are opened too fast.
static HASTE: Throttle = Throttle::new(1, Duration::from_secs(60));
/// The time between two looks at whether a session that waits for its turn is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// The next session number in the log, for all connections of the daemon.
pub(super) static NEXT_LABEL: AtomicU64 = AtomicU64::new(1);

/// The slot of a session that waits for its worker.
pub(super) struct Reservation {
    device: Arc<Device>,
    epoch: u64,
    /// The charge for the worker's descriptors.
    pub(super) charge: Option<Charge>,
}

impl Reservation {
    /// Returns whether the session is still wanted.
    pub(super) fn stands(&self, sessions: &Sessions) -> bool {
        !sessions.closed && sessions.epoch == self.epoch
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.device.sessions.lock().opening -= 1;
    }
}

/// One of the sessions that a user of the guest may have: the one to whom the session is charged.
pub(super) struct UserSession {
    pub(super) device: Arc<Device>,
    pub(super) uid: u32,
}

/// What a session holds until its worker has ended.
pub(super) struct Held {
    pub(super) slot: Option<Slot>,
    pub(super) membership: Option<Membership>,
    pub(super) of_user: UserSession,
    /// The charge for the worker's descriptors.
    pub(super) charge: Option<Charge>,
}

/// The place of a session's worker in the control group of its user. Dropped when the worker has ended.
pub(super) struct Membership {
    pub(super) device: Arc<Device>,
    pub(super) uid: u32,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // The thread of a session is confined, and removes no folder.
        let (device, uid) = (self.device.clone(), self.uid);
        threads::outside(move || {
            if let Some(group) = &mut *device.group.lock() {
                group.leave(uid);
            }
        });
    }
}

impl Drop for UserSession {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.device.sessions.lock().users.entry(self.uid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Device {
    /// Opens a session, on a thread of its own.
    pub(super) fn open(self: &Arc<Self>, request: &Request, chain: Chain) {
        let Ok(open) = Open::read_from_bytes(&request.payload) else {
            return chain.complete(REPLY_INVALID, &[]);
        };
        let Some((reservation, of_user)) = self.reserve(open.charged_uid) else {
            debug!(
                "connection {}: no session for user {}: {} may be open, {} of one user",
                self.connection,
                open.charged_uid,
                self.settings.max_sessions,
                self.settings.max_user_sessions
            );
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        if let Err(error) = room::check() {
            self.refusals.count(Refusal::AddressSpace);
            log!(
                SHORTAGES.level(Level::Warn),
                "connection {}: a session is refused: the daemon is out of address space ({error}): {}",
                self.connection,
                room::HINT
            );
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        }
        let device = self.clone();
        self.run_aside("session", move || device.run_session(&open, reservation, of_user, chain));
    }

    /// Reserves a session that `uid` opens. Returns `None` if the machine or the user has too many, or the daemon has
    /// no descriptors for it.
    pub(super) fn reserve(self: &Arc<Self>, uid: u32) -> Option<(Reservation, UserSession)> {
        let mut sessions = self.sessions.lock();
        let of_user = sessions.users.get(&uid).copied().unwrap_or(0);
        if sessions.open.len() + sessions.opening >= self.settings.max_sessions as usize {
            self.refusals.count(Refusal::MachineSessions);
            return None;
        }
        if uid != ROOT && of_user >= self.settings.max_user_sessions {
            self.refusals.count(Refusal::UserSessions);
            return None;
        }
        let charge = self.settings.descriptors.budget.charge(descriptors::WORKER);
        if charge.is_none() {
            self.refusals.count(Refusal::Descriptors);
            log!(
                SHORTAGES.level(Level::Warn),
                "connection {}: a session is refused: the daemon is out of descriptors",
                self.connection
            );
            return None;
        }
        sessions.opening += 1;
        sessions.users.insert(uid, of_user + 1);
        let reservation = Reservation { device: self.clone(), epoch: sessions.epoch, charge };
        Some((reservation, UserSession { device: self.clone(), uid }))
    }

    /// Waits until the machine may open one more session. Returns false if the session is no longer wanted.
    fn wait_for_turn(&self, reservation: &Reservation) -> bool {
        let turn = Instant::now() + self.openings.take();
        let stands = || reservation.stands(&self.sessions.lock());
        while let left = turn.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && stands()
        {
            log!(
                HASTE.level(Level::Warn),
                "connection {}: sessions are opened faster than {} per second (--session-rate), so they wait",
                self.connection,
                self.settings.session_rate
            );
            thread::sleep(left.min(LOOK));
        }
        stands()
    }

    /// Runs a session on a thread of its own until it ends.
    fn run_session(
        self: &Arc<Self>,
        open: &Open,
        mut reservation: Reservation,
        of_user: UserSession,
        chain: Chain,
    ) {
        if !self.wait_for_turn(&reservation) {
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        // Before a worker is taken, because its context is charged.
        let Ok(slot) = self.with_settled_memory(|| self.join_account()) else {
            self.refusals.count(Refusal::DeviceMemory);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let stands = || reservation.stands(&self.sessions.lock());
        let (Ok(worker), Ok(id)) = (self.take_worker(stands), random_id()) else {
            self.refusals.count(Refusal::Worker);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let Some(worker) = worker else { return chain.complete(REPLY_SESSION_LOST, &[]) };
        if !reservation.stands(&self.sessions.lock()) {
            self.settings.pool.put_back(worker);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        // From here on the worker belongs to this machine, and serves no other session.
        let membership = self.join_group(open.charged_uid, &worker.process);
        if let Some((terms, file)) = slot.as_ref().map(Slot::terms)
            && let Err(error) = link::send_account(&worker.sockets.link, &terms, file)
        {
            debug!("connection {}: a worker does not take its account: {error}", self.connection);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        }
        let mut sessions = self.sessions.lock();
        if !reservation.stands(&sessions) {
            drop(sessions);
            drop(worker);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        let owner = self.owner(open.uid);
        let open = Open { uid: owner.uid, ..*open };
        let label = NEXT_LABEL.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            charged_uid: open.charged_uid,
            account: slot.as_ref().map(Slot::index),
            in_group: membership.is_some(),
        };
        let session =
            Session::new(id, label, &open, place, worker, self.settings.endings.clone(), self.tables());
        self.serve_questions(&session, &session.assigned().worker.sockets, owner, Vec::new());
        sessions.open.insert(id, session.clone());
        drop(sessions);
        let charge = reservation.charge.take();
        drop(reservation);
        self.run_to_end(&session, owner, Held { slot, membership, of_user, charge }, Ages::default(), || {
            chain.complete(REPLY_OK, Opened { session: id }.as_bytes());
        });
    }

    /// Takes a worker for a session. Returns `None` if it is not wanted any more, as `stands` says.
    ///
    /// Errors: the reason for which there is none.
    pub(super) fn take_worker(&self, stands: impl Fn() -> bool) -> Result<Option<Worker>, Arc<WorkerError>> {
        // A worker whose context finds no memory fails.
        self.with_settled_memory(|| self.settings.pool.take(&stands)).or_else(|error| {
            if self.settings.suspender.make_room(None, FIRST_DEVICE) {
                self.settings.pool.take(&stands)
            } else {
                Err(error)
            }
        })
    }

    /// Serves the images and objects that a worker of a session asks for. `offers` are those that it has made before.
    pub(super) fn serve_questions(
        self: &Arc<Self>,
        session: &Session,
        sockets: &Sockets,
        owner: Owner,
        offers: Vec<Restored>,
    ) {
        self.settings.images.serve(sockets.images.clone(), owner);
        let budgets = FileBudgets {
            of_user: self.settings.descriptors.user_files,
            machine: self.shared_files.clone(),
            descriptors: self.settings.descriptors.budget.clone(),
        };
        let label = session.label();
        let services = OfSession {
            endings: self.settings.endings.clone(),
            suspender: self.settings.suspender.clone(),
            descriptors: self.settings.descriptors.budget.clone(),
            label,
            owner,
            recordings: Budget::new(1),
            record: self.settings.record,
        };
        let exchange = &self.settings.exchange;
        let sharer = Sharer { socket: sockets.exchange.clone(), session: label, owner };
        exchange.serve(sharer, budgets, offers, services);
    }

    /// Runs a session until its worker has ended. `opened` is called when its requests are passed to the worker.
    pub(super) fn run_to_end(
        self: &Arc<Self>,
        session: &Arc<Session>,
        owner: Owner,
        held: Held,
        ages: Ages,
        opened: impl FnOnce(),
    ) {
        let (id, label) = (session.id(), session.label());
        let Held { slot, membership, of_user, charge } = held;
        let opened = || {
            // Its worker can be asked from now on.
            self.settings.suspender.join(self.connection, owner.machine, session, ages);
            // A call may have waited for its memory before the program was replaced.
            session.residence().wake_again(label);
            opened();
        };
        session.run(opened, |end| {
            // The worker has ended, and its memory is free.
            drop(slot);
            drop(membership);
            self.settings.suspender.leave(label);
            self.session_ended(id, label, end);
            drop(of_user);
        });
        drop(charge);
    }

    /// As [`Self::run_to_end`], on a thread of its own. Returns when the session's requests are passed to the worker.
    ///
    /// Errors: there is no thread. The session is not open any more.
    pub(super) fn start(
        self: &Arc<Self>,
        session: &Arc<Session>,
        owner: Owner,
        held: Held,
        ages: Ages,
    ) -> std::io::Result<()> {
        let (device, running) = (self.clone(), session.clone());
        let (open, is_open) = channel();
        let run = move || {
            device.run_to_end(&running, owner, held, ages, move || {
                let _ = open.send(());
            })
        };
        if let Err(error) = thread::Builder::new().name("session".into()).spawn(run) {
            self.sessions.lock().open.remove(&session.id());
            return Err(error);
        }
        // Requests that come before would not reach the worker. Without its threads the session has ended.
        let _ = is_open.recv();
        Ok(())
    }

    /// Returns the owner of a session of which the guest says that it is of this user.
    pub fn owner(&self, said: u32) -> Owner {
        Owner::of(self.connection, self.memory().as_deref(), said)
    }

    /// Calls `attempt`; if it fails, once more after the sessions have ended that are ending, and that may have the memory.
    pub(super) fn with_settled_memory<T, E>(&self, attempt: impl Fn() -> Result<T, E>) -> Result<T, E> {
        attempt().or_else(
            |error| if self.settings.endings.settle(PATIENCE, false) { attempt() } else { Err(error) },
        )
    }

    /// Returns the tables of guest memory for a session's writer.
    pub(super) fn tables(self: &Arc<Self>) -> Tables {
        let device = self.clone();
        Box::new(move || device.memory_table())
    }

    /// Puts a worker into the control group of its user, if there are groups. A worker that cannot be put there still serves;
    /// the operator was informed of the effects.
    pub(super) fn join_group(self: &Arc<Self>, uid: u32, worker: &Process) -> Option<Membership> {
        let groups = self.settings.cgroups.as_ref()?;
        let mut group = self.group.lock();
        if group.is_none() {
            *group = groups.group(self.connection).map_err(|error| self.no_group(&error)).ok();
        }
        let joined = group.as_mut()?.join(uid, worker.pids());
        joined.map_err(|error| self.no_group(&error)).ok()?;
        Some(Membership { device: self.clone(), uid })
    }

    fn no_group(&self, error: &std::io::Error) {
        if !self.group_warned.swap(true, Ordering::Relaxed) {
            warn!(
                "connection {}: no control group for its workers ({error}): they can use up the host's memory",
                self.connection
            );
        }
    }

    /// Joins the machine's account, if it has one.
    ///
    /// Errors: the machine's memory is insufficient for another session.
    pub(super) fn join_account(&self) -> Result<Option<Slot>, ()> {
        let Some(bytes) = self.settings.memory else { return Ok(None) };
        let mut account = self.account.lock();
        let opened = match &*account {
            Some(account) => Ok(account.clone()),
            None => Account::open(bytes, self.settings.max_sessions),
        };
        match opened.and_then(|opened| account.insert(opened).join()) {
            Ok(Some(slot)) => Ok(Some(slot)),
            Ok(None) => {
                debug!("connection {}: no device memory for another session", self.connection);
                Err(())
            }
            Err(error) => {
                debug!("connection {}: no account for device memory: {error}", self.connection);
                Err(())
            }
        }
    }

    fn session_ended(&self, id: u64, label: u64, end: End) {
        let mut sessions = self.sessions.lock();
        let session = sessions.open.remove(&id);
        sessions.ended.add(end, session.map(|session| session.totals()).unwrap_or_default());
        drop(sessions);
        self.settings.endings.ended(label);
        if end == End::Lost {
            self.send_lost(id);
        }
    }
}

/// Returns a session id: never 0, and never used before, also not by an earlier or another backend.
fn random_id() -> Result<u64, getrandom::Error> {
    loop {
        match getrandom::u64()? {
            0 => {}
            id => return Ok(id),
        }
    }
}
