// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One device instance, as a connected front-end (a virtual machine, or a virtio-user process) sees it.

pub mod ahead;
mod arriving;
mod ending;
mod opening;
mod pausing;
mod renewing;
mod saved;
mod services;
mod stopping;

pub use saved::SavedDevice;
pub use services::Record;
use vhost_cuda_common::budget::Budget;
use vhost_cuda_common::statistics::Totals;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use log::{Level, debug, log, warn};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vhost_user_backend::ShutdownHandle;
use virtio_cuda_protocol::transport::{
    EVENT_SESSION_LOST, Event, Hello, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, OP_UNPIN, PROTOCOL_VERSION,
    REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST, REPLY_VERSION,
};
use vm_memory::GuestAddressSpace;
use zerocopy::{FromBytes, IntoBytes};

use self::ahead::Arrived;
use self::pausing::Pausing;
use crate::cache::ImageCache;
use crate::confine::threads;
use crate::exchange::Exchange;
use crate::front_end::events::EventQueue;
use crate::front_end::relay::Relay;
use crate::guest::memory::{
    FileId, GuestPages, Memory, MemoryTable, ReadOnlyFiles, SharedMemory, Snapshot, files_of,
    has_huge_pages_only, mark_all_written, open_read_only, protect,
};
use crate::guest::request::{Malformed, Request};
use crate::guest::ring::{Chain, Ring};
use crate::limits::account::Account;
use crate::limits::cgroup::{Cgroups, Group};
use crate::limits::descriptors::Descriptors;
use crate::limits::rate::Rate;
use crate::limits::request_budget::RequestBudget;
use crate::limits::throttle::Throttle;
use crate::sessions::endings::{Answer, Endings};
use crate::sessions::pool::WorkerPool;
use crate::sessions::report::{DeviceReport, Refusal, Refusals};
use crate::sessions::session::{End, Session};
use crate::suspend::files::Folder;
use crate::suspend::suspender::Suspender;

/// The time for the workers of a machine to end when it is reset or has disconnected. The VMM and its monitor wait
/// meanwhile.
pub const END_PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of files of guest memory that are remembered per machine.
const MAX_MEMORY_FILES: usize = 4096;
/// Limits messages about shortages that a guest can cause.
static SHORTAGES: Throttle = Throttle::new(5, Duration::from_secs(60));
/// Limits messages about memory of huge pages.
static HUGE: Throttle = Throttle::new(5, Duration::from_secs(60));
/// Limits messages about memory files that cannot be sealed.
static UNSEALED: Throttle = Throttle::new(5, Duration::from_secs(60));
/// Limits messages about memory files that cannot be opened for reading.
static UNREADABLE: Throttle = Throttle::new(5, Duration::from_secs(60));
/// The settings that all devices of a daemon have in common.
#[derive(Debug)]
pub struct Settings {
    /// The number of request queues.
    pub num_queues: u32,
    /// The maximum number of sessions at once.
    pub max_sessions: u32,
    /// The maximum device memory of a machine, in bytes.
    pub memory: Option<u64>,
    /// Control groups for workers.
    pub cgroups: Option<Arc<Cgroups>>,
    /// The maximum number of sessions at once of one user of the guest, other than its root.
    pub max_user_sessions: u32,
    /// The number of sessions that a machine may open per second.
    pub session_rate: u32,
    /// Device code that workers have loaded.
    pub images: Arc<ImageCache>,
    /// The objects that sessions share with each other.
    pub exchange: Arc<Exchange>,
    /// The guest memory that workers map. Not `Auto` where this host does not allow `Named`.
    pub guest_pages: GuestPages,
    /// True if sessions are suspended while their machine is paused.
    pub suspend_with_machine: bool,
    /// True if a machine with open sessions may be saved.
    pub lose_sessions: bool,
    /// Files for the contents of sessions that are saved with their machine.
    pub contents: Option<Folder>,
    /// Sessions that are ending, and the requests that wait for them.
    pub endings: Arc<Endings>,
    /// The sessions whose device memory may be in host memory.
    pub suspender: Arc<Suspender>,
    /// The daemon's descriptors.
    pub descriptors: Descriptors,
    /// Begins a recording for a guest.
    pub record: Record,
    /// The source of workers.
    pub pool: WorkerPool,
}

