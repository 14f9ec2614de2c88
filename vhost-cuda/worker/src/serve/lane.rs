// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The executor's end of a lane: records are executed as they come; when none comes for a while it sleeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vhost_cuda_common::gates::now;
use vhost_cuda_common::link::{Frame, ToWorker};
use vhost_cuda_common::recording::LANE;
use virtio_cuda_protocol::cuda::{
    CALL_INTERNAL, CallHeader, Opcode, RESULT_EARLIER, ResultHeader, breaks_context,
};
use virtio_cuda_protocol::transport::REPLY_OK;
use virtio_cuda_ring::{Consumer, Kind, MAX_REPLY_BYTES, Record};
use zerocopy::{FromBytes, IntoBytes};

use super::execute::{execute, execute_posted};
use super::executor::{Channels, Message};
use crate::call::ThreadState;
use crate::gpu::CudaError;
use crate::run::cores::{self, Awake, Watching};
use crate::run::new_lane::NewLane;
use crate::run::order::Place;
use crate::run::replies::Replies;
use crate::run::sampler::Sampler;
use crate::state::SessionState;

/// The time that an executor watches its lane, where there are cores to spare and where not: about as long as it takes
/// to wake it up.
const WATCH: Duration = Duration::from_micros(500);
const WATCH_FEW_CORES: Duration = Duration::from_micros(20);
/// After a long copy the guest, too, may take longer for its next call: the share of the copy's time to watch, and the
/// maximum.
const COPY_SHARE: u32 = 4;
const MAX_WATCH: Duration = Duration::from_millis(2);
/// Then it naps, each time for a share of the time that has passed, before it sleeps until it is woken up. A wake-up goes
/// through the request queue, the daemon and the worker's main thread, which all sleep then, too. The first call after a pause
/// waits for at most one nap: 1/64 of the pause, within the two limits below. The lower limit leaves the processor to other
/// threads.
const NAPS: Duration = Duration::from_millis(100);
const NAP_SHARE: u32 = 64;
const MIN_NAP: Duration = Duration::from_micros(8);
const MIN_NAP_FEW_CORES: Duration = Duration::from_micros(50);
const MAX_NAP: Duration = Duration::from_micros(200);
/// Looks at the lane between two at the clock and at the messages.
const LOOKS: u32 = 16;
/// The maximum number of requests that wait for one lane. The guest library has one at a time.
const MAX_WAITING: usize = 4;

/// A lane of the session.
#[derive(Debug)]
pub struct Lane {
    consumer: Consumer,
    contents: Vec<u8>,
    /// Number of the record that was answered last.
    replied: u64,
    watch: Duration,
    shortest_nap: Duration,
    place: Place,
    tag: u64,
    /// While calls are recorded: positions in the lane, and the times at which they were first seen, in nanoseconds of
    /// [`now`]. The space of the lane bounds their number.
    seen: VecDeque<(u64, u64)>,
    sampler: Sampler,
    /// True while the lane says that an error has not been reported.
    says_deferred: bool,
}

impl Lane {
    /// Takes the lane that was just assigned to a thread.
    pub fn new(new: NewLane) -> Self {
        let (watch, shortest_nap) = match cores::are_few() {
            true => (WATCH_FEW_CORES, MIN_NAP_FEW_CORES),
            false => (WATCH, MIN_NAP),
        };
        let NewLane { consumer, place, tag, .. } = new;
        Self {
            consumer,
            contents: Vec::new(),
            replied: 0,
            watch,
            shortest_nap,
            place,
            tag,
            seen: VecDeque::new(),
            sampler: Sampler::default(),
            says_deferred: false,
        }
    }

    /// Takes up a lane of another worker where its executor was.
    pub fn resume(new: NewLane, at: &LeftLane) -> Self {
        Self { replied: at.replied, says_deferred: at.says_deferred, ..Self::new(new) }
    }

    /// Returns where another worker takes this lane up.
    pub fn left(&self) -> LeftLane {
        LeftLane {
            tag: self.tag,
            consumed: self.consumer.consumed(),
            replied: self.replied,
            says_deferred: self.says_deferred,
        }
    }

