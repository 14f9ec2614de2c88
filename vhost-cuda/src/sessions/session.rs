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
mod moves;
pub mod profile;
mod recipe;
mod saved;
pub mod saving;

pub use saved::SavedSession;
use vhost_cuda_common::link::{
    self, FROM_REPLY, FROM_WAKE, Region, TO_CALL, TO_CLOSE, TO_MEMORY, TO_SHARE, TO_UNPIN, ToWorker,
};
use vhost_cuda_common::statistics::Totals;

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, debug, error, log};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, MemEntry, OP_CALL, OP_SHARE, Open, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK,
    REPLY_SESSION_LOST,
};

use self::asked::Asked;
use crate::confine::threads;
use crate::guest::memory::{MemoryTable, SharedRegion, mark_written};
use crate::guest::request::Request;
use crate::guest::ring::Chain;
use crate::hand_over::freeze;
use crate::limits::request_budget::RequestCharge;
use crate::limits::throttle::Throttle;
use crate::sessions::endings::Endings;
use crate::sessions::named_pages::{Named, NamedPages, guard};
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
    worker: Worker,
    endings: Arc<Endings>,
    tables: Tables,
    /// True if the writer has yet to send the present guest memory.
    memory_changed: AtomicBool,
    /// The last request of which any byte was written to the worker.
    begun: AtomicU64,
    /// The pages that the worker may map, if these are not all.
    named: Option<Arc<NamedPages>>,
    outbox: Mutex<Outbox>,
    state: Mutex<State>,
    ended: Condvar,
    opened: Instant,
    /// See [`Totals::gpu_busy_ns`].
    gpu_busy_ns: Mutex<Option<u64>>,
    residence: Residence,
    profile: profile::Profiled,
    recipe: Asked,
    place: Place,
    /// True if its worker has got guest memory from the program before this one.
    is_restored: bool,
    /// True once the end of its worker was noticed.
    is_leaving: AtomicBool,
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
    _charge: Arc<RequestCharge>,
}