/// One device instance.
#[derive(Debug)]
pub struct Device {
    /// The number of the connection, for the log.
    pub connection: u64,
    /// The daemon's settings.
    pub settings: Arc<Settings>,
    /// The request queues, followed by the event queue.
    pub rings: Vec<Arc<Ring>>,
    /// Pending events for the driver.
    pub events: EventQueue,
    /// The version that the driver wrote into the configuration space; 0 until then.
    pub driver_version: AtomicU32,
    version_warned: AtomicBool,
    group_warned: AtomicBool,
    budget: Arc<RequestBudget>,
    /// The budget for files that its sessions share.
    shared_files: Arc<Budget>,
    /// The account of the machine's device memory, if that is limited, from its first session on.
    account: Mutex<Option<Arc<Account>>>,
    /// The machine's control group, from its first session on.
    group: Mutex<Option<Group>>,
    memory: Mutex<Option<SharedMemory>>,
    /// Its files, if workers may map only named pages.
    read_only: Mutex<Arc<ReadOnlyFiles>>,
    /// Files that were guest memory at any time, because workers may still map them.
    memory_files: Mutex<HashSet<FileId>>,
    front_end: OnceLock<FrontEnd>,
    relay: OnceLock<Arc<Relay>>,
    /// True while its state is written to or read from another host.
    pub transfers: AtomicBool,
    /// True if its sessions have stopped, or wait for the start of the queues.
    stopped: AtomicBool,
    /// How often a queue was stopped. Locked while sessions are told to go on.
    stops: Mutex<u64>,
    /// The sessions whose contents have gone ahead to the daemon that loads the next state, by their labels.
    ahead: Mutex<HashSet<u64>>,
    /// Contents that have come before the state of their machine, by the ids of their sessions.
    arrived: Mutex<HashMap<u64, Arrived>>,
    /// True if its sessions were suspended because all queues were stopped.
    pausing: Arc<Pausing>,
    /// True if the device was given up because its workers do not end.
    failed: AtomicBool,
    refusals: Refusals,
    openings: Rate,
    sessions: Mutex<Sessions>,
}

/// Ends the connection.
struct FrontEnd(ShutdownHandle);

impl std::fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrontEnd")
    }
}

#[derive(Debug, Default)]
struct Sessions {
    open: HashMap<u64, Arc<Session>>,
    /// The number of sessions that wait for a worker.
    opening: usize,
    /// The number of sessions of each user of the guest, from their opening until they have ended.
    users: HashMap<u32, u32>,
    /// Counts resets. A session that was opened before a reset does not start after it.
    epoch: u64,
    closed: bool,
    /// Sessions that have ended: their number by reason, and the sums of their counters.
    ended: Ended,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    closed: u64,
    lost: u64,
    totals: Totals,
}

impl Ended {
    fn add(&mut self, end: End, totals: Totals) {
        match end {
            End::Closed => self.closed += 1,
            End::Lost => self.lost += 1,
        }
        self.totals = self.totals.plus_ended(totals);
    }
}

impl Device {
    /// Creates a device without a front-end, with number `connection` in the log.
    pub fn new(connection: u64, settings: Arc<Settings>) -> Arc<Self> {
        let rings: Vec<_> = (0..=settings.num_queues).map(|_| Arc::<Ring>::default()).collect();
        let events = EventQueue::new(rings[settings.num_queues as usize].clone());
        let budget = RequestBudget::new(settings.max_sessions);
        Arc::new(Self {
            connection,
            rings,
            events,
            driver_version: AtomicU32::new(0),
            version_warned: AtomicBool::new(false),
            group_warned: AtomicBool::new(false),
            budget,
            shared_files: Budget::new(settings.descriptors.machine_files),
            account: Mutex::default(),
            group: Mutex::default(),
            memory: Mutex::default(),
            read_only: Mutex::default(),
            memory_files: Mutex::default(),
            front_end: OnceLock::new(),
            relay: OnceLock::new(),
            transfers: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            stops: Mutex::new(0),
            ahead: Mutex::default(),
            arrived: Mutex::default(),
            pausing: Arc::default(),
            failed: AtomicBool::new(false),
            refusals: Refusals::default(),
            openings: Rate::new(settings.max_sessions, settings.session_rate),
            sessions: Mutex::default(),
            settings,
        })
    }

    /// Returns the present guest memory.
    pub fn memory(&self) -> Option<Snapshot> {
        self.memory.lock().as_ref().map(|memory| memory.memory())
    }

