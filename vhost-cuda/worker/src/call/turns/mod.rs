// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate that work for a GPU passes, where virtual machines share GPU time (`shares`).
//!
//! While no other machine competes, a call costs one look at the page. While machines compete, events before and after the work
//! show its time and its end. They are in the stream of the work, so that streams wait for nothing else. A call waits until it is
//! the machine's turn, and while the stream has as much work as fits into the turn. Streams that capture are left alone:
//! capturing is not work.

mod flights;

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use log::warn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use vhost_cuda_common::gates::{ANNOUNCE, GO, HOLD, MAX_GPUS, OPEN, Page, Slot, now};
use vhost_cuda_common::recording::TURN;
use vhost_cuda_common::statistics::{Gate, count_gate};
use vhost_cuda_common::timers;

use self::flights::{Flight, Flights, MAX_FLIGHTS};
use crate::call::CallContext;
use crate::call::resolve::Resolve;
use crate::gpu::{CUstream, CuResult, Driver, with_capture_relaxed};
use crate::run::marks::{Events, Mark, Marks, Place, Stream, key, may_look_while_others_capture};
use crate::state::SessionState;

/// The maximum wait at a gate before the next look at it.
const PATIENCE: Duration = Duration::from_millis(50);
/// Time between two looks at the work in flight. The emulator's kernels take longer, and its machines have few CPUs.
const LOOK: Duration = Duration::from_micros(10);
const LOOK_EMULATED: Duration = Duration::from_micros(500);

/// The gates of a worker.
#[derive(Debug)]
pub struct Turns {
    page: Page,
    bell: File,
    marks: Marks,
    state: Mutex<State>,
    /// Notified when work has completed, or there is work to watch.
    changed: Condvar,
    watched: AtomicBool,
}

#[derive(Debug)]
struct State {
    gpus: [Flights; MAX_GPUS],
}

/// A piece of work that may start. The caller must then call [`Turn::started`].
#[derive(Debug)]
pub struct Turn {
    turns: &'static Turns,
    gpu: usize,
    /// The stream; `None` if it is found out later.
    stream: Option<CUstream>,
    events: Arc<Events>,
    start: Option<Arc<Mark>>,
    since: u64,
}

impl Turn {
    /// Notes that the work has started, or failed.
    pub fn started(self, cx: &CallContext<'_>) {
        let Self { turns, gpu, stream, events, start, since } = self;
        let Some(stream) = stream.or_else(|| cx.thread.library_stream.take()) else { return };
        if cx.note_capture(stream) {
            return;
        }
        let flight = |end| Flight { start, end: Arc::new(end), since, is_fence: false };
        if let Some(end) = events.record(cx.gpu(), stream) {
            turns.add(gpu, key(stream), flight(end));
        }
    }
}

impl Turns {
    /// Makes the gates on the page in `page`, with the bell in `bell`.
    ///
    /// Errors: it is not such a page.
    pub fn new([page, bell]: [i32; 2]) -> std::io::Result<Self> {
        // SAFETY: the daemon made both files for this process alone. The page's is closed here; the mapping stays.
        let [page, bell] = [page, bell].map(|fd| unsafe { File::from_raw_fd(fd) });
        let state = State { gpus: Default::default() };
        Ok(Self {
            page: Page::map(&page)?,
            bell,
            marks: Marks::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
            watched: AtomicBool::new(false),
        })
    }

    /// Publishes the GPUs of this process.
    ///
    /// Errors: the driver's.
    pub fn name_gpus(&self, gpu: &Driver, count: u32) -> CuResult<()> {
        for (ordinal, slot) in (0..count).zip(self.page.slots()) {
            let (device,) = gpu.cuDeviceGet(ordinal as i32)?;
            let (uuid,) = gpu.cuDeviceGetUuid_v2(device)?;
            slot.set_uuid(uuid.bytes.map(|byte| byte.cast_unsigned()));
        }
        Ok(())
    }

    /// Waits until work may start. `None`: the work need not be watched.
    ///
    /// Must be called before the call locks anything.
    pub fn enter(&'static self, cx: &CallContext<'_>, place: Place) -> Option<Turn> {
        if self.page.is_open() {
            return None;
        }
        self.enter_slowly(cx, place)
    }

    #[cold]
    fn enter_slowly(&'static self, cx: &CallContext<'_>, place: Place) -> Option<Turn> {
        let device = cx.owner().ok()?.device;
        let gpu = usize::try_from(device).ok().filter(|&index| index < MAX_GPUS)?;
        let slot = &self.page.slots()[gpu];
        let gate = slot.gate.load(Ordering::Acquire);
        if gate == OPEN || gate == ANNOUNCE {
            self.announce(slot);
            return None;
        }
        cx.thread.library_stream.take();
        let events = self.marks.of(&cx.home_of()?.object);
        self.watch(cx.session);
        let Place::Stream(stream) = place else {
            self.wait_recorded(cx, slot, gpu, None);
            return Some(Turn { turns: self, gpu, stream: None, events, start: None, since: now() });
        };
        let stream: CUstream = stream.resolve(cx).ok()?;
        if cx.note_capture(stream) {
            return None;
        }
        let epoch = slot.epoch.load(Ordering::Relaxed);
        if self.lock().gpus[gpu].is_new(key(stream), epoch)
            && let Some(end) = events.record(cx.gpu(), stream)
        {
            // Work that was started before machines competed.
            let flight = Flight { start: None, end: Arc::new(end), since: now(), is_fence: true };
            self.add(gpu, key(stream), flight);
        }
        self.wait_recorded(cx, slot, gpu, Some(key(stream)));
        let is_idle = with_capture_relaxed(cx.gpu(), || self.lock().gpus[gpu].is_idle(cx.gpu(), key(stream)));
        let start = is_idle.then(|| events.record(cx.gpu(), stream)).flatten().map(Arc::new);
        Some(Turn { turns: self, gpu, stream: Some(stream), events, start, since: now() })
    }

