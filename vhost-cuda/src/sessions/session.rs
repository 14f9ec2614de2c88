// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session: a process in the guest, its worker here, and the requests between them.
//!
//! A session has two threads. The writer sends to the worker, so that a worker that does not read blocks no other
//! session. The session's own thread receives its replies and reaps it when it ends. Only after that are its
//! outstanding requests and the close answered, because guest memory must not be accessed after a reply.
//!
//! A session ends when its process does (the pool then shuts the sockets down), whatever the process has done to its
//! sockets. A process that does not end after SIGKILL hangs in the kernel. Its outstanding requests are not answered
//! until it has ended, so the guest keeps those pages pinned.

pub mod asked;
pub mod machine;
mod moves;
mod outbox;
pub mod profile;
mod recipe;
pub mod renewal;
mod saved;
pub mod saving;
mod sending;
mod stopping;

pub use saved::SavedSession;
use vhost_cuda_common::link::{
    self, FROM_REPLY, FROM_WAKE, TO_CALL, TO_CLOSE, TO_POOL, TO_SHARE, TO_UNPIN, ToWorker,
};
use vhost_cuda_common::statistics::Totals;

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, error, log};
use parking_lot::{Condvar, Mutex, RwLock};
use serde::{Deserialize, Serialize};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, MemEntry, OP_CALL, OP_SHARE, Open, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK,
    REPLY_SESSION_LOST,
};
use zerocopy::IntoBytes;

use self::asked::Asked;
use self::outbox::{Outbox, Outgoing};
use crate::confine::threads;
use crate::guest::memory::{MemoryTable, mark_written};
use crate::guest::request::Request;
use crate::guest::ring::Chain;
use crate::hand_over::freeze;
use crate::limits::request_budget::RequestCharge;
use crate::limits::throttle::Throttle;
use crate::sessions::endings::Endings;
use crate::sessions::named_pages::{HeldPages, Named, NamedPages, guard};
use crate::sessions::process::{Reaped, Worker};
use crate::sessions::report::{ProcessUse, SessionReport};
use crate::sessions::residence::Residence;

/// The maximum number of outstanding requests of one session (`Config::max_outstanding`).
pub const MAX_OUTSTANDING: usize = 256;
/// The time for a worker to end by itself after a close, before it is killed.
const CLOSE_GRACE: Duration = Duration::from_millis(500);
/// The time for a worker to end after SIGKILL before the log reports that it hangs.
const REAP_PATIENCE: Duration = Duration::from_secs(5);
/// Limits messages about sessions that ended, because a guest may open any number.
static ENDS: Throttle = Throttle::new(50, Duration::from_secs(10));

/// Returns the present guest memory.
pub type Tables = Box<dyn Fn() -> Arc<MemoryTable> + Send + Sync>;

/// A session with a running worker.
pub struct Session {
    id: u64,
    label: u64,
    /// Name, process id and user id of the program in the guest.
    program: String,
    pid: u32,
    uid: u32,
    assigned: RwLock<Arc<Assigned>>,
    endings: Arc<Endings>,
    tables: Tables,
    /// True if the writer has yet to send the present guest memory.
    memory_changed: AtomicBool,
    /// The last request of which any byte was written to the worker.
    begun: AtomicU64,
    outbox: Mutex<Outbox>,
    state: Mutex<State>,
    /// Notified when the session has ended, or has no [`State::fresh`] any more.
    ended: Condvar,
    opened: Instant,
    /// The sums of the workers before the present one.
    past: Mutex<Totals>,
    /// See [`Totals::gpu_busy_ns`].
    gpu_busy_ns: Mutex<Option<u64>>,
    residence: Residence,
    profile: profile::Profiled,
    recipe: Asked,
    /// The question whether it has stopped with its machine.
    stopping: Asked,
    /// The question for contents that go ahead of its machine.
    ahead: Asked,
    place: Place,
    /// True if its worker has got guest memory from the program before this one.
    is_restored: bool,
    /// True once the end of its worker was noticed.
    is_leaving: AtomicBool,
}

