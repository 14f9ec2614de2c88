// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Lanes: most calls of a thread reach the worker through one, without a system call (crate `virtio-cuda-ring`).
//!
//! Every thread that calls gets a lane of its own, as long as there are any; the others, and calls with pages,
//! go through the request queue. A record that has to come after posted records of other lanes ([`crate::touched`])
//! has records before it that wait for those: `session_order`.

use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
use virtio_cuda_ring::layout::record_bytes;
use virtio_cuda_ring::{Kind, MAX_RECORD_BYTES, Position, Producer, Turn, order};

use crate::reply::Answer;
use crate::session::control::{Payload, REPLY_BYTES, no_bulk};
use crate::session::lanes::{Lane, MAX_LANES};
use crate::touched::{ORDER, Touched};
use crate::{Caller, ClientError, Session, caller, changes, process, thread, waker};

/// Bulk up to this many bytes travels in the record or in the reply.
pub const INLINE_BYTES: usize = 64 << 10;
/// Time to poll for a reply or for room before sleeping, with cores to spare and without. With one core the executor
/// cannot run meanwhile, unless it has a core of its own.
const WATCH: Duration = Duration::from_millis(5);
const WATCH_FEW_CORES: Duration = Duration::from_micros(20);
const FEW_CORES: usize = 4;
/// Looks for a reply between two looks at the clock, at first and at most.
const FIRST_LOOKS: u32 = 16;
const MAX_LOOKS: u32 = 256;
/// Pauses of the CPU between two looks for room.
const PAUSES: u32 = 16;
/// Then, with cores to spare or an executor with cores of its own, poll at most this long, with sleeps of
/// 1/`LOOK_SHARE` of the time that has passed. Waking up through the request queue takes long when the cores on the
/// way sleep, too.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_SHARE: u32 = 64;

/// Bytes of the payload of a `session_order` record.
const ORDER_BYTES: usize = size_of::<CallHeader>() + size_of::<u32>() + size_of::<u64>();
/// Bytes of such a record.
const ORDER_RECORD: usize = record_bytes(ORDER_BYTES);
// A record fits into the lane with the maximum number of them before it.
const _: () = assert!(MAX_LANES as usize <= order::MAX_LANES);
const _: () = assert!(ORDER_BYTES + MAX_LANES as usize * ORDER_RECORD < MAX_RECORD_BYTES / 2);

