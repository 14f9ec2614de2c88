// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One device instance: what a connected front-end (a virtual machine, or a virtio-user process) sees.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use log::{debug, error, warn};
use virtio_cuda_protocol::transport::{
    EVENT_SESSION_LOST, Event, Hello, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, Open, Opened, PROTOCOL_VERSION,
    REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST, REPLY_VERSION,
};
use vm_memory::GuestAddressSpace;
use zerocopy::{FromBytes, IntoBytes};

use crate::budget::Budget;
use crate::cache::ImageCache;
use crate::events::EventQueue;
use crate::exchange::Exchange;
use crate::memory::{MemoryTable, SharedMemory, Snapshot, mark_all_written};
use crate::pool::WorkerPool;
use crate::request::{Malformed, Request};
use crate::ring::{Chain, Ring};
use crate::session::{End, Session};

/// How often a thread that waits for a session's end looks again.
const END_POLL: Duration = Duration::from_secs(1);
/// Has no limit of sessions but the machine's.
const ROOT: u32 = 0;
/// Short names of sessions in the log, for all connections of the daemon.
static NEXT_LABEL: AtomicU64 = AtomicU64::new(1);

/// What all devices of a daemon have in common.
#[derive(Debug)]
pub struct Settings {
    /// Request queues.
    pub num_queues: u32,
    /// Sessions at once.
    pub max_sessions: u32,
    /// Sessions at once of one user of the guest, other than its root.
    pub max_user_sessions: u32,
    /// Device code that workers loaded before.
    pub images: Arc<ImageCache>,
    /// What sessions share with each other.
    pub exchange: Arc<Exchange>,
    /// Where workers come from.
    pub pool: WorkerPool,
}

/// One device instance.
#[derive(Debug)]
pub struct Device {
    /// Number of the connection, for the log.
    pub connection: u64,
    /// The daemon's settings.
    pub settings: Arc<Settings>,
    /// Request queues, then the event queue.
    pub rings: Vec<Arc<Ring>>,
    /// The event queue's contents.
    pub events: EventQueue,
    /// The version that the driver wrote into the configuration space; 0 until then.
    pub driver_version: AtomicU32,
    version_warned: AtomicBool,
    budget: Arc<Budget>,
    memory: Mutex<Option<SharedMemory>>,
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    open: HashMap<u64, Arc<Session>>,
    /// Sessions that wait for a worker.
    opening: usize,
    /// Sessions of each user of the guest, from their opening until they have ended.
    users: HashMap<u32, u32>,
    /// Counts resets: a session that was opened before one does not come up after it.
    epoch: u64,
    closed: bool,
}

/// Room for a session that waits for its worker.
struct Reservation {
    device: Arc<Device>,
    epoch: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.device.lock().opening -= 1;
    }
}

/// One of the sessions that a user of the guest may have.
struct UserSession {
    device: Arc<Device>,
    uid: u32,
}