    /// Executes records until there is a message for the executor. Returns `None` if there will be no more.
    pub fn serve(
        &mut self,
        session: &'static SessionState,
        thread: &mut ThreadState,
        Channels { inbox, waits, replies }: Channels<'_>,
    ) -> Option<Message> {
        // The clock is only looked at while there is nothing to do.
        let mut nap_at = None;
        let mut watching = None;
        let mut awake = None;
        loop {
            if session.gate.has_left() {
                return inbox.recv().ok();
            }
            match self.consumer.next(&mut self.contents) {
                // The guest causes this, and may repeat it.
                Err(corrupt) => crate::end_process_of_guest(&corrupt.to_string()),
                Ok(Some(record)) => {
                    // Who waits for a function of the program leaves the driver to others.
                    if awake.is_none() && !is_call(&self.contents, Opcode::session_next_callback) {
                        awake = Some(Awake::begin());
                    }
                    thread.at_once = nap_at.is_none();
                    thread.path = LANE;
                    let consumer = &self.consumer;
                    if let Some(waited) = self.sampler.take(consumer.taken(), || consumer.published()) {
                        thread.counter.count_in_lane(waited);
                    }
                    if session.profile.is_on() {
                        thread.waited = self.waited();
                    }
                    if !self.execute(session, thread, record) {
                        continue;
                    }
                    self.place.set(self.consumer.consumed());
                    // Has the fence that the place needs as well.
                    let (replied, consumed) = (self.replied, self.consumer.consumed());
                    waits.progress(Position { replied, consumed }, replies);
                    self.place.wake();
                    (nap_at, watching) = (None, None);
                    continue;
                }
                Ok(None) => {}
            }
            match inbox.try_recv() {
                Ok(message) => return Some(message),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            // A look at the clock costs more than one at the lane, which has work soon.
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                self.consumer.has_more()
            }) {
                continue;
            }
            let now = Instant::now();
            let (begun, until) = *nap_at.get_or_insert_with(|| {
                let copied = std::mem::take(&mut thread.copied) / COPY_SHARE;
                (now, now + self.watch.max(copied.min(MAX_WATCH)))
            });
            // All threads may watch for a moment.
            if now < until.min(begun + WATCH_FEW_CORES) {
                continue;
            }
            if now < until && watching.is_none() {
                watching = Watching::begin();
            }
            if now < until && watching.is_some() {
                continue;
            }
            (watching, awake) = (None, None);
            if !session.profile.is_on() {
                self.seen = VecDeque::new();
            }
            match self.nap(inbox) {
                Err(RecvTimeoutError::Timeout) if self.consumer.has_more() => continue,
                Err(RecvTimeoutError::Timeout) => {}
                message => return message.ok(),
            }
            if self.consumer.sleep() {
                let message = inbox.recv().ok();
                self.consumer.wake();
                return message;
            }
        }
    }

    /// Looks from time to time, until there is a record or a message, or the time for naps is over.
    fn nap(&self, inbox: &Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        let begun = Instant::now();
        loop {
            let passed = begun.elapsed();
            let nap = ((self.watch + passed) / NAP_SHARE).clamp(self.shortest_nap, MAX_NAP);
            match inbox.recv_timeout(nap) {
                Err(RecvTimeoutError::Timeout) if passed < NAPS && !self.consumer.has_more() => {}
                outcome => return outcome,
            }
        }
    }

    /// Returns the time for which the record that was just taken out is known to have waited: since the executor, between two
    /// records, first saw it in the lane.
    #[cold]
    fn waited(&mut self) -> u64 {
        let now = now();
        let end = self.consumer.taken();
        // What a recording before this one has left is older than any record.
        while self.seen.pop_front_if(|(position, _)| *position < end).is_some() {}
        let waited = self.seen.front().map_or(0, |(_, since)| now.saturating_sub(*since));
        let published = self.consumer.published();
        if self.seen.back().is_none_or(|(position, _)| published > *position) {
            self.seen.push_back((published, now));
        }
        waited
    }

    /// Returns false if the call has turned back ([`ThreadState::left`]). Its record is in the lane still.
    fn execute(&mut self, session: &'static SessionState, thread: &mut ThreadState, record: Record) -> bool {
        let header = ToWorker { reply_room: MAX_REPLY_BYTES as u32, ..ToWorker::default() };
        let mut frame = Frame::of_payload(header, std::mem::take(&mut self.contents));
        let internal = is_internal(&frame.payload);
        if record.kind == Kind::Post {
            match execute_posted(session, thread, &mut frame) {
                _ if thread.left => return self.put_back(thread, frame),
                Err(error) if internal => log::debug!("An internal call, for which nobody waits: {error}"),
                Err(error) => self.defer(thread, error),
                Ok(()) => {}
            }
            self.consumer.release();
        } else {
            let reply = match if internal { None } else { self.take_deferred(thread) } {
                Some(error) => failure(error, RESULT_EARLIER),
                None => match execute(session, thread, &mut frame) {
                    _ if thread.left => return self.put_back(thread, frame),
                    (REPLY_OK, reply) => reply,
                    _ => failure(CudaError::INVALID_VALUE, 0),
                },
            };
            self.consumer.reply(record.number, &reply);
            self.replied = record.number;
            self.consumer.release();
        }
        self.contents = frame.payload;
        true
    }

    fn put_back(&mut self, thread: &mut ThreadState, frame: Frame) -> bool {
        thread.left = false;
        self.consumer.put_back();
        self.contents = frame.payload;
        false
    }

    /// Keeps the error of a posted call of the program for its next call that waits. If the context is lost, that call is
    /// executed: the driver returns the error again, as long as the context exists.
    fn defer(&mut self, thread: &mut ThreadState, error: CudaError) {
        if !breaks_context(error.0) {
            thread.deferred.get_or_insert(error);
        }
        self.say_deferred(true);
    }

    fn take_deferred(&mut self, thread: &mut ThreadState) -> Option<CudaError> {
        self.say_deferred(false);
        thread.deferred.take()
    }

    fn say_deferred(&mut self, there: bool) {
        if self.says_deferred != there {
            self.says_deferred = there;
            self.consumer.set_deferred_error(there);
        }
    }
}

