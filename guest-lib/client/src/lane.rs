// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Lanes: how most calls of a thread reach the worker without a system call (crate `virtio-cuda-ring`).
//!
//! Every thread that calls gets a lane of its own, as long as there are any; the others, and calls with pages,
//! go through the request queue. Records of all lanes are numbered in one order, which the worker keeps: see
//! `vhost-cuda/src/worker/run/order.rs`.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use virtio_cuda_ring::{Kind, LANE_BYTES, LaneMemory, Producer};

use crate::pace::Pace;
use crate::{ClientError, CudaError, Session, calls, thread, waker};

/// 0 sends every call through the request queue.
pub const LANES_VARIABLE: &str = "VIRTIO_CUDA_LANES";
/// Bulk up to this many bytes travels in the record or in the reply.
pub const INLINE_BYTES: usize = 64 << 10;
/// Maximum number of lanes per process.
const MAX_LANES: u32 = 64;
/// Time to poll for a reply or for room before sleeping, with cores to spare and without. With one core the executor
/// cannot run meanwhile, unless it has a core of its own.
const WATCH: Duration = Duration::from_millis(5);
const WATCH_FEW_CORES: Duration = Duration::from_micros(20);
const FEW_CORES: usize = 4;
/// Looks for a reply between two looks at the clock, at first and at most.
const FIRST_LOOKS: u32 = 16;
const MOST_LOOKS: u32 = 256;
/// Pauses of the CPU between two looks for room.
const PAUSES: u32 = 16;
/// Then, with cores to spare or an executor with cores of its own, poll at most this long, with sleeps of
/// 1/`LOOK_SHARE` of the time that has passed. Waking up through the request queue takes long when the cores on the
/// way sleep, too.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_SHARE: u32 = 64;

/// The next record's number.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// All records up to this number have been executed, or are being waited for by their own threads.
static SETTLED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // No destructor: it outlives the thread's other destructors, which may still make calls.
    static CURRENT: Cell<*mut Lane> = const { Cell::new(ptr::null_mut()) };
    static TRIED: Cell<bool> = const { Cell::new(false) };
}

/// The guest's end of a lane.
#[derive(Debug)]
pub struct Lane {
    memory: LaneMemory,
    producer: Producer,
    pace: Pace,
    tag: u64,
}

/// The lanes of a session.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Boxed: a thread holds its lane's address.
    #[allow(clippy::vec_box)]
    idle: Mutex<Vec<Box<Lane>>>,
    made: AtomicU32,
    most: u32,
    off: AtomicBool,
}

impl Lanes {
    /// Lanes, unless the environment says otherwise, for a session that may have `outstanding` requests.
    ///
    /// A thread that waits for its lane has a request outstanding, and it may be another thread's wake-up that it
    /// waits for: each lane needs one that nothing else takes.
    pub fn new(outstanding: u32) -> Self {
        let off = std::env::var_os(LANES_VARIABLE).is_some_and(|value| value == "0");
        let most = if off { 0 } else { MAX_LANES.min(outstanding.saturating_sub(1) / 2) };
        Self { most, ..Self::default() }
    }

    /// Requests that are kept for lanes: one for each, and one for who wakes executors.
    pub fn requests(&self) -> u32 {
        self.most + u32::from(self.most > 0)
    }

