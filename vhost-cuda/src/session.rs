// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One session: a process in the guest, its worker here, and the requests between them.
//!
//! A session has two threads. The writer feeds the worker, so that a worker that does not read blocks nobody
//! else; the session's own thread takes its replies and, when it ends, reaps it. Only after that are the
//! requests it still owed, and the close, answered: nothing touches guest memory after a reply.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use log::{debug, info};
use virtio_cuda_protocol::transport::{
    FLAG_KEEP, MemEntry, OP_CALL, OP_SHARE, Open, REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK,
    REPLY_SESSION_LOST,
};

use crate::budget::Charge;
use crate::link::{self, FROM_REPLY, TO_CALL, TO_CLOSE, TO_MEMORY, TO_SHARE, TO_UNPIN, ToWorker};
use crate::memory::{MemoryTable, mark_written};
use crate::process::Worker;
use crate::request::Request;
use crate::ring::Chain;

/// Most requests of one session that may be outstanding (`Config::max_outstanding`).
pub const MAX_OUTSTANDING: usize = 256;
/// What a worker gets to end by itself after a close, before it is killed.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// A session with a running worker.
#[derive(Debug)]
pub struct Session {
    id: u64,
    label: u64,
    who: String,
    worker: Worker,
    outbox: Mutex<Outbox>,
    state: Mutex<State>,
    ended: Condvar,
    opened: Instant,
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
    _charge: Charge,
}

/// The way to the worker: directly as long as the socket takes everything, else through the writer's thread.
#[derive(Debug, Default)]
struct Outbox {
    writer: Option<Sender<Outgoing>>,
    /// What the writer has got and not written yet; while there is any, all must go through it.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Outgoing {
    /// A frame, or the rest of one.
    Bytes(Vec<u8>),
    Memory(Arc<MemoryTable>),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The driver or the front-end asked for it.
    Closed,
    /// The worker ended by itself.
    Lost,
}

impl Session {
    /// A session on `worker`; `label` is its short name in the log.
    pub fn new(id: u64, label: u64, open: &Open, worker: Worker) -> Arc<Self> {
        let who = format!("{} {}", printable(&open.name), open.pid);
        Arc::new(Self {
            id,
            label,
            who,
            worker,
            outbox: Mutex::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
            opened: Instant::now(),
        })
    }

    /// The session's name on the wire.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Serves the session until it ends; all it owed is answered when this returns, but the close
    /// itself: `at_end` runs before that, with the way it ended.
    pub fn run(self: &Arc<Self>, memory: Arc<MemoryTable>, opened: impl FnOnce(), at_end: impl FnOnce(End)) {
        let (outbox, inbox) = channel();
        lock(&self.outbox).writer = Some(outbox);
        self.send(Outgoing::Memory(memory));
        let writer = self.clone();
        let writing = thread::Builder::new()
            .name(format!("session-{}-w", self.label))
            .spawn(move || writer.write_all(&inbox));
        if writing.is_ok() {
            opened();
            self.read_replies();
        }
        let status = self.worker.process.reap();
        lock(&self.outbox).writer = None;
        let (end, owed, closers) = {
            let mut state = self.lock();
            let end = if state.phase == Phase::Open { End::Lost } else { End::Closed };
            state.phase = Phase::Ended;
            (end, std::mem::take(&mut state.outstanding), std::mem::take(&mut state.closers))
        };
        if let Ok(writing) = writing {
            let _ = writing.join();
        }
        for (_, call) in owed {
            call.answer(REPLY_SESSION_LOST, &[]);
        }
        self.report(end, status);
        at_end(end);
        for chain in closers {
            chain.complete(REPLY_OK, &[]);
        }
        self.lock().finished = true;
        self.ended.notify_all();
    }

    /// Hands a call, unpin or share to the worker. `chain` is answered in any case.
    pub fn submit(&self, request: Request, chain: Chain, charge: Charge) {
        let mut state = self.lock();
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
        let written = request.out_entries;
        state.outstanding.insert(id, InFlight { chain, written, _charge: charge });
        // Still locked: requests reach the worker in the order of their numbers.
        self.send(Outgoing::Bytes(frame));
    }

