// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One device instance: what a connected front-end (a virtual machine, or a virtio-user process) sees.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, error, log, warn};
use parking_lot::Mutex;
use vhost_user_backend::ShutdownHandle;
use virtio_cuda_protocol::transport::{
    EVENT_SESSION_LOST, Event, Hello, OP_CALL, OP_CLOSE, OP_HELLO, OP_OPEN, OP_UNPIN, Open, Opened,
    PROTOCOL_VERSION, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK, REPLY_SESSION_LOST, REPLY_VERSION,
};
use vm_memory::GuestAddressSpace;
use zerocopy::{FromBytes, IntoBytes};

use crate::args::GuestPages;
use crate::cache::ImageCache;
use crate::exchange::{Exchange, FileBudgets};
use crate::front_end::events::EventQueue;
use crate::front_end::memory::{
    FileId, MemoryTable, SharedMemory, Snapshot, files_of, has_huge_pages_only, mark_all_written, protect,
};
use crate::front_end::request::{Malformed, Request};
use crate::front_end::ring::{Chain, Ring};
use crate::limits::account::{Account, Slot};
use crate::limits::budget::{Budget, Charge};
use crate::limits::cgroup::{Cgroups, Group};
use crate::limits::descriptors::{self, Descriptors};
use crate::limits::request_budget::RequestBudget;
use crate::limits::room;
use crate::limits::throttle::Throttle;
use crate::metrics::report::{DeviceReport, Refusal, Refusals};
use crate::metrics::statistics::Totals;
use crate::owner::{Machine, Owner};
use crate::sessions::endings::{Answer, Endings};
use crate::sessions::link;
use crate::sessions::pool::WorkerPool;
use crate::sessions::session::{End, Session, Tables};

/// The time that the workers of a machine get to end when it is reset or has gone. The VMM waits meanwhile, and its
/// monitor with it.
pub const END_PATIENCE: Duration = Duration::from_secs(5);
/// Most files of guest memory that are remembered of a machine.
const MAX_MEMORY_FILES: usize = 4096;
/// Messages about shortages that a guest can bring about.
static SHORTAGES: Throttle = Throttle::new(5, Duration::from_secs(60));
/// Messages about memory of huge pages.
static HUGE: Throttle = Throttle::new(5, Duration::from_secs(60));
/// Messages about memory files that cannot be sealed.
static UNSEALED: Throttle = Throttle::new(5, Duration::from_secs(60));
/// The greatest `oom_score_adj` (proc_pid_oom_score_adj(5)).
const PREFERRED_VICTIM: &str = "1000";
/// Has no limit of sessions but the machine's.
const ROOT: u32 = 0;
/// Short names of sessions in the log, for all connections of the daemon.
static NEXT_LABEL: AtomicU64 = AtomicU64::new(1);

/// The settings that all devices of a daemon have in common.
#[derive(Debug)]
pub struct Settings {
    /// Request queues.
    pub num_queues: u32,
    /// Sessions at once.
    pub max_sessions: u32,
    /// Device memory of a machine, in bytes.
    pub memory: Option<u64>,
    /// Control groups for workers.
    pub cgroups: Option<Arc<Cgroups>>,
    /// Sessions at once of one user of the guest, other than its root.
    pub max_user_sessions: u32,
    /// Device code that workers loaded before.
    pub images: Arc<ImageCache>,
    /// The objects that sessions share with each other.
    pub exchange: Arc<Exchange>,
    /// Which guest memory workers map. Not `Auto` where this host does not allow `Named`.
    pub guest_pages: GuestPages,
    /// A machine with open sessions may be saved.
    pub lose_sessions: bool,
    /// Sessions that are ending, and who waits for them.
    pub endings: Endings,
    /// The daemon's descriptors.
    pub descriptors: Descriptors,
    /// The source of workers.
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
    group_warned: AtomicBool,
    budget: Arc<RequestBudget>,
    /// Files that its sessions share.
    shared_files: Arc<Budget>,
    /// The machine's device memory, if that is limited, from its first session on.
    account: Mutex<Option<Arc<Account>>>,
    /// The machine's control group, from its first session on.
    group: Mutex<Option<Group>>,
    memory: Mutex<Option<SharedMemory>>,
    /// Files that were guest memory at any time: workers may have them mapped.
    memory_files: Mutex<HashSet<FileId>>,
    front_end: OnceLock<FrontEnd>,
    /// It serves no more: its workers do not end.
    failed: AtomicBool,
    refusals: Refusals,
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
    /// Sessions that wait for a worker.
    opening: usize,
    /// Sessions of each user of the guest, from their opening until they have ended.
    users: HashMap<u32, u32>,
    /// Counts resets: a session that was opened before one does not come up after it.
    epoch: u64,
    closed: bool,
    /// Sessions that have ended: their number by how they ended, and the sums of their counters.
    ended: Ended,
}

