// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One executor thread for each guest thread: calls of one thread run in order, and a long wait blocks no other thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use log::debug;
use vhost_cuda_common::link::{
    self, Frame, TO_CALL, TO_DEEPEN, TO_LOAD, TO_PROFILE, TO_RECIPE, TO_SAVE, TO_SAVED, TO_UNPIN,
};
use vhost_cuda_common::recording::STOP;
use vhost_cuda_common::timers;
use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_NO_RESOURCES};
use zerocopy::FromBytes;

use super::control;
use super::execute::execute;
use super::lane::{Lane, Position, Waits};
use super::requests;
use crate::call::ThreadState;
use crate::profile::requests as profile;
pub use crate::run::MAX_THREADS;
use crate::run::replies::{Replies, Reply};
use crate::state::SessionState;

/// The executors of a session.
#[derive(Debug)]
pub struct Executors {
    session: &'static SessionState,
    replies: Arc<Replies>,
    threads: HashMap<u32, Executor>,
    control: Option<Executor>,
    /// Exists while a profile is recorded.
    profile: Option<Executor>,
}

/// One executor, from outside.
#[derive(Debug)]
struct Executor {
    inbox: Sender<Message>,
    waits: Arc<Waits>,
}

/// A message to an executor.
#[derive(Debug)]
pub enum Message {
    /// A frame to execute, and its time of arrival.
    Frame(Frame, Instant),
    /// A request to look at the lane.
    Wake,
}

/// The ways by which an executor is told what to do, and answers.
#[derive(Clone, Copy)]
pub struct Channels<'a> {
    /// Messages for it.
    pub inbox: &'a Receiver<Message>,
    /// Requests that wait for its progress.
    pub waits: &'a Waits,
    /// The way of answers.
    pub replies: &'a Replies,
}

impl Executors {
    /// Starts without threads.
    pub fn new(session: &'static SessionState, replies: Arc<Replies>) -> Self {
        Self { session, replies, threads: HashMap::new(), control: None, profile: None }
    }

    /// Gives a request to its thread. Every request is answered.
    pub fn submit(&mut self, frame: Frame) {
        let id = frame.header.id;
        if let Err(status) = self.route(frame) {
            self.replies.send(id, &(status, Vec::new()));
        }
    }

    fn route(&mut self, frame: Frame) -> Result<(), u32> {
        if frame.header.kind == TO_UNPIN && control::withdraw(self.session, frame.header.tag) {
            // A copy may wait for long: it must not delay requests of others.
            let waits = self.start("unpin", |session, _, frame| control::execute(session, frame))?;
            return send(Some(&waits), Message::Frame(frame, Instant::now()));
        }
        if [TO_RECIPE, TO_DEEPEN, TO_SAVE, TO_SAVED, TO_LOAD].contains(&frame.header.kind) {
            // It waits for locks that are held while the driver makes a context, and for moves.
            let waits = self.start("recipe", requests::execute)?;
            return send(Some(&waits), Message::Frame(frame, Instant::now()));
        }
        if frame.header.kind == TO_PROFILE {
            let ends = link::profile_request(&frame.payload) == Some(STOP);
            if self.profile.is_none() {
                self.profile = Some(self.start("profile", |session, _, frame| {
                    profile::execute(&session.profile, &session.trace, &session.gpu, &frame.payload)
                })?);
            }
            let sent = send(self.profile.as_ref(), Message::Frame(frame, Instant::now()));
            if ends {
                // Without its sender the thread ends, after this request.
                self.profile = None;
            }
            return sent;
        }
        if frame.header.kind != TO_CALL {
            if self.control.is_none() {
                self.control =
                    Some(self.start("control", |session, _, frame| control::execute(session, frame))?);
            }
            return send(self.control.as_ref(), Message::Frame(frame, Instant::now()));
        }
        let (header, args) = CallHeader::read_from_prefix(&frame.payload).map_err(|_| REPLY_INVALID)?;
        let number = header.thread;
        if header.opcode == Opcode::session_wait as u32 {
            return self.wait(number, frame.header.id, args);
        }
        if !self.threads.contains_key(&number) {
            if self.threads.len() >= MAX_THREADS {
                return Err(REPLY_NO_RESOURCES);
            }
            let thread = self.start(&format!("guest-{number}"), execute)?;
            self.threads.insert(number, thread);
        }
        let result = send(self.threads.get(&number), Message::Frame(frame, Instant::now()));
        if header.opcode == Opcode::session_thread_exit as u32 {
            // Without its sender the thread ends, after this call.
            self.threads.remove(&number);
        }
        result
    }