    /// Ends the session as the driver asks; `chain` is answered when the worker is gone.
    pub fn close(self: &Arc<Self>, chain: Chain) {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            drop(state);
            return chain.complete(REPLY_SESSION_LOST, &[]);
        }
        state.phase = Phase::Closing;
        state.closers.push(chain);
        drop(state);
        let header = ToWorker { kind: TO_CLOSE, ..ToWorker::default() };
        self.send(Outgoing::Bytes(link::encode_request(&header, &[], &[], &[])));
        let watched = self.clone();
        let watch = move || {
            if !watched.wait_ended(CLOSE_GRACE) {
                watched.worker.process.kill();
            }
        };
        if thread::Builder::new().name("session-close".into()).spawn(watch).is_err() {
            self.worker.process.kill();
        }
    }

    /// Kills the worker at once, as when the front-end has gone. Does not wait for it.
    pub fn kill(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.worker.process.kill();
    }

    /// The worker's process.
    pub fn worker_pid(&self) -> u32 {
        self.worker.process.pid()
    }

    /// Its names in the log.
    pub fn describe(&self) -> String {
        format!("session {} ({})", self.label, self.who)
    }

    /// Ends the worker, so that the session is lost.
    pub fn end_worker(&self) {
        self.worker.process.kill();
    }

    /// Whether the worker may write guest memory without being asked (kept pages, shared areas).
    pub fn maps_memory(&self) -> bool {
        self.lock().maps_memory
    }

    /// Tells the worker that guest memory has changed.
    pub fn update_memory(&self, table: Arc<MemoryTable>) {
        self.send(Outgoing::Memory(table));
    }

    /// Waits until the session has ended. False: it has not in that time.
    pub fn wait_ended(&self, time: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .ended
            .wait_timeout_while(state, time, |state| !state.finished)
            .unwrap_or_else(PoisonError::into_inner);
        state.finished
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn send(&self, outgoing: Outgoing) {
        let outbox = lock(&self.outbox);
        // Without a writer the session is ending, and its end answers what is outstanding.
        let Some(writer) = outbox.writer.as_ref() else { return };
        let rest = match outgoing {
            Outgoing::Bytes(mut frame) if outbox.waiting.load(Ordering::Acquire) == 0 => {
                let sent = link::write_now(&self.worker.link, &frame);
                if sent == frame.len() {
                    return;
                }
                Outgoing::Bytes(frame.split_off(sent))
            }
            other => other,
        };
        outbox.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = writer.send(rest);
    }

    fn write_all(&self, inbox: &Receiver<Outgoing>) {
        let waiting = lock(&self.outbox).waiting.clone();
        for outgoing in inbox {
            if let Err(error) = self.write(&outgoing) {
                debug!("session {}: its worker does not read: {error}", self.label);
                // The reader notices the end; a worker that only closed its socket must not live on.
                self.worker.process.kill();
                return;
            }
            waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn write(&self, outgoing: &Outgoing) -> std::io::Result<()> {
        let mut stream = &self.worker.link;
        match outgoing {
            Outgoing::Bytes(frame) => stream.write_all(frame),
            Outgoing::Memory(table) => {
                for (region, file) in &table.regions {
                    link::send_region(stream, region, file.file())?;
                }
                let header = ToWorker { kind: TO_MEMORY, ..ToWorker::default() };
                stream.write_all(&link::encode_request(&header, &[], &[], &[]))
            }
        }
    }

    /// Answers requests as the worker replies, until it ends.
    fn read_replies(&self) {
        loop {
            let (header, payload) = match link::receive_reply(&self.worker.link) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => return debug!("session {}: {error}", self.label),
            };
            let call = match header.kind {
                FROM_REPLY => self.lock().outstanding.remove(&header.id),
                _ => None,
            };
            let Some(call) = call else {
                return debug!("session {}: its worker sent a frame that nobody asked for", self.label);
            };
            self.lock().bytes_out += payload.len() as u64;
            if payload.len() > call.chain.payload_room() as usize {
                call.answer(REPLY_INVALID, &[]);
            } else {
                call.answer(header.status, &payload);
            }
        }
    }

    fn report(&self, end: End, status: Option<std::process::ExitStatus>) {
        let state = self.lock();
        let how = match (end, status) {
            (End::Closed, _) => "closed".to_string(),
            (End::Lost, Some(status)) => format!("lost ({status})"),
            (End::Lost, None) => "lost".to_string(),
        };
        info!(
            "session {} ({}): {how} after {} calls, {:.1} MB in, {:.1} MB out, {:.1} s",
            self.label,
            self.who,
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

/// The frame that carries a request to the worker.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The printable part of a name that the guest chose.
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