    fn add(&self, gpu: usize, stream: Stream, flight: Flight) {
        let mut state = self.lock();
        state.gpus[gpu].add(stream, flight);
        self.publish(&state, gpu);
        drop(state);
        self.changed.notify_all();
    }

    fn announce(&self, slot: &Slot) {
        if slot.gate.compare_exchange(ANNOUNCE, OPEN, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            slot.announced.store(1, Ordering::Relaxed);
            self.page.note();
            self.ring();
        }
    }

    fn wait_recorded(&self, cx: &CallContext<'_>, slot: &Slot, gpu: usize, stream: Option<Stream>) {
        let begun = cx.session.profile.begin();
        self.wait(slot, gpu, stream);
        if let Some(begun) = begun {
            cx.session.profile.add_wait(cx.thread.number, TURN, begun);
        }
    }

    /// Waits for the machine's turn, and for room in it.
    fn wait(&self, slot: &Slot, gpu: usize, stream: Option<Stream>) {
        let mut since = None;
        loop {
            match slot.gate.load(Ordering::Acquire) {
                HOLD => {
                    since.get_or_insert_with(now);
                    if slot.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
                        self.ring();
                    }
                    while slot.gate.load(Ordering::Acquire) == HOLD {
                        slot.wait(PATIENCE);
                    }
                    slot.waiting.fetch_sub(1, Ordering::AcqRel);
                }
                GO => {
                    let mut state = self.lock();
                    let left = slot.until.load(Ordering::Relaxed).saturating_sub(now());
                    let flights = &state.gpus[gpu];
                    let in_flight = stream.map_or(flights.count(), |stream| flights.of(stream));
                    if fits(in_flight as u64, slot.typical.load(Ordering::Relaxed), left) {
                        break;
                    }
                    since.get_or_insert_with(now);
                    self.changed.wait_for(&mut state, PATIENCE / 50);
                }
                _ => break,
            }
        }
        if let Some(since) = since {
            count_gate(Gate::Turn, now().saturating_sub(since));
        }
    }

    /// Starts the thread that sees work complete, once.
    fn watch(&'static self, session: &'static SessionState) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let run = move || self.look_around(&session.gpu, session.emulated);
        if let Err(error) = thread::Builder::new().name("turns".into()).spawn(run) {
            warn!("no thread to see work complete: {error}");
            self.watched.store(false, Ordering::Relaxed);
        }
    }

    fn look_around(&self, gpu: &Driver, emulated: bool) -> ! {
        may_look_while_others_capture(gpu);
        if !emulated {
            timers::exact();
        }
        let pause = if emulated { LOOK_EMULATED } else { LOOK };
        let mut typical = [0; MAX_GPUS];
        loop {
            let mut state = self.lock();
            while state.gpus.iter().all(|flights| flights.count() == 0) {
                self.changed.wait(&mut state);
            }
            let mut any = false;
            for (index, typical) in typical.iter_mut().enumerate() {
                let before = state.gpus[index].count();
                if before == 0 {
                    continue;
                }
                let landed = state.gpus[index].land(gpu, now());
                any |= state.gpus[index].count() < before;
                let slot = &self.page.slots()[index];
                if let Some(each) = landed.time.checked_div(landed.count) {
                    *typical = if *typical == 0 { each } else { (3 * *typical + each) / 4 };
                    slot.typical.store((*typical).max(1), Ordering::Relaxed);
                    add(&slot.reported, landed.time);
                    add(&slot.pieces, landed.count);
                }
                self.publish(&state, index);
                if any && state.gpus[index].count() == 0 && slot.gate.load(Ordering::Relaxed) == HOLD {
                    self.ring();
                }
            }
            drop(state);
            if any {
                self.changed.notify_all();
            }
            thread::sleep(pause);
        }
    }

    fn publish(&self, state: &State, gpu: usize) {
        let (slot, flights) = (&self.page.slots()[gpu], &state.gpus[gpu]);
        slot.oldest.store(flights.oldest(), Ordering::Relaxed);
        slot.in_flight.store(flights.count() as u32, Ordering::Release);
    }

    fn ring(&self) {
        // It is full only if the daemon has not listened for very long.
        let _ = (&self.bell).write(&1_u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns whether another piece of work may start in a stream with `in_flight` of them, each of about `typical` nanoseconds.
fn fits(in_flight: u64, typical: u64, left: u64) -> bool {
    match in_flight {
        0 => true,
        _ if typical == 0 || in_flight >= MAX_FLIGHTS as u64 => false,
        _ => (in_flight + 1).saturating_mul(typical) <= left.saturating_add(typical / 2),
    }
}

/// Adds to a counter that only the calling thread writes.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_holds_as_much_as_fits() {
        assert!(fits(0, 0, 0) && fits(0, 9, 0));
        assert!(!fits(1, 0, 1000), "of the first piece nobody knows how long it takes");
        assert!(fits(1, 100, 200) && fits(7, 100, 800) && !fits(8, 100, 800));
        assert!(!fits(MAX_FLIGHTS as u64, 1, 1_000_000));
    }
}