#[derive(Clone, Copy, Debug, Default)]
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

/// Room for a session that waits for its worker.
struct Reservation {
    device: Arc<Device>,
    epoch: u64,
    /// The charge for the worker's descriptors.
    charge: Option<Charge>,
}

impl Reservation {
    /// Returns whether the session is wanted still.
    fn stands(&self, sessions: &Sessions) -> bool {
        !sessions.closed && sessions.epoch == self.epoch
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.device.sessions.lock().opening -= 1;
    }
}

/// One of the sessions that a user of the guest may have.
struct UserSession {
    device: Arc<Device>,
    uid: u32,
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
    /// A device without front-end, numbered `connection` in the log.
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
            memory_files: Mutex::default(),
            front_end: OnceLock::new(),
            failed: AtomicBool::new(false),
            refusals: Refusals::default(),
            sessions: Mutex::default(),
            settings,
        })
    }

    /// Guest memory as it is now.
    pub fn memory(&self) -> Option<Snapshot> {
        self.memory.lock().as_ref().map(|memory| memory.memory())
    }

    /// The front-end is connected: how to part with it.
    pub fn connected(&self, front_end: ShutdownHandle) {
        let _ = self.front_end.set(FrontEnd(front_end));
        if self.failed.load(Ordering::Acquire) {
            self.hang_up();
        }
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        if let Some(FrontEnd(front_end)) = self.front_end.get() {
            front_end.shutdown();
        }
    }

    /// The front-end has changed guest memory: every worker learns of it.
    pub fn update_memory(&self, memory: SharedMemory) {
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
        if let Err(error) = protect(&memory.memory(), pages) {
            log!(
                UNSEALED.level(Level::Info),
                "connection {}: a worker that is taken over can cut this machine's memory short or open it, because its \
                 files take no seals or rights ({error}): with QEMU, use memory-backend-memfd",
                self.connection
            );
        }
        let mut files = self.memory_files.lock();
        files.extend(files_of(&memory.memory()));
        if files.len() > MAX_MEMORY_FILES {
            // Only a front-end that replaces its memory without end gets here; it has forgotten the first ones, too.
            *files = files_of(&memory.memory());
        }
        drop(files);
        *self.memory.lock() = Some(memory);
        for session in self.sessions.lock().open.values() {
            session.update_memory();
        }
    }

    /// Executes a request; `chain` is answered now or later, in any case.
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
                    // The driver gives back what the session had: not while a worker may write it.
                    None => self.answer_after(HashSet::new(), chain, REPLY_SESSION_LOST, &[]),
                },
                _ => self.submit(request, chain),
            },
        }
    }

    fn submit(&self, request: Request, chain: Chain) {
        let Some(session) = self.session(request.header.session) else {
            return match request.header.op {
                // As after CLOSE, memory goes back.
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
        let ending = self.end_sessions(false).iter().map(|session| session.id()).collect();
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

    fn open(self: &Arc<Self>, request: &Request, chain: Chain) {
        let Ok(open) = Open::read_from_bytes(&request.payload) else {
            return chain.complete(REPLY_INVALID, &[]);
        };
        let Some((reservation, of_user)) = self.reserve(open.uid) else {
            debug!(
                "connection {}: no session for user {}: {} may be open, {} of one user",
                self.connection, open.uid, self.settings.max_sessions, self.settings.max_user_sessions
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

    fn reserve(self: &Arc<Self>, uid: u32) -> Option<(Reservation, UserSession)> {
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

    /// The life of a session, on a thread of its own.
    fn run_session(
        self: &Arc<Self>,
        open: &Open,
        mut reservation: Reservation,
        of_user: UserSession,
        chain: Chain,
    ) {
        // Before a worker is taken: its context counts.
        let Ok(slot) = self.join_account() else {
            self.refusals.count(Refusal::DeviceMemory);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let taken = self.settings.pool.take(|| reservation.stands(&self.sessions.lock()));
        let (Ok(worker), Ok(id)) = (taken, random_id()) else {
            self.refusals.count(Refusal::Worker);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        };
        let Some(worker) = worker else { return chain.complete(REPLY_SESSION_LOST, &[]) };
        if !reservation.stands(&self.sessions.lock()) {
            self.settings.pool.put_back(worker);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        // From here on the worker is this machine's, and no other session's.
        self.join_group(worker.process.pid());
        if let Some(slot) = &slot
            && let Err(error) = link::send_account(&worker.sockets.link, slot)
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
        let machine = self
            .memory()
            .map_or(Machine::Virtual(self.connection), |memory| Machine::of(self.connection, &memory));
        let owner = Owner { machine, uid: open.uid };
        self.settings.images.serve(worker.sockets.images.clone(), owner);
        let budgets = FileBudgets {
            machine: self.shared_files.clone(),
            descriptors: self.settings.descriptors.budget.clone(),
        };
        self.settings.exchange.serve(worker.sockets.exchange.clone(), owner, budgets);
        let label = NEXT_LABEL.fetch_add(1, Ordering::Relaxed);
        let session = Session::new(id, label, open, worker, self.tables());
        sessions.open.insert(id, session.clone());
        self.settings.endings.begin(id);
        drop(sessions);
        // Until the worker has ended.
        let _charge = reservation.charge.take();
        drop(reservation);
        let opened = || chain.complete(REPLY_OK, Opened { session: id }.as_bytes());
        session.run(opened, |end| {
            // The worker has ended, and its memory is free.
            drop(slot);
            self.session_ended(id, end);
            drop(of_user);
        });
    }

    /// Returns the tables of guest memory for a session's writer.
    fn tables(self: &Arc<Self>) -> Tables {
        let device = self.clone();
        Box::new(move || {
            device
                .memory()
                .map(|memory| MemoryTable::of(&memory, device.settings.guest_pages))
                .unwrap_or_default()
        })
    }

    /// Has the kernel choose a worker before others, the VMM above all, when the host is out of memory, and puts it into
    /// the machine's control group, if there are groups. A worker that cannot be put there serves all the
    /// same: the operator was told what that costs.
    fn join_group(&self, pid: u32) {
        // In its own namespaces it cannot do so itself. Without `/proc` it is chosen by its size.
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), PREFERRED_VICTIM);
        let Some(groups) = &self.settings.cgroups else { return };
        let mut group = self.group.lock();
        if group.is_none() {
            *group = groups.group(self.connection).map_err(|error| self.no_group(&error)).ok();
        }
        if let Some(Err(error)) = group.as_ref().map(|group| group.add(pid)) {
            self.no_group(&error);
        }
    }

    fn no_group(&self, error: &std::io::Error) {
        if !self.group_warned.swap(true, Ordering::Relaxed) {
            warn!(
                "connection {}: no control group for its workers ({error}): they can use up the host's memory",
                self.connection
            );
        }
    }

    /// A place in the machine's account, if it has one.
    ///
    /// Errors: the machine's memory does not suffice for another session.
    fn join_account(&self) -> Result<Option<Slot>, ()> {
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

    fn session_ended(&self, id: u64, end: End) {
        let mut sessions = self.sessions.lock();
        let session = sessions.open.remove(&id);
        sessions.ended.add(end, session.map(|session| session.totals()).unwrap_or_default());
        drop(sessions);
        self.settings.endings.ended(id);
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
        let mut sessions = self.sessions.lock();
        sessions.epoch += 1;
        sessions.closed |= closed;
        let ending: Vec<_> = sessions.open.values().cloned().collect();
        drop(sessions);
        self.settings.pool.look_again();
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
        let ending = self.end_sessions(false);
        if !wait_for(&ending, Instant::now() + END_PATIENCE) {
            return self.fail(&ending);
        }
        self.events.clear();
        self.driver_version.store(0, Ordering::Relaxed);
    }

    /// Workers do not end, so that the device cannot be reset: it parts with its front-end, which tells the driver that
    /// there is no backend. The next connection for the same memory answers the driver when they have ended.
    fn fail(&self, ending: &[Arc<Session>]) {
        error!(
            "connection {}: the device cannot be reset: {}. The front-end is dropped; programs of the guest get no session \
             before these workers have ended",
            self.connection,
            running(ending)
        );
        self.failed.store(true, Ordering::Release);
        self.abandon();
        self.settings.endings.leave(self.connection, ids(ending), &self.memory_files.lock());
        self.hang_up();
    }

    /// The front-end gets no more answers, and every session is killed. Does not wait.
    pub fn abandon(&self) -> Vec<Arc<Session>> {
        for ring in &self.rings {
            ring.abandon();
        }
        self.end_sessions(true)
    }

    /// The front-end has gone: everything ends. Returns when all workers have ended, or at `deadline`. False: some have
    /// not, which the log says.
    pub fn shut_down(&self, deadline: Instant) -> bool {
        let ending = self.abandon();
        let all = wait_for(&ending, deadline);
        if !all {
            error!("connection {}: {}", self.connection, running(&ending));
        }
        self.settings.endings.leave(self.connection, ids(&ending), &self.memory_files.lock());
        self.settings.images.forget(Machine::Virtual(self.connection));
        all
    }

    /// The sessions that are open.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().open.values().cloned().collect()
    }

    /// Figures about the connection, for the operator.
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

    /// Names of the sessions that are open, for migration.
    pub fn open_sessions(&self) -> Vec<u64> {
        self.sessions.lock().open.keys().copied().collect()
    }

    /// A queue was stopped: what workers wrote by themselves goes into the dirty log.
    pub fn log_kept_pages(&self) {
        let kept = self.sessions.lock().open.values().any(|session| session.maps_memory());
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
        self.sessions.lock().open.get(&id).cloned()
    }

    fn run_aside(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        // Without a thread the closure is dropped, and its chain with it, which answers it.
        let thread = thread::Builder::new().name(format!("{name}-{}", self.connection)).spawn(work);
        if let Err(error) = thread {
            log!(
                SHORTAGES.level(Level::Error),
                "connection {}: no thread for a request: {error}",
                self.connection
            );
        }
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

/// Waits until all have ended. False: not before `deadline`.
fn wait_for(ending: &[Arc<Session>], deadline: Instant) -> bool {
    ending.iter().all(|session| session.wait_ended(deadline.saturating_duration_since(Instant::now())))
}

fn ids(sessions: &[Arc<Session>]) -> impl Iterator<Item = u64> {
    sessions.iter().map(|session| session.id())
}

/// Which of these have not ended, for the log.
fn running(sessions: &[Arc<Session>]) -> String {
    let running = sessions.iter().filter(|session| !session.wait_ended(Duration::ZERO));
    let pids: Vec<String> = running.map(|session| session.worker_pid().to_string()).collect();
    format!("{} workers do not end after SIGKILL (processes {})", pids.len(), pids.join(", "))
}

#[cfg(test)]
#[path = "device_test.rs"]
mod tests;
