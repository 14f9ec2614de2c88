// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--time-limit`: a session ends when a kernel, a graph or a library call runs for too long.
//!
//! An event before and one after each piece of work show when it may begin and when it has ended. Work that waits for other
//! streams or for the work before it does not count as running. A kernel can be ended only with its process: so the worker
//! ends. Before that it writes the result of all later calls to the lanes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::warn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use virtio_cuda_ring::LaneMemory;

use super::CallContext;
use super::resolve::Resolve;
use crate::ending::end_process_of_guest;
use crate::gpu::{CUstream, CudaError, Driver, EVENT_DISABLE_TIMING};
use crate::run::marks::{Events, Mark, Marks, Place, Stream, key, may_look_while_others_capture};

/// The maximum number of pieces of work in flight per stream: about as many as the GPU's own queue takes.
const MAX_AHEAD: usize = 1024;
/// From this number on, a call that adds one first looks at the oldest.
const LAND_FROM: usize = 32;
/// Pause between two looks, for a call that waits until fewer are in flight.
const PAUSE: Duration = Duration::from_micros(100);
/// The number of looks at the running work, in the time of the limit.
const LOOKS: u32 = 20;
const MIN_LOOK: Duration = Duration::from_millis(1);
const MAX_LOOK: Duration = Duration::from_millis(100);

/// The limit, and all work to which it applies.
#[derive(Debug)]
pub struct TimeLimit {
    limit: Duration,
    marks: Marks,
    lanes: Mutex<HashMap<u32, LaneMemory>>,
    streams: Mutex<HashMap<Stream, Queue>>,
    /// Notified when there is work to watch.
    changed: Condvar,
    watched: AtomicBool,
}

/// The work of one stream that has not completed, as far as is known.
type Queue = VecDeque<Piece>;

#[derive(Debug)]
struct Piece {
    start: Option<Mark>,
    end: Mark,
    /// The time since which it runs, or waits for the GPU only.
    since: Option<Instant>,
}

/// A piece of work that is about to start. The caller must then call [`Timed::started`].
#[derive(Debug)]
pub struct Timed {
    limit: &'static TimeLimit,
    events: Arc<Events>,
    /// `None`: the call finds out.
    place: Option<(CUstream, Option<Mark>)>,
}

impl Timed {
    /// Notes that the work has started, or failed.
    pub fn started(self, cx: &CallContext<'_>) {
        let Some((stream, start)) = self.place.or_else(|| cx.thread.library_start.take()) else { return };
        if cx.note_capture(stream) {
            return;
        }
        if let Some(end) = self.events.record(cx.gpu(), stream) {
            self.limit.add(cx.gpu(), key(stream), Piece { start, end, since: None });
        }
    }
}

impl TimeLimit {
    /// Starts without work.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            marks: Marks::new(EVENT_DISABLE_TIMING),
            lanes: Mutex::default(),
            streams: Mutex::default(),
            changed: Condvar::new(),
            watched: AtomicBool::new(false),
        }
    }

    /// Adds lane number `lane` of the session.
    pub fn add_lane(&self, lane: u32, memory: LaneMemory) {
        self.lanes.lock().insert(lane, memory);
    }

    /// Notes that a call is about to start work.
    pub fn begin(&'static self, cx: &CallContext<'_>, place: Place) -> Option<Timed> {
        let events = self.marks.of(&cx.home_of()?.object);
        let place = match place {
            Place::Unknown => {
                cx.thread.library_start.take();
                None
            }
            Place::Stream(stream) => {
                let stream: CUstream = stream.resolve(cx).ok()?;
                if cx.note_capture(stream) {
                    return None;
                }
                Some((stream, events.record(cx.gpu(), stream)))
            }
        };
        self.watch(cx);
        Some(Timed { limit: self, events, place })
    }

    /// Notes that a library call is about to start work in `stream`.
    pub fn begin_library(&self, cx: &CallContext<'_>, stream: CUstream) {
        if let Some(home) = cx.home_of()
            && !cx.note_capture(stream)
        {
            let start = self.marks.of(&home.object).record(cx.gpu(), stream);
            cx.thread.library_start.replace(Some((stream, start)));
        }
    }

    fn add(&self, gpu: &Driver, stream: Stream, piece: Piece) {
        loop {
            let mut streams = self.lock();
            let queue = streams.entry(stream).or_default();
            if queue.len() >= LAND_FROM {
                land(queue, gpu, 2);
            }
            if queue.len() < MAX_AHEAD {
                queue.push_back(piece);
                break;
            }
            drop(streams);
            thread::sleep(PAUSE);
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Stream, Queue>> {
        self.streams.lock()
    }

    /// Starts the thread that looks at the work, once.
    fn watch(&'static self, cx: &CallContext<'_>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let session = cx.session;
        let run = move || self.look_around(&session.gpu);
        if let Err(error) = thread::Builder::new().name("time-limit".into()).spawn(run) {
            warn!("no thread to keep --time-limit: {error}");
            self.watched.store(false, Ordering::Relaxed);
        }
    }

    fn look_around(&self, gpu: &Driver) -> ! {
        may_look_while_others_capture(gpu);
        let pause = (self.limit / LOOKS).clamp(MIN_LOOK, MAX_LOOK);
        loop {
            let mut streams = self.lock();
            while streams.is_empty() {
                self.changed.wait(&mut streams);
            }
            streams.retain(|_, queue| {
                land(queue, gpu, usize::MAX);
                !queue.is_empty()
            });
            let now = Instant::now();
            let fronts = streams.values_mut().filter_map(VecDeque::front_mut);
            if fronts.into_iter().any(|piece| piece.runs_for(gpu, now) > self.limit) {
                self.end();
            }
            drop(streams);
            thread::sleep(pause);
        }
    }

    /// Ends the process, and with it the running work.
    fn end(&self) -> ! {
        for lane in self.lanes.lock().values() {
            lane.set_verdict(CudaError::LAUNCH_TIMEOUT.0.cast_unsigned());
        }
        end_process_of_guest(&format!("work on the GPU took longer than --time-limit {:?}", self.limit))
    }
}

impl Piece {
    fn runs_for(&mut self, gpu: &Driver, now: Instant) -> Duration {
        if self.since.is_none() && self.start.as_ref().is_none_or(|start| start.is_done(gpu)) {
            self.since = Some(now);
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Takes out completed work, at most `most` pieces.
fn land(queue: &mut Queue, gpu: &Driver, most: usize) {
    for _ in 0..most {
        if queue.pop_front_if(|piece| piece.end.is_done(gpu)).is_none() {
            return;
        }
    }
}