    /// Records that the front-end is connected through `relay`. `front_end` ends the connection.
    pub fn connected(&self, front_end: ShutdownHandle, relay: Arc<Relay>) {
        let _ = self.front_end.set(FrontEnd(front_end));
        let _ = self.relay.set(relay);
        if self.failed.load(Ordering::Acquire) {
            self.hang_up();
        }
    }

    /// Returns whether its front-end is there still.
    pub fn is_connected(&self) -> bool {
        self.relay.get().is_none_or(|relay| relay.is_connected())
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        if let Some(FrontEnd(front_end)) = self.front_end.get() {
            front_end.shutdown();
        }
    }

    /// Passes changed guest memory of the front-end to every worker.
    ///
    /// Errors: it cannot be protected as the operator wants.
    pub fn update_memory(&self, memory: SharedMemory) -> io::Result<()> {
        let pages = self.settings.guest_pages;
        if has_huge_pages_only(&memory.memory()) {
            let costs = match pages {
                GuestPages::Named => "copies fail, too (--guest-pages named)",
                _ => "workers map all of it, also what other programs of the guest use",
            };
            log!(
                HUGE.level(Level::Warn),
                "connection {}: this machine's memory is of hugetlbfs, of which single pages cannot be mapped: pinned memory \
                 (cudaMallocHost, cudaHostRegister) is refused, and {costs}. Use memory without huge pages, or with \
                 transparent ones (docs/operations.md)",
                self.connection
            );
        }
        if let Err(error) = protect(&memory.memory()) {
            log!(
                UNSEALED.level(Level::Info),
                "connection {}: a worker that is taken over can cut this machine's memory short, because its files take no \
                 seals ({error}): with QEMU, use memory-backend-memfd",
                self.connection
            );
        }
        if pages != GuestPages::All {
            self.open_read_only(&memory.memory(), pages)?;
        }
        let mut files = self.memory_files.lock();
        files.extend(files_of(&memory.memory()));
        if files.len() > MAX_MEMORY_FILES {
            // Only a front-end that replaces its memory endlessly gets here. It has forgotten the first files, too.
            *files = files_of(&memory.memory());
        }
        drop(files);
        *self.memory.lock() = Some(memory);
        for session in self.sessions.lock().open.values() {
            session.update_memory();
        }
        Ok(())
    }

    /// Opens the files of guest memory for pages that workers may only read.
    ///
    /// Errors: this user may not open them, and the operator insists on it.
    fn open_read_only(&self, memory: &Memory, pages: GuestPages) -> io::Result<()> {
        let mut known = self.read_only.lock();
        let (files, result) = open_read_only(memory, &known);
        if let Err(error) = result {
            let (level, effect) = match pages {
                GuestPages::Named => (Level::Error, "the front-end is refused (--guest-pages named)"),
                _ => (
                    Level::Warn,
                    "a worker that is taken over can write pages that its process may only read",
                ),
            };
            log!(
                UNREADABLE.level(level),
                "connection {}: the daemon's user may not open this machine's memory files for reading ({error}): {effect}. \
                 With QEMU, use memory-backend-memfd, or let this user read the files",
                self.connection
            );
            if pages == GuestPages::Named {
                self.hang_up();
                return Err(error);
            }
        }
        *known = Arc::new(files);
        Ok(())
    }

    /// Returns the guest memory for a worker.
    fn memory_table(&self) -> Arc<MemoryTable> {
        let files = self.read_only.lock().clone();
        let table = |memory: Snapshot| MemoryTable::of(&memory, self.settings.guest_pages, &files);
        self.memory().map(table).unwrap_or_default()
    }

    /// Executes a request. `chain` is answered now or later, in any case.
    pub fn handle(self: &Arc<Self>, request: Result<Request, Malformed>, chain: Chain) {
        match request {
            Err(error) => {
                debug!("connection {}: request refused: {error}", self.connection);
                self.refusals.count(Refusal::Malformed);
                chain.complete(REPLY_INVALID, &[]);
            }
            Ok(request) => match request.header.op {
                OP_HELLO => self.hello(&request, chain),
                OP_OPEN => self.open(&request, chain),
                OP_CLOSE => match self.session(request.header.session) {
                    Some(session) => session.close(chain),
                    // After the answer the driver unpins the session's pages. No worker may be able to write to them
                    // then.
                    None => self.answer_after(HashSet::new(), chain, REPLY_SESSION_LOST, &[]),
                },
                _ => self.submit(request, chain),
            },
        }
    }

