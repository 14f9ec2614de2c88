// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One executor thread for each guest thread: calls of one thread run in order, and a long wait blocks no other thread.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use vhost_cuda_common::link::{
    self, Frame, TO_CALL, TO_DEEPEN, TO_LOAD, TO_PROFILE, TO_RECIPE, TO_SAVE, TO_SAVED, TO_UNPIN,
};
use vhost_cuda_common::recording::STOP;
use vhost_cuda_common::timers;
use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
use virtio_cuda_protocol::transport::{MemEntry, REPLY_INVALID, REPLY_NO_RESOURCES};
use zerocopy::FromBytes;

use super::control;
use super::execute::execute;
use super::lane::{self, Lane, LeftLane, Position, Waits};
use super::left::{Left, LeftPlace, copy_of};
use super::parked::{Parked, Waiting};
use super::requests;
use crate::call::ThreadState;
use crate::profile::requests as profile;
pub use crate::run::MAX_THREADS;
use crate::run::new_lane::NewLane;
use crate::run::replies::{Replies, Reply};
use crate::state::SessionState;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, with which a thread begins.
const CAPTURE_GLOBAL: i32 = 0;
/// The pause between two looks at executors that end.
const LOOK: Duration = Duration::from_millis(1);

/// The way in which an executor carries out its frames.
type Work = fn(&'static SessionState, &mut ThreadState, &mut Frame) -> Reply;

/// The executors of a session.
#[derive(Debug)]
pub struct Executors {
    session: &'static SessionState,
    replies: Arc<Replies>,
    threads: HashMap<u32, Executor>,
    control: Option<Executor>,
    /// Exists while a profile is recorded.
    profile: Option<Executor>,
    /// Executors that end after their last request.
    ending: Vec<Weak<Waits>>,
    parked: Parked,
    /// The state of the session while its machine is stopped.
    pub stopped: Option<Stopped>,
}

/// A session whose machine is stopped.
#[derive(Debug)]
pub enum Stopped {
    /// It has stopped here: the state of its threads, and when that was, in nanoseconds of the host's clock.
    Here(Arc<Vec<Left>>, u64),
    /// It has entered, and begins when the machine does.
    Entered(Entered),
}

/// A session that has entered, while its machine is stopped.
#[derive(Debug, Default)]
pub struct Entered {
    /// Its threads.
    pub threads: Vec<(Left, Option<LeftPlace>)>,
    /// The areas of its window, by their addresses, which are not mapped yet.
    pub areas: Vec<(u64, Vec<MemEntry>)>,
    /// The time when it stopped, in milliseconds of the other host's clock.
    pub stopped_at: f64,
}

/// One executor, from outside.
#[derive(Debug)]
pub struct Executor {
    inbox: Sender<Message>,
    waits: Arc<Waits>,
    /// The sign that the guest thread has ended, and the executor waits for another one.
    pub waiting: Waiting,
}

impl Executor {
    /// Returns whether its thread has ended, which has the other reference.
    pub fn is_gone(&self) -> bool {
        Arc::strong_count(&self.waits) == 1
    }
}

/// A message to an executor.
#[derive(Debug)]
pub enum Message {
    /// A frame to execute, and its time of arrival.
    Frame(Frame, Instant),
    /// A request to look at the lane.
    Wake,
    /// A request to hand over the state of the guest thread with this number, and to wait until the departure of this number is over.
    Leave(u32, u64, Sender<Left>),
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
        Self {
            session,
            replies,
            threads: HashMap::new(),
            control: None,
            profile: None,
            ending: Vec::new(),
            parked: Parked::default(),
            stopped: None,
        }
    }

    /// Has all executors stop between two calls, at `until` at the latest, and returns the state of each guest thread. They wait until
    /// [`Gate::stay`]; calls that wait at the gate turn back.
    ///
    /// Errors: the reason; the caller lets the session stay.
    ///
    /// [`Gate::stay`]: crate::run::gate::Gate::stay
    pub fn leave(&mut self, until: Instant) -> Result<Vec<Left>, &'static str> {
        if self.profile.is_some() || self.session.profile.is_on() {
            return Err("it is being profiled");
        }
        let departure = self.session.gate.departure().ok_or("it does not leave")?;
        let (sender, parked) = channel();
        let told = |executor: &Executor, number, sender: &Sender<Left>| {
            executor.inbox.send(Message::Leave(number, departure, sender.clone())).is_ok()
        };
        let threads = self.threads.iter().filter(|(number, executor)| told(executor, **number, &sender));
        let count = threads.count();
        // It has no state of its own, and is done with its requests when it answers.
        let (control_sender, control) = channel();
        let has_control = self.control.as_ref().is_some_and(|executor| told(executor, 0, &control_sender));
        let receive = |from: &Receiver<Left>| {
            let patience = until.saturating_duration_since(Instant::now());
            from.recv_timeout(patience).map_err(|_| "a call of the program does not end")
        };
        let left = (0..count).map(|_| receive(&parked)).collect::<Result<Vec<_>, _>>()?;
        if has_control {
            receive(&control)?;
        }
        while self.any_ends() {
            if Instant::now() >= until {
                return Err("a request of the program does not end");
            }
            thread::sleep(LOOK);
        }
        Ok(left)
    }

    /// Returns whether a last request, of a guest thread or of an executor, is being executed.
    pub fn any_ends(&self) -> bool {
        self.parked.any_works() || self.ending.iter().any(|waits| waits.strong_count() > 0)
    }

    /// Goes on with the guest threads of another worker, and with the requests that it has not answered.
    pub fn resume(&mut self, threads: Vec<(Left, Option<LeftPlace>)>) {
        let mut frames = Vec::new();
        for (mut left, place) in threads {
            frames.append(&mut left.frames);
            let number = left.number;
            if let Err(status) = self.start_again(left, place) {
                // As for a guest that starts too many: its thread has none of its state.
                debug!("no thread for guest-{number}: {status}");
                crate::end_process("a thread of the session cannot go on");
            }
        }
        frames.into_iter().for_each(|frame| self.submit(frame));
    }

    /// Ends all executors, and waits for that.
    #[cfg(any(test, fuzzing))]
    pub fn end(mut self) {
        for executor in self.threads.into_values().chain(self.control).chain(self.parked.into_all()) {
            self.ending.push(Arc::downgrade(&executor.waits));
        }
        while self.ending.iter().any(|waits| waits.strong_count() > 0) {
            thread::sleep(LOOK);
        }
    }

    fn start_again(&mut self, left: Left, place: Option<LeftPlace>) -> Result<(), u32> {
        let number = left.number;
        let lane = place.map(|place| place.take_up().ok_or(REPLY_INVALID)).transpose()?;
        if let (Some(lane), Some(number), Some(limit)) = (&lane, left.lane_number, &self.session.time_limit) {
            limit.add_lane(number, lane.memory.clone());
        }
        let waits = Arc::<Waits>::default();
        let at = left.lane.as_ref().map_or_else(Position::default, LeftLane::position);
        waits.progress(at, &self.replies);
        for waiting in &left.waits {
            if !waits.add(waiting.request, waiting.position, &self.replies) {
                self.replies.send(waiting.request, &(REPLY_NO_RESOURCES, Vec::new()));
            }
        }
        let executor = self.start_with(&format!("guest-{number}"), execute, waits, Some((left, lane)))?;
        self.threads.insert(number, executor);
        Ok(())
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
            self.note_ending(&waits);
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
            let parked = self.parked.take();
            let thread = parked.map_or_else(|| self.start(&format!("guest-{number}"), execute), Ok)?;
            self.threads.insert(number, thread);
        }
        let result = send(self.threads.get(&number), Message::Frame(frame, Instant::now()));
        // Its guest thread ends after this call.
        if header.opcode == Opcode::session_thread_exit as u32
            && let Some(executor) = self.threads.remove(&number)
            && let Some(one_too_many) = self.parked.add(executor)
        {
            self.note_ending(&one_too_many);
        }
        result
    }

    fn note_ending(&mut self, executor: &Executor) {
        self.ending.retain(|waits| waits.strong_count() > 0);
        self.ending.push(Arc::downgrade(&executor.waits));
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

    fn start(&self, name: &str, work: Work) -> Result<Executor, u32> {
        self.start_with(name, work, Arc::default(), None)
    }

    /// As [`Self::start`], for a guest thread that was in another worker.
    fn start_with(
        &self,
        name: &str,
        work: Work,
        waits: Arc<Waits>,
        left: Option<(Left, Option<NewLane>)>,
    ) -> Result<Executor, u32> {
        let (sender, inbox) = channel();
        let (session, replies) = (self.session, self.replies.clone());
        let (theirs, waiting) = (waits.clone(), Waiting::default());
        let waits_for = waiting.clone();
        let run = move || {
            let channels = Channels { inbox: &inbox, waits: &theirs, replies: &replies };
            run(session, channels, work, left, &waits_for);
        };
        match thread::Builder::new().name(name.into()).spawn(run) {
            Ok(_) => Ok(Executor { inbox: sender, waits, waiting }),
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

/// Executes requests until there will be no more, of one guest thread after the other.
fn run(
    session: &'static SessionState,
    channels: Channels<'_>,
    work: Work,
    mut left: Option<(Left, Option<NewLane>)>,
    waiting: &Waiting,
) {
    if !session.emulated {
        // For its naps; a worker with the emulator is not allowed to set it.
        timers::exact();
    }
    loop {
        let mut thread = ThreadState::default();
        thread.held.set_plain(!session.fast);
        thread.signal = session.spare_signals.take();
        let lane = left.take().and_then(|(left, lane)| left.restore(&session.gpu, &mut thread, lane));
        let has_ended = serve(session, &mut thread, channels, work, lane);
        session.spare_signals.keep(std::mem::take(&mut thread.signal));
        thread.slot.take().into_iter().for_each(|slot| session.gate.give_slot(slot));
        thread.prepared.clear(&session.gpu);
        // A capture in the thread's own stream ends with it, and another guest thread must not get an answer for this one.
        if !has_ended || session.graphs.is_capturing() || !channels.waits.all().is_empty() {
            return;
        }
        if session.gpu.exchange_capture_mode(CAPTURE_GLOBAL).is_err() {
            return;
        }
        channels.waits.progress(Position::default(), channels.replies);
        waiting.begin();
    }
}

/// Returns whether the guest thread has ended; otherwise there will be no more requests.
fn serve(
    session: &'static SessionState,
    thread: &mut ThreadState,
    channels: Channels<'_>,
    work: Work,
    mut lane: Option<Lane>,
) -> bool {
    // Requests that came while the session was about to leave.
    let mut held_back = VecDeque::new();
    loop {
        let first = if session.gate.has_left() { None } else { held_back.pop_front() };
        let message = match (first, &mut lane) {
            (Some((frame, came)), _) => Some(Message::Frame(frame, came)),
            (None, None) => channels.inbox.recv().ok(),
            (None, Some(lane)) => Lane::serve(lane, session, thread, channels),
        };
        match message {
            None if held_back.is_empty() => return false,
            // Tests end sessions that have left.
            None if cfg!(any(test, fuzzing)) && session.gate.has_left() => return false,
            None => session.gate.departure().into_iter().for_each(|now| session.gate.wait_to_stay(now)),
            Some(Message::Wake) => {}
            Some(Message::Leave(number, departure, parked)) => {
                if session.gate.departure() == Some(departure) {
                    let frames = held_back.iter().map(|(frame, _)| copy_of(frame)).collect();
                    let waits = channels.waits.all();
                    // Nobody takes it if another executor has taken too long.
                    let _ = parked.send(Left::new(number, thread, lane.as_ref(), waits, frames));
                    session.gate.wait_to_stay(departure);
                }
            }
            Some(Message::Frame(frame, came)) if session.gate.has_left() && frame.header.kind == TO_CALL => {
                held_back.push_back((frame, came));
            }
            Some(Message::Frame(mut frame, came)) => {
                let waited = came.elapsed();
                thread.counter.count_queued(waited);
                (thread.path, thread.waited) = (0, waited.as_nanos() as u64);
                let ends = lane::is_call(&frame.payload, Opcode::session_thread_exit);
                let reply = work(session, thread, &mut frame);
                if std::mem::take(&mut thread.left) {
                    held_back.push_front((frame, came));
                    continue;
                }
                if let Some(new) = thread.new_lane.take() {
                    channels.waits.progress(Position::default(), channels.replies);
                    lane = Some(Lane::new(new));
                }
                if thread.ended {
                    lane = None;
                    thread.lane = None;
                }
                channels.replies.send(frame.header.id, &reply);
                if ends && frame.header.kind == TO_CALL {
                    return true;
                }
            }
        }
    }
}
