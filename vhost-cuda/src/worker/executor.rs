// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One executor thread for each guest thread: calls of one thread run in order, a long wait blocks nobody else.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use log::debug;
use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_NO_RESOURCES};
use zerocopy::FromBytes;

use super::call::{Reply, ThreadState, execute};
use super::control;
use super::state::SessionState;
use crate::link::{self, FROM_REPLY, Frame, FromWorker, TO_CALL};

/// Most guest threads that use CUDA at once.
const MAX_THREADS: usize = 256;

/// The executors of a session.
#[derive(Debug)]
pub struct Executors {
    session: Arc<SessionState>,
    replies: Arc<Replies>,
    threads: HashMap<u32, Sender<Frame>>,
    control: Option<Sender<Frame>>,
}

/// The way back to the daemon.
#[derive(Debug)]
pub struct Replies {
    stream: Mutex<UnixStream>,
}

impl Replies {
    /// Replies go to `stream`.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: Mutex::new(stream) }
    }

    /// Answers request `id`. If the daemon does not take it the process ends: nobody waits for anything.
    pub fn send(&self, id: u64, (status, payload): &Reply) {
        let header = FromWorker { kind: FROM_REPLY, status: *status, id, ..FromWorker::default() };
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = link::send_reply(&stream, &header, payload) {
            super::end_process(&format!("the daemon does not take replies: {error}"));
        }
    }
}

impl Executors {
    /// No threads yet.
    pub fn new(session: Arc<SessionState>, replies: Arc<Replies>) -> Self {
        Self { session, replies, threads: HashMap::new(), control: None }
    }

    /// Gives a request to the thread that it is for. It is answered in any case.
    pub fn submit(&mut self, frame: Frame) {
        let id = frame.header.id;
        if let Err(status) = self.route(frame) {
            self.replies.send(id, &(status, Vec::new()));
        }
    }

    fn route(&mut self, frame: Frame) -> Result<(), u32> {
        if frame.header.kind != TO_CALL {
            if self.control.is_none() {
                self.control =
                    Some(self.start("control", |session, _, frame| control::execute(session, &frame))?);
            }
            return send(self.control.as_ref(), frame);
        }
        let (header, _) = CallHeader::read_from_prefix(&frame.payload).map_err(|_| REPLY_INVALID)?;
        let number = header.thread;
        if !self.threads.contains_key(&number) {
            if self.threads.len() >= MAX_THREADS {
                return Err(REPLY_NO_RESOURCES);
            }
            let thread = self.start(&format!("guest-{number}"), execute)?;
            self.threads.insert(number, thread);
        }
        let result = send(self.threads.get(&number), frame);
        if header.opcode == Opcode::session_thread_exit as u32 {
            // Without its sender the thread ends, after this call.
            self.threads.remove(&number);
        }
        result
    }

    fn start(
        &self,
        name: &str,
        work: fn(&SessionState, &mut ThreadState, Frame) -> Reply,
    ) -> Result<Sender<Frame>, u32> {
        let (sender, frames) = channel();
        let (session, replies) = (self.session.clone(), self.replies.clone());
        let run = move || run(&session, &replies, &frames, work);
        match thread::Builder::new().name(name.into()).spawn(run) {
            Ok(_) => Ok(sender),
            Err(error) => {
                debug!("no thread for {name}: {error}");
                Err(REPLY_NO_RESOURCES)
            }
        }
    }
}

fn send(thread: Option<&Sender<Frame>>, frame: Frame) -> Result<(), u32> {
    thread.and_then(|thread| thread.send(frame).ok()).ok_or(REPLY_NO_RESOURCES)
}

fn run(
    session: &SessionState,
    replies: &Replies,
    frames: &Receiver<Frame>,
    work: fn(&SessionState, &mut ThreadState, Frame) -> Reply,
) {
    let mut thread = ThreadState::default();
    for frame in frames {
        let id = frame.header.id;
        let reply = work(session, &mut thread, frame);
        replies.send(id, &reply);
    }
}