fn failure(error: CudaError, flags: u32) -> Vec<u8> {
    ResultHeader { result: error.0, flags, ..ResultHeader::default() }.as_bytes().to_vec()
}

/// Returns whether the guest library makes the call for itself, and not an entry point for the program.
fn is_internal(payload: &[u8]) -> bool {
    CallHeader::read_from_prefix(payload).is_ok_and(|(header, _)| header.flags & CALL_INTERNAL != 0)
}

/// Returns whether this is the call with number `opcode`.
pub fn is_call(payload: &[u8], opcode: Opcode) -> bool {
    CallHeader::read_from_prefix(payload).is_ok_and(|(header, _)| header.opcode == opcode as u32)
}

/// The state of a lane that an executor has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftLane {
    /// The tag of its area.
    pub tag: u64,
    /// Bytes that were consumed.
    pub consumed: u64,
    /// The number of the record that was answered last.
    pub replied: u64,
    /// True if the lane says that an error has not been reported.
    pub says_deferred: bool,
}

impl LeftLane {
    /// Returns the position to which requests may wait.
    pub fn position(&self) -> Position {
        Position { replied: self.replied, consumed: self.consumed }
    }
}

/// A position in a lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The number of the record that was answered last.
    pub replied: u64,
    /// Bytes that were consumed.
    pub consumed: u64,
}

/// Requests that wait for a lane's progress, shared by its executor and the thread that takes requests.
#[derive(Debug, Default)]
pub struct Waits {
    replied: AtomicU64,
    consumed: AtomicU64,
    any: AtomicBool,
    waiting: Mutex<Vec<Waiting>>,
}

/// A request that waits for a position.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The request's id.
    pub request: u64,
    /// The position.
    pub position: Position,
}

impl Waits {
    /// Answers `request` once the lane has reached this position. Returns false if too many wait already.
    pub fn add(&self, request: u64, position: Position, replies: &Replies) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MAX_WAITING {
            return false;
        }
        waiting.push(Waiting { request, position });
        // The executor makes progress and then looks for waiters, this side the other way round.
        self.any.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.answer(&mut waiting, replies);
        true
    }

    /// Returns the requests that wait.
    pub fn all(&self) -> Vec<Waiting> {
        self.waiting.lock().clone()
    }

    /// Notes the lane's progress.
    pub fn progress(&self, Position { replied, consumed }: Position, replies: &Replies) {
        self.replied.store(replied, Ordering::Relaxed);
        self.consumed.store(consumed, Ordering::Relaxed);
        // See `add`.
        fence(Ordering::SeqCst);
        if self.any.load(Ordering::Relaxed) {
            self.answer(&mut self.waiting.lock(), replies);
        }
    }

    fn answer(&self, waiting: &mut Vec<Waiting>, replies: &Replies) {
        let (replied, consumed) =
            (self.replied.load(Ordering::Relaxed), self.consumed.load(Ordering::Relaxed));
        waiting.retain(|one| {
            let there = replied >= one.position.replied && consumed >= one.position.consumed;
            if there {
                replies.send(one.request, &(REPLY_OK, ResultHeader::default().as_bytes().to_vec()));
            }
            !there
        });
        self.any.store(!waiting.is_empty(), Ordering::Relaxed);
    }
}