thread_local! {
    // No destructor: it outlives the thread's other destructors, which may still make calls.
    static CURRENT: Cell<*mut Lane> = const { Cell::new(ptr::null_mut()) };
    static TRIED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the calling thread's lane, if it has one and is not using it just now.
pub(crate) fn take(session: &Session) -> Option<InUse> {
    let mut lane = CURRENT.get();
    if lane.is_null() {
        if TRIED.replace(true) {
            return None;
        }
        let mut new = session.take_lane()?;
        // The worker sets the lane up before it answers.
        let begins = ORDER.begins(new.index) + new.producer.produced();
        if session.set_up_lane(&new, begins).is_err() {
            session.lanes().switch_off();
            session.lanes().give_back(new);
            return None;
        }
        new.producer = Producer::new(new.memory.clone());
        ORDER.restart(new.index, begins);
        lane = Box::into_raw(new);
    }
    CURRENT.set(ptr::null_mut());
    Some(InUse(lane))
}

/// Gives the ending thread's lane to others. Its executor must have ended.
pub(crate) fn retire(session: &Session) {
    let lane = CURRENT.replace(ptr::null_mut());
    TRIED.set(true);
    if !lane.is_null() {
        // SAFETY: `take` made the pointer of a box, and this thread alone had it.
        session.lanes().give_back(unsafe { Box::from_raw(lane) });
    }
}

/// A lane while its thread makes a call; a call from within (output, a signal's handler) finds none and goes
/// through the request queue.
#[derive(Debug)]
pub(crate) struct InUse(*mut Lane);

impl Drop for InUse {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

impl InUse {
    fn lane(&mut self) -> &mut Lane {
        // SAFETY: `take` made the pointer of a box, and took it out of the thread's variable: this is the only
        // way to it.
        unsafe { &mut *self.0 }
    }

    fn producer(&mut self) -> &mut Producer {
        &mut self.lane().producer
    }

    /// Returns whether an error of an earlier record has not been reported yet.
    pub fn has_deferred_error(&mut self) -> bool {
        self.producer().has_deferred_error()
    }

    /// Sends a record that uses `touched` without waiting for it.
    pub fn post(&mut self, session: &Session, payload: &[u8], touched: &Touched) -> Result<(), ClientError> {
        let turn = self.begin(session, payload.len(), touched, true)?;
        let asleep = self.push(Kind::Post, &turn, payload);
        let end = ORDER.begins(self.lane().index) + self.producer().produced();
        touched.publish(turn, end);
        if asleep && !waker::wake(thread::number()) {
            session.wait_for_lane(thread::number(), 0, 0)?;
        }
        Ok(())
    }

    /// Begins a record of `bytes` once the lane has room for it and for the records before it that wait for other lanes.
    fn begin(
        &mut self,
        session: &Session,
        bytes: usize,
        touched: &Touched,
        posted: bool,
    ) -> Result<Turn<'static>, ClientError> {
        let mut others = 0;
        loop {
            // Without a turn, for which other threads may have to wait.
            self.make_room(session, bytes + others * ORDER_RECORD)?;
            let turn = touched.begin(&ORDER, Some(self.lane().index), posted);
            if turn.dependencies().len() <= others {
                return Ok(turn);
            }
            others = turn.dependencies().len();
        }
    }

    /// Appends a record, after the records that wait for other lanes. Returns true if the executor sleeps.
    fn push(&mut self, kind: Kind, turn: &Turn<'_>, payload: &[u8]) -> bool {
        let mut asleep = false;
        for &after in turn.dependencies() {
            asleep |= self.push_one(Kind::Post, order_payload(after, Caller::Internal).bytes());
        }
        asleep | self.push_one(kind, payload)
    }

    fn push_one(&mut self, kind: Kind, payload: &[u8]) -> bool {
        let lane = self.lane();
        lane.last += 1;
        lane.producer.push(kind, lane.last, &[payload])
    }

    /// Sends a record that uses `touched` and waits for its reply. Returns the reply's length.
    pub fn call(
        &mut self,
        session: &Session,
        payload: &[u8],
        touched: &Touched,
        reply: &mut [u8],
    ) -> Result<usize, ClientError> {
        let turn = self.begin(session, payload.len(), touched, false)?;
        let asleep = self.push(Kind::Wait, &turn, payload);
        let number = self.lane().last;
        let mut answer = if asleep { None } else { watch(session, || self.producer().reply(number, reply)) };
        if answer.is_none() {
            session.wait_for_lane(thread::number(), number, 0)?;
            answer = self.producer().reply(number, reply);
        }
        answer.ok_or(ClientError::Protocol)
    }

    fn make_room(&mut self, session: &Session, bytes: usize) -> Result<(), ClientError> {
        let Some(needed) = self.producer().must_wait(bytes) else { return Ok(()) };
        let needed = self.producer().worth_waiting_for(needed);
        let consumed = self.producer().consumed();
        if let Some(rest) = self.lane().pace.rest(Instant::now(), consumed, needed.saturating_sub(consumed)) {
            std::thread::sleep(rest);
        }
        // The executor writes to this memory for each record: looking less often slows it down less.
        let ask = || {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            self.producer().has_consumed(needed).then_some(())
        };
        if watch(session, ask).is_none() {
            session.wait_for_lane(thread::number(), 0, needed)?;
        }
        match self.producer().must_wait(bytes) {
            None => Ok(()),
            Some(_) => Err(ClientError::Protocol),
        }
    }
}

/// Polls `ask` for a while.
fn watch<T>(session: &Session, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    static HOW_LONG: OnceLock<(Duration, Duration)> = OnceLock::new();
    let (how_long, look) = *HOW_LONG.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        patience(cores, session.transport().has_other_processors())
    });
    let start = Instant::now();
    let mut looks = FIRST_LOOKS;
    loop {
        // The clock costs more than a look, and delays the sight of a reply.
        for _ in 0..looks {
            if let Some(answer) = ask() {
                return Some(answer);
            }
            std::hint::spin_loop();
        }
        looks = (2 * looks).min(MAX_LOOKS);
        let passed = start.elapsed();
        if passed >= look {
            return None;
        }
        if passed >= how_long {
            std::thread::sleep(passed / LOOK_SHARE);
        }
    }
}