    /// Answers request `id` once the lane of guest thread `number` has reached the position in `args`.
    fn wait(&self, number: u32, id: u64, args: &[u8]) -> Result<(), u32> {
        let executor = self.threads.get(&number).ok_or(REPLY_INVALID)?;
        let (replied, rest) = u64::read_from_prefix(args).map_err(|_| REPLY_INVALID)?;
        let (consumed, _) = u64::read_from_prefix(rest).map_err(|_| REPLY_INVALID)?;
        // Before the wake-up: the executor then sees the waiting request.
        if !executor.waits.add(id, Position { replied, consumed }, &self.replies) {
            return Err(REPLY_NO_RESOURCES);
        }
        // An executor that has just ended need not wake; its lane was idle.
        let _ = executor.inbox.send(Message::Wake);
        Ok(())
    }

    fn start(
        &self,
        name: &str,
        work: fn(&'static SessionState, &mut ThreadState, &mut Frame) -> Reply,
    ) -> Result<Executor, u32> {
        let (sender, inbox) = channel();
        let (session, replies, waits) = (self.session, self.replies.clone(), Arc::<Waits>::default());
        let theirs = waits.clone();
        let run = move || run(session, Channels { inbox: &inbox, waits: &theirs, replies: &replies }, work);
        match thread::Builder::new().name(name.into()).spawn(run) {
            Ok(_) => Ok(Executor { inbox: sender, waits }),
            Err(error) => {
                debug!("no thread for {name}: {error}");
                Err(REPLY_NO_RESOURCES)
            }
        }
    }
}

fn send(executor: Option<&Executor>, message: Message) -> Result<(), u32> {
    executor.and_then(|executor| executor.inbox.send(message).ok()).ok_or(REPLY_NO_RESOURCES)
}

fn run(
    session: &'static SessionState,
    channels: Channels<'_>,
    work: fn(&'static SessionState, &mut ThreadState, &mut Frame) -> Reply,
) {
    if !session.emulated {
        // For its naps; a worker with the emulator is not allowed to set it.
        timers::exact();
    }
    let mut thread = ThreadState::default();
    thread.held.set_plain(!session.fast);
    thread.signal = session.spare_signals.take();
    serve(session, &mut thread, channels, work);
    session.spare_signals.keep(std::mem::take(&mut thread.signal));
    thread.slot.take().into_iter().for_each(|slot| session.gate.give_slot(slot));
    thread.prepared.clear(&session.gpu);
}

fn serve(
    session: &'static SessionState,
    thread: &mut ThreadState,
    channels: Channels<'_>,
    work: fn(&'static SessionState, &mut ThreadState, &mut Frame) -> Reply,
) {
    let mut lane = None;
    loop {
        let message = match &mut lane {
            None => channels.inbox.recv().ok(),
            Some(lane) => Lane::serve(lane, session, thread, channels),
        };
        match message {
            None => return,
            Some(Message::Wake) => {}
            Some(Message::Frame(mut frame, came)) => {
                let waited = came.elapsed();
                thread.counter.count_queued(waited);
                (thread.path, thread.waited) = (0, waited.as_nanos() as u64);
                let reply = work(session, thread, &mut frame);
                if let Some(new) = thread.new_lane.take() {
                    channels.waits.progress(Position::default(), channels.replies);
                    lane = Some(Lane::new(new));
                }
                if thread.ended {
                    lane = None;
                    thread.lane = None;
                }
                channels.replies.send(frame.header.id, &reply);
            }
        }
    }
}