impl Drop for UserSession {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.device.lock().users.entry(self.uid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Device {
    /// A device without front-end, numbered `connection` in the log.
    pub fn new(connection: u64, settings: Arc<Settings>) -> Arc<Self> {
        let rings: Vec<_> = (0..=settings.num_queues).map(|_| Arc::<Ring>::default()).collect();
        let events = EventQueue::new(rings[settings.num_queues as usize].clone());
        let budget = Budget::new(settings.max_sessions);
        Arc::new(Self {
            connection,
            settings,
            rings,
            events,
            driver_version: AtomicU32::new(0),
            version_warned: AtomicBool::new(false),
            budget,
            memory: Mutex::default(),
            sessions: Mutex::default(),
        })
    }

    /// Guest memory as it is now.
    pub fn memory(&self) -> Option<Snapshot> {
        lock(&self.memory).as_ref().map(|memory| memory.memory())
    }

    /// The front-end has changed guest memory: every worker learns of it.
    pub fn update_memory(&self, memory: SharedMemory) {
        let table = MemoryTable::of(&memory.memory());
        *lock(&self.memory) = Some(memory);
        for session in self.lock().open.values() {
            session.update_memory(table.clone());
        }
    }

    /// Executes a request; `chain` is answered now or later, in any case.
    pub fn handle(self: &Arc<Self>, request: Result<Request, Malformed>, chain: Chain) {
        match request {
            Err(error) => {
                debug!("connection {}: request refused: {error}", self.connection);
                chain.complete(REPLY_INVALID, &[]);
            }
            Ok(request) => match request.header.op {
                OP_HELLO => self.hello(&request, chain),
                OP_OPEN => self.open(&request, chain),
                OP_CLOSE => match self.session(request.header.session) {
                    Some(session) => session.close(chain),
                    None => chain.complete(REPLY_SESSION_LOST, &[]),
                },
                _ => self.submit(request, chain),
            },
        }
    }

    fn submit(&self, request: Request, chain: Chain) {
        let Some(session) = self.session(request.header.session) else {
            return chain.complete(REPLY_SESSION_LOST, &[]);
        };
        let Some(charge) = self.budget.charge(session.id(), request.footprint()) else {
            debug!("connection {}: too many bytes of outstanding requests", self.connection);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        debug_assert!(request.header.op >= OP_CALL);
        session.submit(request, chain, charge);
    }

    /// The driver introduces itself: it knows of no session, so all that are left end.
    fn hello(self: &Arc<Self>, request: &Request, chain: Chain) {
        let Ok(hello) = Hello::read_from_bytes(&request.payload) else {
            return chain.complete(REPLY_INVALID, &[]);
        };
        let written = self.driver_version.load(Ordering::Relaxed);
        let refused = [hello.protocol_version, written]
            .into_iter()
            .find(|&version| version != PROTOCOL_VERSION && version != 0)
            .or((hello.protocol_version == 0).then_some(0));
        if let Some(version) = refused {
            debug!(
                "connection {}: refused the driver of protocol version {version}; this device speaks {PROTOCOL_VERSION}",
                self.connection
            );
            return chain.complete(REPLY_VERSION, &[]);
        }
        let ending = self.end_sessions(false);
        let ending_is_empty = ending.is_empty();
        self.events.clear();
        let answer = move || {
            wait_for(&ending);
            chain.complete(REPLY_OK, Hello { protocol_version: PROTOCOL_VERSION }.as_bytes());
        };
        // The queue's thread must not wait for others.
        if ending_is_empty { answer() } else { self.run_aside("hello", answer) }
    }

    fn open(self: &Arc<Self>, request: &Request, chain: Chain) {
        let Ok(open) = Open::read_from_bytes(&request.payload) else {
            return chain.complete(REPLY_INVALID, &[]);
        };
        let Some(room) = self.reserve(open.uid) else {
            debug!(
                "connection {}: no session for user {}: {} may be open, {} of one user",
                self.connection, open.uid, self.settings.max_sessions, self.settings.max_user_sessions
            );
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let device = self.clone();
        self.run_aside("session", move || device.run_session(&open, room, chain));
    }

    fn reserve(self: &Arc<Self>, uid: u32) -> Option<(Reservation, UserSession)> {
        let mut sessions = self.lock();
        let of_user = sessions.users.get(&uid).copied().unwrap_or(0);
        if sessions.open.len() + sessions.opening >= self.settings.max_sessions as usize
            || (uid != ROOT && of_user >= self.settings.max_user_sessions)
        {
            return None;
        }
        sessions.opening += 1;
        sessions.users.insert(uid, of_user + 1);
        let reservation = Reservation { device: self.clone(), epoch: sessions.epoch };
        Some((reservation, UserSession { device: self.clone(), uid }))
    }

    /// The life of a session, on a thread of its own.
    fn run_session(
        self: &Arc<Self>,
        open: &Open,
        (reservation, of_user): (Reservation, UserSession),
        chain: Chain,
    ) {
        let (Ok(mut worker), Ok(id)) = (self.settings.pool.take(), random_id()) else {
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let mut sessions = self.lock();
        if sessions.closed || sessions.epoch != reservation.epoch {
            drop(sessions);
            drop(worker);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        if let Some(socket) = worker.images.take() {
            self.settings.images.serve(socket, open.uid);
        }
        if let Some(socket) = worker.exchange.take() {
            self.settings.exchange.serve(socket, open.uid);
        }
        let label = NEXT_LABEL.fetch_add(1, Ordering::Relaxed);
        let session = Session::new(id, label, open, worker);
        sessions.open.insert(id, session.clone());
        drop(sessions);
        drop(reservation);
        let table = self.memory().map(|memory| MemoryTable::of(&memory)).unwrap_or_default();
        let opened = || chain.complete(REPLY_OK, Opened { session: id }.as_bytes());
        session.run(table, opened, |end| {
            self.session_ended(id, end);
            drop(of_user);
        });
    }

    fn session_ended(&self, id: u64, end: End) {
        self.lock().open.remove(&id);
        if end == End::Lost {
            self.send_lost(id);
        }
    }

    /// Tells the driver that a session is lost.
    pub fn send_lost(&self, session: u64) {
        let event = Event { kind: EVENT_SESSION_LOST, reserved: 0, session, value: 0 };
        self.events.send(event, self.memory());
    }

    /// Kills every session; returns those that are ending. `closed`: no other ever comes up.
    fn end_sessions(&self, closed: bool) -> Vec<Arc<Session>> {
        let mut sessions = self.lock();
        sessions.epoch += 1;
        sessions.closed |= closed;
        let ending: Vec<_> = sessions.open.values().cloned().collect();
        drop(sessions);
        for session in &ending {
            session.kill();
        }
        ending
    }

    /// The device was reset: what the driver had opened ends. To be called once, by whoever notices first.
    pub fn reset(&self) {
        // Queues that restart later must not take it for another reset.
        for ring in &self.rings {
            ring.forget_stop();
        }
        wait_for(&self.end_sessions(false));
        self.events.clear();
        self.driver_version.store(0, Ordering::Relaxed);
    }

    /// The front-end has gone: everything ends. Returns when all workers are reaped.
    pub fn shut_down(&self) {
        for ring in &self.rings {
            ring.abandon();
        }
        wait_for(&self.end_sessions(true));
    }

    /// Names of the sessions that are open, for migration.
    pub fn open_sessions(&self) -> Vec<u64> {
        self.lock().open.keys().copied().collect()
    }

    /// A queue was stopped: what workers wrote by themselves goes into the dirty log.
    pub fn log_kept_pages(&self) {
        let kept = self.lock().open.values().any(|session| session.maps_memory());
        if let (true, Some(memory)) = (kept, self.memory()) {
            mark_all_written(&memory);
        }
    }

    /// The driver wrote its version into the configuration space.
    pub fn set_driver_version(&self, version: u32) {
        self.driver_version.store(version, Ordering::Relaxed);
        debug!("connection {}: the driver speaks protocol version {version}", self.connection);
        let differs = version != PROTOCOL_VERSION && version != 0;
        if differs && !self.version_warned.swap(true, Ordering::Relaxed) {
            warn!(
                "connection {}: the guest's driver speaks protocol version {version}, this device {PROTOCOL_VERSION}: \
                 it will be refused; install matching versions",
                self.connection
            );
        }
    }

    fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.lock().open.get(&id).cloned()
    }

    fn run_aside(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        // Without a thread the closure is dropped, and its chain with it, which answers it.
        let thread = thread::Builder::new().name(format!("{name}-{}", self.connection)).spawn(work);
        if let Err(error) = thread {
            error!("connection {}: no thread for a request: {error}", self.connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }
}

/// A name for a session: never 0, and never used before, also not by an earlier or another backend.
fn random_id() -> Result<u64, getrandom::Error> {
    loop {
        match getrandom::u64()? {
            0 => {}
            id => return Ok(id),
        }
    }
}

fn wait_for(ending: &[Arc<Session>]) {
    for session in ending {
        while !session.wait_ended(END_POLL) {
            debug!("session {:#x}: still ending", session.id());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "device_test.rs"]
mod tests;