    fn take(&self, session: &Session) -> Option<Box<Lane>> {
        if self.off.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Some(idle);
        }
        if self.made.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let permit = session.outstanding();
        let shared = session.transport().share(LANE_BYTES);
        drop(permit);
        match shared {
            Ok((base, tag)) => {
                // SAFETY: the transport has mapped that many bytes at a page's start, for good.
                let memory = unsafe { LaneMemory::new(base) };
                Some(Box::new(Lane {
                    producer: Producer::new(memory.clone()),
                    pace: Pace::default(),
                    memory,
                    tag,
                }))
            }
            Err(error) => {
                log::info!("No lane, calls go through the request queue: {error}");
                self.off.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn give_back(&self, lane: Box<Lane>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }
}

/// The calling thread's lane, if it has one and is not using it just now.
pub(crate) fn take(session: &Session) -> Option<InUse> {
    let mut lane = CURRENT.get();
    if lane.is_null() {
        if TRIED.replace(true) {
            return None;
        }
        let mut new = session.lanes().take(session)?;
        // The worker sets the lane up before it answers.
        if calls::session_lane(&mut session.call().direct(), new.tag).is_err() {
            session.lanes().off.store(true, Ordering::Relaxed);
            session.lanes().give_back(new);
            return None;
        }
        new.producer = Producer::new(new.memory.clone());
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

    /// Sends a record without waiting for it.
    pub fn post(&mut self, session: &Session, payload: &[u8]) -> Result<(), ClientError> {
        self.make_room(session, payload.len())?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if self.producer().push(Kind::Post, number, &[payload]) && !waker::wake(thread::number()) {
            session.wait_for_lane(0, 0)?;
        }
        Ok(())
    }

    /// Sends a record and waits for its reply; answers its length.
    pub fn call(
        &mut self,
        session: &Session,
        payload: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, ClientError> {
        self.make_room(session, payload.len())?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let asleep = self.producer().push(Kind::Wait, number, &[payload]);
        let mut answer = if asleep { None } else { watch(session, || self.producer().reply(number, reply)) };
        if answer.is_none() {
            session.wait_for_lane(number, 0)?;
            answer = self.producer().reply(number, reply);
        }
        SETTLED.fetch_max(number, Ordering::Relaxed);
        answer.ok_or(ClientError::Protocol)
    }

    fn make_room(&mut self, session: &Session, bytes: usize) -> Result<(), ClientError> {
        let Some(needed) = self.producer().must_wait(bytes) else { return Ok(()) };
        let needed = self.producer().worth_waiting_for(needed);
        let consumed = self.producer().consumed();
        if let Some(rest) = self.lane().pace.rest(Instant::now(), consumed, needed.saturating_sub(consumed)) {
            std::thread::sleep(rest);
        }
        // The executor writes to what is looked at for each record: looking less often slows it down less.
        let ask = || {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            self.producer().has_consumed(needed).then_some(())
        };
        if watch(session, ask).is_none() {
            session.wait_for_lane(0, needed)?;
        }
        match self.producer().must_wait(bytes) {
            None => Ok(()),
            Some(_) => Err(ClientError::Protocol),
        }
    }
}

/// Asks again and again, for a while.
fn watch<T>(session: &Session, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    static HOW_LONG: OnceLock<(Duration, Duration)> = OnceLock::new();
    let (how_long, look) = *HOW_LONG.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        patience(cores, session.transport().has_other_processors())
    });
    let start = Instant::now();
    let mut looks = FIRST_LOOKS;
    loop {
        // The clock costs more than a look, and what comes meanwhile is seen late.
        for _ in 0..looks {
            if let Some(answer) = ask() {
                return Some(answer);
            }
            std::hint::spin_loop();
        }
        looks = (2 * looks).min(MOST_LOOKS);
        let passed = start.elapsed();
        if passed >= look {
            return None;
        }
        if passed >= how_long {
            std::thread::sleep(passed / LOOK_SHARE);
        }
    }
}

/// The time to poll without sleeping, and the time until polling ends, for this number of cores. The executor needs one
/// of them, or none (`apart`).
fn patience(cores: usize, apart: bool) -> (Duration, Duration) {
    match cores {
        // Sleeping between two looks leaves the cores to others; the way through the request queue takes several
        // processes, which all sleep while the executor works for long.
        ..FEW_CORES if apart => (WATCH_FEW_CORES, LOOK),
        1 => (Duration::ZERO, Duration::ZERO),
        ..FEW_CORES => (WATCH_FEW_CORES, WATCH_FEW_CORES),
        _ => (WATCH, LOOK),
    }
}

/// Waits until all records that were posted so far are executed: for what goes another way than through lanes.
///
/// Errors: that of an earlier record, if this thread has not got it yet.
pub(crate) fn order(session: &Session) -> Result<(), CudaError> {
    let next = NEXT.load(Ordering::Relaxed);
    if SETTLED.load(Ordering::Relaxed) + 1 >= next {
        return Ok(());
    }
    // In a lane this waits for its own number; else it says what to wait for.
    calls::session_order(&mut session.call().for_order(), next)?;
    SETTLED.fetch_max(next - 1, Ordering::Relaxed);
    Ok(())
}