    fn submit(&self, request: Request, chain: Chain) {
        let Some(session) = self.session(request.header.session) else {
            return match request.header.op {
                // As for OP_CLOSE: the driver unpins pages after the answer.
                OP_UNPIN => self.answer_after(HashSet::new(), chain, REPLY_SESSION_LOST, &[]),
                _ => chain.complete(REPLY_SESSION_LOST, &[]),
            };
        };
        let bytes = request.footprint() + chain.footprint();
        let Some(charge) = self.budget.charge(session.id(), bytes) else {
            debug!("connection {}: too many bytes of outstanding requests", self.connection);
            self.refusals.count(Refusal::RequestMemory);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        debug_assert!(request.header.op >= OP_CALL);
        session.submit(request, chain, charge);
    }

    /// Handles the driver's greeting. The driver knows of no session, so all remaining sessions end.
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
        let ending = self.end_sessions(false).iter().map(|session| session.label()).collect();
        self.events.clear();
        let answer = Hello { protocol_version: PROTOCOL_VERSION };
        self.answer_after(ending, chain, REPLY_OK, answer.as_bytes());
    }

    /// Answers a request when these sessions have ended, and those that earlier connections have left on this memory.
    fn answer_after(&self, mut sessions: HashSet<u64>, chain: Chain, status: u32, payload: &[u8]) {
        let endings = &self.settings.endings;
        sessions.extend(endings.left_on(&self.memory_files.lock()));
        endings.answer_after(self.connection, sessions, Answer { chain, status, payload: payload.to_vec() });
    }

    /// Notifies the driver that a session is lost.
    pub fn send_lost(&self, session: u64) {
        let event = Event { kind: EVENT_SESSION_LOST, reserved: 0, session, value: 0 };
        self.events.send(event, self.memory());
    }

    /// Returns the open sessions.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().open.values().cloned().collect()
    }

    /// Returns metrics of the connection, for the operator.
    pub fn report(&self) -> DeviceReport {
        let (open, Ended { closed, lost, totals }) = {
            let sessions = self.sessions.lock();
            (sessions.open.values().cloned().collect::<Vec<_>>(), sessions.ended)
        };
        let mut sessions: Vec<_> = open.iter().map(|session| session.report()).collect();
        sessions.sort_by_key(|session| session.label);
        let refused = self.refusals.counts().collect();
        DeviceReport { connection: self.connection, sessions, ended: totals, closed, lost, refused }
    }

    /// Marks pages that workers write on their own in the dirty log, when a queue was stopped.
    pub fn log_kept_pages(&self) {
        let kept = self.sessions.lock().open.values().any(|session| session.maps_memory());
        if let (true, Some(memory)) = (kept, self.memory()) {
            mark_all_written(&memory);
        }
    }

    /// Suspends all sessions if every queue is stopped and the operator wants that. Does not wait.
    ///
    /// The front-end stops the queues for a pause of the machine and for a reset alike. After a reset the sessions end, wherever
    /// their memory is.
    pub fn pause(&self) {
        let is_stopped = || self.rings.iter().all(|ring| !ring.is_running());
        if self.settings.suspend_with_machine && is_stopped() {
            self.follow(true);
        }
    }

    /// Brings the sessions back if [`Self::pause`] has suspended them, because a queue runs again. Does not wait.
    pub fn unpause(&self) {
        self.follow(false);
    }

    fn follow(&self, is_paused: bool) {
        let Some(follower) = self.pausing.change(is_paused) else { return };
        let (suspender, connection) = (self.settings.suspender.clone(), self.connection);
        let act = move |is_paused| match is_paused {
            true => suspender.pause(connection),
            false => suspender.unpause(connection),
        };
        self.run_aside("pause", move || follower.run(act));
    }

    /// Records the version that the driver wrote into the configuration space.
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
        self.sessions.lock().open.get(&id).cloned()
    }

    /// Runs `work` in a thread that is not confined, although the calling one is.
    fn run_aside(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        let (connection, thread) =
            (self.connection, thread::Builder::new().name(format!("{name}-{}", self.connection)));
        threads::outside(move || {
            // If there is no thread, the closure is dropped with its chain, and a dropped chain is answered.
            if let Err(error) = thread.spawn(work) {
                log!(
                    SHORTAGES.level(Level::Error),
                    "connection {connection}: no thread for a request: {error}"
                );
            }
        });
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The last owner may be a confined thread, which removes no folder.
        if let Some(group) = self.group.get_mut().take() {
            threads::outside(move || drop(group));
        }
    }
}

#[cfg(test)]
#[path = "device_test.rs"]
mod tests;