/// A worker of a session.
#[derive(Debug)]
pub struct Assigned {
    /// The worker.
    pub worker: Worker,
    /// The pages that it may map, if these are not all.
    named: Option<Arc<NamedPages>>,
}

/// What a session holds of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The user of the guest to whom it is charged.
    pub charged_uid: u32,
    /// The number of its counter in the machine's account.
    pub account: Option<u32>,
    /// True if its worker is in the control group of that user.
    pub in_group: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("label", &self.label).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    outstanding: HashMap<u64, InFlight>,
    next_request: u64,
    closers: Vec<Chain>,
    calls: u64,
    bytes_in: u64,
    bytes_out: u64,
    maps_memory: bool,
    finished: bool,
    /// True while requests wait here, because the worker has left or leaves the session (`renewal`).
    is_away: bool,
    /// The worker that is to take the place of the present one.
    fresh: Option<Fresh>,
    /// True while requests wait here, because the machine has stopped (`stopping`).
    is_stopped: bool,
    /// The reason for which the worker may write to guest memory although the machine has stopped, if there is one. `None` while the
    /// machine runs.
    stop: Option<Result<(), String>>,
    /// True until the machine runs with which it has come.
    is_arriving: bool,
    /// Pages that the program has named where it comes from.
    arriving: Vec<HeldPages>,
}

/// A worker that a session is about to go over to.
#[derive(Debug)]
struct Fresh {
    assigned: Arc<Assigned>,
    /// True once it has the session: the present worker is ended then.
    has_entered: bool,
    /// True if guest memory has changed since it was given any.
    memory_changed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Closing,
    Ended,
}

#[derive(Debug)]
struct InFlight {
    chain: Chain,
    /// Memory that the worker may have written when it replies.
    written: Vec<MemEntry>,
    /// The pages that it names, if the worker may map only named pages.
    named: Option<Named>,
    /// The frame, while it waits for the worker that will have the session.
    waiting: Option<Vec<u8>>,
    charge: Arc<RequestCharge>,
}

/// The reason of a session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The driver or the front-end asked for it.
    Closed,
    /// The worker ended by itself.
    Lost,
}

impl Session {
    /// Creates a session on `worker`. `label` is its number in the log.
    #[expect(clippy::too_many_arguments, reason = "each has a type of its own but the two numbers")]
    pub fn new(
        id: u64,
        label: u64,
        open: &Open,
        place: Place,
        worker: Worker,
        endings: Arc<Endings>,
        tables: Tables,
    ) -> Arc<Self> {
        Arc::new(Self::unstarted(id, label, open, place, worker, endings, tables))
    }

    #[expect(clippy::too_many_arguments, reason = "those of `new`")]
    fn unstarted(
        id: u64,
        label: u64,
        open: &Open,
        place: Place,
        worker: Worker,
        endings: Arc<Endings>,
        tables: Tables,
    ) -> Self {
        endings.begin(label);
        worker.messages.label.set(label);
        let named = worker.listener.lock().is_some().then(Arc::default);
        Self {
            id,
            label,
            program: printable(&open.name),
            pid: open.pid,
            uid: open.uid,
            assigned: RwLock::new(Arc::new(Assigned { worker, named })),
            endings,
            tables,
            memory_changed: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            outbox: Mutex::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
            opened: Instant::now(),
            past: Mutex::default(),
            gpu_busy_ns: Mutex::default(),
            residence: Residence::default(),
            profile: profile::Profiled::default(),
            recipe: Asked::default(),
            stopping: Asked::default(),
            ahead: Asked::default(),
            place,
            is_restored: false,
            is_leaving: AtomicBool::new(false),
        }
    }