/// The connection to the worker: direct as long as the socket accepts everything, otherwise through the writer's
/// thread.
#[derive(Debug, Default)]
struct Outbox {
    writer: Option<Sender<Outgoing>>,
    /// The number of messages that the writer has not written yet. While it is not zero, all messages must pass
    /// through the writer.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Outgoing {
    /// A frame, or the rest of one, with the number of its request. The request's memory is charged until the frame
    /// is written.
    Frame(Vec<u8>, u64, Option<Arc<RequestCharge>>),
    /// A frame without entries, and its file.
    File(ToWorker, Vec<u8>, OwnedFd),
    /// Guest memory has changed.
    Memory,
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
        endings.begin(id);
        worker.messages.label.set(label);
        let named = worker.listener.lock().is_some().then(Arc::default);
        Arc::new(Self {
            named,
            id,
            label,
            program: printable(&open.name),
            pid: open.pid,
            uid: open.uid,
            worker,
            endings,
            tables,
            memory_changed: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            outbox: Mutex::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
            opened: Instant::now(),
            gpu_busy_ns: Mutex::default(),
            residence: Residence::default(),
            profile: profile::Profiled::default(),
            recipe: Asked::default(),
            place,
            is_restored: false,
            is_leaving: AtomicBool::new(false),
        })
    }

    /// Returns the session's id on the wire.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Serves the session until it ends. When this returns, all its requests except the close are answered. `at_end`
    /// runs before that, with the reason of the end.
    pub fn run(self: &Arc<Self>, opened: impl FnOnce(), at_end: impl FnOnce(End)) {
        let (outbox, inbox) = channel();
        self.outbox.lock().writer = Some(outbox);
        if !self.is_restored {
            self.update_memory();
        }
        self.guard();
        // The guard confines itself. The threads that follow read what the worker sends.
        threads::read_foreign_bytes();
        let writer = self.clone();
        let writing = thread::Builder::new()
            .name(format!("session-{}-w", self.label))
            .spawn(move || writer.write_all(&inbox));
        if writing.is_ok() {
            opened();
            self.read_replies();
        }
        self.residence.end();
        self.profile.asked.end();
        self.recipe.end();
        let status = self.reap();
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

    /// Makes the worker's mappings be checked until its mapper has ended. Without it the worker cannot continue.
    fn guard(self: &Arc<Self>) {
        let listener = self.worker.listener.lock().clone();
        let (Some(listener), Some(named)) = (listener, self.named.clone()) else { return };
        let session = self.clone();
        let guarding = thread::Builder::new().name(format!("session-{}-p", self.label));
        let guarded = guarding.spawn(move || {
            guard(&listener, &named);
            session.end_worker();
        });
        if let Err(error) = guarded {
            debug!("session {}: no thread for its mappings: {error}", self.label);
            self.end_worker();
        }
    }

    /// Kills the worker and waits until it has ended.
    fn reap(&self) -> Option<ExitStatus> {
        self.end_worker();
        let mut said = false;
        loop {
            match self.worker.process.reap(REAP_PATIENCE) {
                Reaped::Ended(status) => return status,
                Reaped::Stuck if !std::mem::replace(&mut said, true) => error!(
                    "{}: worker {} does not end after SIGKILL: it hangs in the kernel. Its guest gets no \
                     answer, and keeps the memory that the worker may write, until it has ended: see the kernel's log",
                    self.describe(),
                    self.worker.process.pid()
                ),
                Reaped::Stuck => {}
            }
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
        let named = self.named.as_ref().map(|named| named.begin(id, &request, chain.memory()));
        let (written, charge) = (request.out_entries, Arc::new(charge));
        state.outstanding.insert(id, InFlight { chain, written, named, _charge: charge.clone() });
        // Still locked: requests reach the worker in the order of their numbers.
        self.send(Outgoing::Frame(frame, id, Some(charge)));
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
        drop(state);
        self.endings.ending(self.id);
        let header = ToWorker { kind: TO_CLOSE, ..ToWorker::default() };
        self.send(Outgoing::Frame(link::encode_request(&header, &[], &[], &[]), 0, None));
        let watched = self.clone();
        // One per session at most, because it is closed once.
        let watch = move || {
            if !watched.wait_ended(CLOSE_GRACE) {
                watched.worker.kill();
            }
        };
        if thread::Builder::new().name("session-close".into()).spawn(watch).is_err() {
            self.worker.kill();
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

    /// Where its device memory is.
    pub fn residence(&self) -> &Residence {
        &self.residence
    }

    /// Returns its labels in the log.
    pub fn describe(&self) -> String {
        format!("session {} ({} {})", self.label, self.program, self.pid)
    }

    /// Ends the worker, so that the session is lost.
    pub fn end_worker(&self) {
        self.endings.ending(self.id);
        self.worker.kill();
    }

    /// Returns whether the worker may write guest memory without a request (kept pages, shared areas).
    pub fn maps_memory(&self) -> bool {
        self.state.lock().maps_memory
    }

    /// Notifies the worker that guest memory has changed. The writer sends the state at the time of writing, so
    /// several pending changes are sent as one.
    pub fn update_memory(&self) {
        if !self.memory_changed.swap(true, Ordering::AcqRel) {
            self.send(Outgoing::Memory);
        }
    }

    /// Process id of the worker.
    pub fn worker_pid(&self) -> u32 {
        self.worker.process.pid()
    }

    /// Sums of the worker's counters.
    pub fn totals(&self) -> Totals {
        let gpu_busy_ns = *self.gpu_busy_ns.lock();
        Totals { gpu_busy_ns, ..self.worker.statistics.totals() }
    }

    /// The calls that its worker has executed.
    pub fn calls(&self) -> u64 {
        self.worker.statistics.calls()
    }

    /// The host memory that its worker has ready for contents, as far as it was told to, in bytes.
    pub fn ready_memory(&self) -> u64 {
        self.worker.statistics.ready_memory().min(self.residence.pool_bytes())
    }

    /// The device memory that it is charged for, in bytes.
    pub fn device_memory(&self) -> u64 {
        self.worker.statistics.device_memory()
    }

    /// The devices of its memory that may move, a bit for each number of a device in workers. For a running session it is an estimate.
    pub fn movable_devices(&self) -> u64 {
        let moves = self.residence.moves();
        if moves.phase == super::residence::Phase::Suspended {
            moves.movable_devices
        } else {
            self.worker.statistics.movable_devices()
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
            process: ProcessUse::of(self.worker.process.pids()),
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

    fn send(&self, outgoing: Outgoing) {
        let outbox = self.outbox.lock();
        let Some(writer) = outbox.writer.as_ref() else {
            // Not running yet, or ending: then its end answers outstanding requests. Memory is sent before all else.
            self.memory_changed.store(false, Ordering::Release);
            return;
        };
        let rest = match outgoing {
            Outgoing::Frame(mut frame, request, charge) if outbox.waiting.load(Ordering::Acquire) == 0 => {
                self.begin(request);
                let sent = link::write_now(&self.worker.sockets.link, &frame);
                if sent == frame.len() {
                    return;
                }
                Outgoing::Frame(frame.split_off(sent), request, charge)
            }
            other => other,
        };
        outbox.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = writer.send(rest);
    }

    /// Notes that the worker sees a request from now on.
    fn begin(&self, request: u64) {
        self.begun.fetch_max(request, Ordering::AcqRel);
    }

    fn write_all(&self, inbox: &Receiver<Outgoing>) {
        let waiting = self.outbox.lock().waiting.clone();
        for outgoing in inbox {
            if let Err(error) = self.write(&outgoing) {
                debug!("session {}: its worker does not read: {error}", self.label);
                // The reader notices the end. A worker that only closed its socket must not survive.
                self.worker.kill();
                return;
            }
            waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn write(&self, outgoing: &Outgoing) -> std::io::Result<()> {
        let mut stream = &self.worker.sockets.link;
        match outgoing {
            Outgoing::Frame(frame, request, _) => {
                self.begin(*request);
                stream.write_all(frame)
            }
            Outgoing::File(header, payload, file) => {
                self.begin(header.id);
                link::send_with_file(stream, header, payload, file)
            }
            Outgoing::Memory => {
                // In this order, so that a later change is sent once more.
                self.memory_changed.store(false, Ordering::SeqCst);
                let table = (self.tables)();
                if let Some(named) = &self.named {
                    named.set_files(&table.regions)?;
                }
                for SharedRegion { region, file, read_only } in &table.regions {
                    if read_only.is_none() {
                        link::send_region(stream, region, file.file())?;
                    } else if let Some(number) =
                        self.named.as_ref().and_then(|named| named.number(file.file()))
                    {
                        let region = Region { number: number.into(), ..*region };
                        link::send_named_region(stream, &region)?;
                    }
                }
                let header = ToWorker { kind: TO_MEMORY, ..ToWorker::default() };
                stream.write_all(&link::encode_request(&header, &[], &[], &[]))
            }
        }
    }

    /// Answers requests as the worker replies, until it ends.
    fn read_replies(&self) {
        loop {
            let _permit = freeze::readable(&self.worker.sockets.link);
            if !self.read_reply() {
                self.is_leaving.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// Takes the next frame. Returns false if the session has ended.
    fn read_reply(&self) -> bool {
        let (header, payload) = match link::receive_reply(freeze::Message::of(&self.worker.sockets.link)) {
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
            of_profile.or_else(|payload| self.recipe.answered(&header, payload))
        } else {
            Err(payload)
        };
        let Err(payload) = asked else { return true };
        let call = if is_reply { self.state.lock().outstanding.remove(&header.id) } else { None };
        let Some(call) = call else {
            debug!("session {}: its worker sent a frame that nobody asked for", self.label);
            return false;
        };
        self.state.lock().bytes_out += payload.len() as u64;
        let fits = payload.len() <= call.chain.payload_room() as usize;
        let (status, payload) = if fits { (header.status, &payload[..]) } else { (REPLY_INVALID, &[][..]) };
        if let (Some(named), Some(pages)) = (&self.named, call.named) {
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