/// Returns the time to poll without sleeping, and the time until polling ends, for this number of cores. The executor needs
/// one of them unless it is `apart`.
fn patience(cores: usize, apart: bool) -> (Duration, Duration) {
    match cores {
        // Sleeping between two looks leaves the cores to others. The request queue involves several processes,
        // which all sleep while the executor works for long.
        ..FEW_CORES if apart => (WATCH_FEW_CORES, LOOK),
        1 => (Duration::ZERO, Duration::ZERO),
        ..FEW_CORES => (WATCH_FEW_CORES, WATCH_FEW_CORES),
        _ => (WATCH, LOOK),
    }
}

/// The payload of a call that waits for another lane.
fn order_payload(after: Position, caller: Caller) -> Payload {
    let arguments: [&[u8]; 2] = [&after.lane.to_le_bytes(), &after.bytes.to_le_bytes()];
    Payload::new(Opcode::session_order, thread::number(), caller, &arguments)
}

/// Returns whether an error of a record of this thread has not been reported yet.
pub(crate) fn has_deferred_error() -> bool {
    // SAFETY: `take` made the pointer of a box, which this thread alone uses; it is not in use just now.
    unsafe { CURRENT.get().as_ref() }.is_some_and(|lane| lane.producer.has_deferred_error())
}

/// Waits until all records that this thread has posted are executed, and the records of other threads that must precede a call
/// that uses `touched`. For calls that do not go through lanes.
///
/// Errors: for the program, that of an earlier record that has not been reported yet.
pub(crate) fn order(session: &Session, touched: Option<&Touched>, caller: Caller) -> Answer<()> {
    let lane = CURRENT.get();
    // SAFETY: `take` made the pointer of a box, which this thread alone uses; it is not in use just now, and not
    // during the calls below.
    let (own, is_quiet) = match unsafe { lane.as_mut() } {
        Some(lane) => (Some(lane.index), lane.producer.is_drained() && !lane.producer.has_deferred_error()),
        None => (None, true),
    };
    let mut after =
        touched.map_or_else(Vec::new, |touched| touched.begin(&ORDER, own, false).dependencies().to_vec());
    if after.is_empty() && !is_quiet {
        // Its lane answers it after all records before.
        after.push(Position { lane: 0, bytes: 0 });
    }
    let mut all = Answer::of(Ok(()));
    for one in after {
        let answer = wait_for(session, one, caller);
        all.flags |= answer.flags;
        if answer.result.is_err() {
            all.result = answer.result;
            break;
        }
    }
    all
}

/// Waits for another lane, behind the records of this thread's lane.
fn wait_for(session: &Session, after: Position, caller: Caller) -> Answer<()> {
    let checked = process::check().and_then(|()| match caller {
        Caller::Program(_) => caller::take_left(),
        Caller::Internal => Ok(()),
    });
    if checked.is_err() {
        return Answer::of(checked);
    }
    changes::count_in_captures(caller);
    let failed = |error| Answer::of(Err(session.failed(Opcode::session_order, error)));
    if let Err(lost) = session.check() {
        return failed(lost);
    }
    let payload = order_payload(after, caller);
    let Some(mut lane) = take(session) else {
        return session.control(Opcode::session_order, &payload, |_| Ok(()));
    };
    let mut reply = [0; REPLY_BYTES];
    let touched = Touched::of(Opcode::session_order, 0, false);
    let answer = lane.call(session, payload.bytes(), &touched, &mut reply).and_then(|bytes| {
        Answer::read(reply.get(..bytes).ok_or(ClientError::Protocol)?, |_| Ok(()), no_bulk)
    });
    answer.unwrap_or_else(failed)
}