    /// Returns the session's id on the wire.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Writes the messages that the socket did not take at once.
    fn write_all(&self, inbox: &Receiver<Outgoing>) {
        let waiting = self.outbox.lock().waiting.clone();
        for outgoing in inbox {
            let assigned = self.assigned();
            if let Err(error) = self.write(&assigned, &outgoing) {
                debug!("session {}: its worker does not read: {error}", self.label);
                // The reader notices the end. A worker that only closed its socket must not survive.
                assigned.worker.kill();
            }
            waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Serves the session until it ends. When this returns, all its requests except the close are answered. `at_end`
    /// runs before that, with the reason of the end.
    pub fn run(self: &Arc<Self>, opened: impl FnOnce(), at_end: impl FnOnce(End)) {
        let (outbox, inbox) = channel();
        self.outbox.lock().writer = Some(outbox);
        if !self.is_restored {
            self.update_memory();
        }
        self.guard(&self.assigned());
        // The guard confines itself. The threads that follow read what the worker sends.
        threads::read_foreign_bytes();
        let writer = self.clone();
        let writing = thread::Builder::new()
            .name(format!("session-{}-w", self.label))
            .spawn(move || writer.write_all(&inbox));
        if writing.is_ok() {
            opened();
            while {
                self.read_replies(&self.assigned());
                self.change_over()
            } {}
        }
        self.residence.end();
        self.profile.asked.end();
        self.recipe.end();
        self.stopping.end();
        self.ahead.end();
        self.endings.ending(self.label);
        let status = self.reap(&self.assigned().worker);
        self.end_fresh();
        self.outbox.lock().writer = None;
        let (end, owed, closers) = {
            let mut state = self.state.lock();
            let end = if state.phase == Phase::Open { End::Lost } else { End::Closed };
            state.phase = Phase::Ended;
            (end, std::mem::take(&mut state.outstanding), std::mem::take(&mut state.closers))
        };
        if let Ok(writing) = writing {
            let _ = writing.join();
        }
        let _permit = freeze::permit();
        for (_, call) in owed {
            call.answer(REPLY_SESSION_LOST, &[]);
        }
        self.log_end(end, status);
        at_end(end);
        for chain in closers {
            chain.complete(REPLY_OK, &[]);
        }
        self.state.lock().finished = true;
        self.ended.notify_all();
    }

    /// Makes a worker's mappings be checked until its mapper has ended. Without it the worker cannot continue.
    fn guard(&self, assigned: &Arc<Assigned>) {
        let listener = assigned.worker.listener.lock().clone();
        let (Some(listener), Some(named)) = (listener, assigned.named.clone()) else { return };
        let guarded = assigned.clone();
        let guarding = thread::Builder::new().name(format!("session-{}-p", self.label));
        let guarding = guarding.spawn(move || {
            guard(&listener, &named);
            guarded.worker.kill();
        });
        if let Err(error) = guarding {
            debug!("session {}: no thread for its mappings: {error}", self.label);
            assigned.worker.kill();
        }
    }

    /// Kills a worker and waits until it has ended.
    fn reap(&self, worker: &Worker) -> Option<ExitStatus> {
        worker.kill();
        let mut said = false;
        loop {
            match worker.process.reap(REAP_PATIENCE) {
                Reaped::Ended(status) => return status,
                Reaped::Stuck if !std::mem::replace(&mut said, true) => error!(
                    "{}: worker {} does not end after SIGKILL: it hangs in the kernel. Its guest gets no \
                     answer, and keeps the memory that the worker may write, until it has ended: see the kernel's log",
                    self.describe(),
                    worker.process.pid()
                ),
                Reaped::Stuck => {}
            }
        }
    }

    /// Ends a worker that was to take the place of the present one, and waits for its end: it may have mapped pages of the guest.
    fn end_fresh(&self) {
        let fresh = self.state.lock().fresh.as_ref().map(|fresh| fresh.assigned.clone());
        if let Some(fresh) = fresh {
            self.reap(&fresh.worker);
            self.state.lock().fresh = None;
            self.ended.notify_all();
        }
    }

    /// Called when the present worker has ended, or must end. Goes over to the worker that has the session instead. Returns false if
    /// there is none: the session ends.
    fn change_over(&self) -> bool {
        let old = self.assigned();
        let goes_over = |state: &State| {
            let goes_over = state.has_entered() && state.phase == Phase::Open;
            self.is_leaving.store(!goes_over, Ordering::Release);
            goes_over
        };
        if !goes_over(&self.state.lock()) {
            return false;
        }
        // Before the other one answers anything: this one may write pages of the guest until then.
        self.reap(&old.worker);
        let _permit = freeze::permit();
        let mut state = self.state.lock();
        let fresh = if goes_over(&state) { state.fresh.take() } else { None };
        let Some(Fresh { assigned, memory_changed, .. }) = fresh else { return false };
        let mut past = self.past.lock();
        *past = past.plus_ended(old.worker.statistics.totals());
        *self.assigned.write() = assigned;
        drop(past);
        self.profile.asked.forget();
        self.recipe.forget();
        self.stopping.forget();
        self.ahead.forget();
        self.residence.renewed();
        state.is_away = false;
        if memory_changed {
            self.memory_changed.store(true, Ordering::Release);
        }
        let pool_bytes = self.residence.pool_bytes();
        if pool_bytes > 0 {
            let header = ToWorker { kind: TO_POOL, ..ToWorker::default() };
            self.send(Outgoing::of(&header, pool_bytes.as_bytes()));
        }
        self.send_waiting(&mut state);
        drop(state);
        self.ended.notify_all();
        true
    }

    /// Sends what has waited to the present worker, in the order in which it came.
    fn send_waiting(&self, state: &mut State) {
        if self.memory_changed.load(Ordering::Acquire) {
            self.send(Outgoing::Memory);
        }
        let waiting = state.outstanding.iter_mut().filter_map(|(&id, call)| {
            let frame = call.waiting.take()?;
            Some((id, frame, call.charge.clone()))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|(id, ..)| *id);
        for (id, frame, charge) in waiting {
            self.send(Outgoing::Frame(frame, id, Some(charge)));
        }
    }

    /// Passes a call, unpin or share request to the worker. `chain` is answered in any case.
    pub fn submit(&self, request: Request, chain: Chain, charge: RequestCharge) {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            drop(state);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        if state.outstanding.len() >= MAX_OUTSTANDING {
            drop(state);
            return chain.complete(REPLY_NO_RESOURCES, &[]);
        }
        state.next_request += 1;
        let id = state.next_request;
        let (bytes_in, bytes_out) = request.traffic();
        state.calls += u64::from(request.header.op == OP_CALL);
        state.bytes_in += bytes_in;
        state.bytes_out += bytes_out;
        state.maps_memory |= request.header.op == OP_SHARE || request.header.flags & FLAG_KEEP != 0;
        let frame = encode(id, chain.payload_room(), &request);
        let pages = self.assigned().named.clone();
        let named = pages.map(|pages| pages.begin(id, &request, chain.memory()));
        let (written, charge) = (request.out_entries, Arc::new(charge));
        let waits = state.is_away || state.is_stopped;
        let (now, waiting) = if waits { (None, Some(frame)) } else { (Some(frame), None) };
        state.outstanding.insert(id, InFlight { chain, written, named, waiting, charge: charge.clone() });
        if let Some(frame) = now {
            // Still locked: requests reach the worker in the order of their numbers.
            self.send(Outgoing::Frame(frame, id, Some(charge)));
        }
    }

    /// Ends the session on the driver's request. `chain` is answered when the worker has ended.
    pub fn close(self: &Arc<Self>, chain: Chain) {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            drop(state);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        state.phase = Phase::Closing;
        state.closers.push(chain);
        let is_away = state.is_away;
        drop(state);
        self.endings.ending(self.label);
        if is_away {
            // Neither of its workers can end by itself.
            return self.end_worker();
        }
        self.send(Outgoing::of(&ToWorker { kind: TO_CLOSE, ..ToWorker::default() }, &[]));
        let watched = self.clone();
        // One per session at most, because it is closed once.
        let watch = move || {
            if !watched.wait_ended(CLOSE_GRACE) {
                watched.end_worker();
            }
        };
        if thread::Builder::new().name("session-close".into()).spawn(watch).is_err() {
            self.end_worker();
        }
    }

    /// Kills the worker at once, for example when the front-end has disconnected. Does not wait for it.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.end_worker();
    }

    /// Its number in the log.
    pub fn label(&self) -> u64 {
        self.label
    }

    /// Name, process id and user of the program in the guest.
    pub fn program(&self) -> (&str, u32, u32) {
        (&self.program, self.pid, self.uid)
    }

    /// What it holds of its machine.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Where its device memory is.
    pub fn residence(&self) -> &Residence {
        &self.residence
    }

    /// Returns its labels in the log.
    pub fn describe(&self) -> String {
        format!("session {} ({} {})", self.label, self.program, self.pid)
    }

    /// Ends the worker, so that the session is lost, and one that was to take its place.
    pub fn end_worker(&self) {
        self.endings.ending(self.label);
        self.assigned().worker.kill();
        let fresh = self.state.lock().fresh.as_ref().map(|fresh| fresh.assigned.clone());
        fresh.iter().for_each(|fresh| fresh.worker.kill());
    }

    /// Returns whether the worker may write guest memory without a request (kept pages, shared areas).
    pub fn maps_memory(&self) -> bool {
        self.state.lock().maps_memory
    }

    /// Notifies the worker that guest memory has changed. The writer sends the state at the time of writing, so
    /// several pending changes are sent as one.
    pub fn update_memory(&self) {
        let mut state = self.state.lock();
        state.fresh.iter_mut().for_each(|fresh| fresh.memory_changed = true);
        if !self.memory_changed.swap(true, Ordering::AcqRel) && !state.is_away {
            self.send(Outgoing::Memory);
        }
    }

    /// Its present worker.
    pub fn assigned(&self) -> Arc<Assigned> {
        self.assigned.read().clone()
    }

    /// Process id of the worker.
    pub fn worker_pid(&self) -> u32 {
        self.assigned().worker.process.pid()
    }

    /// Sums of the counters of its workers.
    pub fn totals(&self) -> Totals {
        let gpu_busy_ns = *self.gpu_busy_ns.lock();
        let past = self.past.lock();
        Totals { gpu_busy_ns, ..self.assigned().worker.statistics.totals().plus_ended(*past) }
    }

    /// The calls that its workers have executed.
    pub fn calls(&self) -> u64 {
        let past = self.past.lock();
        self.assigned().worker.statistics.calls().saturating_add(past.calls)
    }

    /// The host memory that its worker has ready for contents, as far as it was told to, in bytes.
    pub fn ready_memory(&self) -> u64 {
        self.assigned().worker.statistics.ready_memory().min(self.residence.pool_bytes())
    }

    /// The device memory that it is charged for, in bytes.
    pub fn device_memory(&self) -> u64 {
        self.assigned().worker.statistics.device_memory()
    }

    /// The devices of its memory that may move, a bit for each number of a device in workers. For a running session it is an estimate.
    pub fn movable_devices(&self) -> u64 {
        let moves = self.residence.moves();
        if moves.phase == super::residence::Phase::Suspended {
            moves.movable_devices
        } else {
            self.assigned().worker.statistics.movable_devices()
        }
    }

    /// Adds time in which a GPU executed its kernels, in nanoseconds.
    pub fn add_gpu_busy(&self, ns: u64) {
        let mut sum = self.gpu_busy_ns.lock();
        *sum = Some(sum.unwrap_or(0).saturating_add(ns));
    }

    /// Returns metrics of the session, for the operator.
    pub fn report(&self) -> SessionReport {
        SessionReport {
            label: self.label,
            program: self.program.clone(),
            pid: self.pid,
            uid: self.uid,
            age: self.opened.elapsed(),
            outstanding: self.state.lock().outstanding.len() as u64,
            totals: self.totals(),
            process: ProcessUse::of(self.assigned().worker.process.pids()),
            ready_memory: self.ready_memory(),
            moves: self.residence.moves(),
        }
    }

    /// Waits until the session has ended. Returns false after `time`.
    pub fn wait_ended(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.ended.wait_while_for(&mut state, |state| !state.finished, time);
        state.finished
    }

    /// Answers requests as a worker replies, until it ends.
    fn read_replies(&self, assigned: &Assigned) {
        let link = &assigned.worker.sockets.link;
        loop {
            let _permit = freeze::readable(link);
            if !self.read_reply(assigned) {
                return;
            }
        }
    }

    /// Takes the next frame. Returns false if the worker has ended, or must end.
    fn read_reply(&self, Assigned { worker, named }: &Assigned) -> bool {
        let (header, payload) = match link::receive_reply(freeze::Message::of(&worker.sockets.link)) {
            Ok(Some(frame)) => frame,
            Ok(None) => return false,
            Err(error) => {
                debug!("session {}: {error}", self.label);
                return false;
            }
        };
        if header.kind == FROM_WAKE && payload.is_empty() && self.residence.woken(self.label) {
            return true;
        }
        // A request that the worker has not seen may wait in the writer for any time. A reply to it is an error.
        let is_reply = header.kind == FROM_REPLY && header.id <= self.begun.load(Ordering::Acquire);
        if is_reply && self.moved(&header, &payload) {
            return true;
        }
        let asked = if is_reply {
            let of_profile = self.profile.asked.answered(&header, payload);
            of_profile
                .or_else(|payload| self.recipe.answered(&header, payload))
                .or_else(|payload| self.stopping.answered(&header, payload))
                .or_else(|payload| self.ahead.answered(&header, payload))
        } else {
            Err(payload)
        };
        let Err(payload) = asked else { return true };
        let call = if is_reply { self.state.lock().take(header.id) } else { None };
        let Some(call) = call else {
            debug!("session {}: its worker sent a frame that nobody asked for", self.label);
            return false;
        };
        self.state.lock().bytes_out += payload.len() as u64;
        let fits = payload.len() <= call.chain.payload_room() as usize;
        let (status, payload) = if fits { (header.status, &payload[..]) } else { (REPLY_INVALID, &[][..]) };
        if let (Some(named), Some(pages)) = (named, call.named) {
            named.end(pages, status);
        }
        call.answer(status, payload);
        true
    }

    fn log_end(&self, end: End, status: Option<ExitStatus>) {
        let state = self.state.lock();
        let how = match (end, status) {
            (End::Closed, _) => "closed".to_string(),
            (End::Lost, Some(status)) => format!("lost ({status})"),
            (End::Lost, None) => "lost".to_string(),
        };
        log!(
            ENDS.level(Level::Info),
            "{}: {how} after {} calls, {:.1} MB in, {:.1} MB out, {:.1} s",
            self.describe(),
            state.calls,
            state.bytes_in as f64 / 1e6,
            state.bytes_out as f64 / 1e6,
            self.opened.elapsed().as_secs_f64()
        );
    }
}

impl State {
    /// Takes a request that its worker answers. After another one has entered the session, that one answers it.
    fn take(&mut self, request: u64) -> Option<InFlight> {
        if self.has_entered() { None } else { self.outstanding.remove(&request) }
    }

    fn has_entered(&self) -> bool {
        self.fresh.as_ref().is_some_and(|fresh| fresh.has_entered)
    }
}

impl InFlight {
    fn answer(self, status: u32, payload: &[u8]) {
        mark_written(self.chain.memory(), &self.written);
        self.chain.complete(status, payload);
    }
}

/// Encodes the frame of a request to the worker.
fn encode(id: u64, reply_room: u32, request: &Request) -> Vec<u8> {
    let kind = match request.header.op {
        OP_CALL => TO_CALL,
        OP_SHARE => TO_SHARE,
        _ => TO_UNPIN,
    };
    let (flags, tag) = (request.header.flags, request.header.tag);
    let header = ToWorker { kind, flags, id, tag, reply_room, ..ToWorker::default() };
    link::encode_request(&header, &request.payload, &request.in_entries, &request.out_entries)
}

/// Returns the printable part of a name that the guest chose.
fn printable(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let printable = |&byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => byte as char,
        _ => '?',
    };
    name[..end].iter().map(printable).collect()
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
