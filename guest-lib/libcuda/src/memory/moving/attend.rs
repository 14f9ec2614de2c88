// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The thread that handles touches of managed memory, and a thread that waits for the GPU on its behalf. A touch of memory
//! that work may use waits until the work has ended, like that of a page that has to be fetched from a slow disk: signals
//! reach the program meanwhile. It does not wait where the work may wait for the program, but gets a copy
//! ([`super::shared`]): while the program runs a function between work, and after [`PATIENCE`].

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError, RwLockWriteGuard, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtio_cuda_client::protocol::{ContextId, StreamId, WINDOW_BYTES};
use virtio_cuda_client::thread::without_signals;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::moving::placed;
use crate::state::in_callback;
use crate::state::memory::window::PAGE_BYTES;
use crate::state::moving::blocks::{BLOCK_BYTES, Owner};
use crate::state::moving::faults::Faults;
use crate::state::moving::pages::Store;
use crate::state::moving::{Attachment, Means, Moving};

/// Maximum wait of a touch. A kernel that runs longer may wait for what the program does after the touch.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which both sides get what the other one has changed in shared blocks, if nothing else does it.
const EXCHANGE: Duration = Duration::from_millis(100);
/// Maximum wait for the GPU's work while other threads may not queue any.
const MAX_GATE: Duration = Duration::from_secs(2);
/// Maximum wait for threads that are queueing work.
const MAX_QUEUEING: Duration = Duration::from_secs(10);
/// Time for which other threads may queue work, after they could not for too long.
const PAUSE: Duration = Duration::from_millis(10);
/// Interval between checks, at first and after a while.
const LOOK: Duration = Duration::from_micros(50);
const LATE_LOOK: Duration = Duration::from_millis(1);

/// Requests to wait for all work, by number, and the completed ones.
#[derive(Debug, Default)]
struct Waits {
    asked: u64,
    met: u64,
    /// The last completed one could not wait for all work, because a stream captures.
    in_vain: bool,
}

static WAITS: Mutex<Waits> = Mutex::new(Waits { asked: 0, met: 0, in_vain: false });
static CHANGED: Condvar = Condvar::new();

/// Starts both threads. `None`: this process cannot detect touches.
pub(super) fn start(driver: &'static Driver) -> Option<Means> {
    let faults = Faults::open().inspect_err(|error| {
        log::info!(
            "Managed memory stays in host memory, because touches of it cannot be told: {error}. Root may, users with \
             access to /dev/userfaultfd, and all users where vm.unprivileged_userfaultfd is 1; Linux 5.14 is needed"
        );
    });
    let faults = faults.ok()?;
    let store = Store::new(WINDOW_BYTES)
        .inspect_err(|error| log::error!("No pages for managed memory: {error}"))
        .ok()?;
    let api = Api::of_library(driver);
    placed::reserve(api)
        .inspect_err(|error| {
            log::info!("Managed memory stays in host memory: no addresses for the GPU ({error})")
        })
        .ok()?;
    let begun = without_signals(|| {
        let waiter =
            std::thread::Builder::new().name("cuda-managed-wait".into()).spawn(move || wait_for_all(api));
        waiter.and_then(|_| {
            std::thread::Builder::new().name("cuda-managed".into()).spawn(move || {
                // Set when `start` has returned.
                if let Some(means) = driver.memory.moving.means.wait() {
                    Attendant::new(api).attend(&means.faults);
                }
            })
        })
    });
    match begun {
        Ok(_) => Some(Means { faults, store }),
        Err(error) => {
            log::error!("No threads for managed memory, which stays in host memory: {error}");
            None
        }
    }
}

/// The time in which other threads may not queue work, for the sake of a touch.
#[derive(Debug)]
struct Gate {
    /// Since then this thread wants the gate, or has it.
    since: Instant,
    /// `None`: threads are queueing work.
    guard: Option<RwLockWriteGuard<'static, ()>>,
    /// The request to wait for all work that was made behind the gate.
    wait: Option<u64>,
}

/// The thread that handles touches.
struct Attendant {
    api: Api,
    /// Addresses whose touches wait, one per block.
    waiting: Vec<u64>,
    /// Since then touches wait, and none has met the end of the work for which it waited.
    since: Option<Instant>,
    gate: Option<Gate>,
    /// Other threads may queue work until then.
    pause: Instant,
    /// The last exchange of shared blocks.
    exchanged: Instant,
}

impl Attendant {
    fn new(api: Api) -> Self {
        let now = Instant::now();
        Self { api, waiting: Vec::new(), since: None, gate: None, pause: now, exchanged: now }
    }

    fn attend(&mut self, faults: &Faults) {
        loop {
            let mut timeout = self.rest();
            loop {
                match faults.next(timeout) {
                    Ok(Some(touched)) => self.add(touched),
                    Ok(None) => break,
                    Err(error) => {
                        log::error!("Managed memory: touches are told no more: {error}");
                        return;
                    }
                }
                timeout = Some(Duration::ZERO);
            }
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting = waiting.into_iter().filter(|touched| !self.serve(faults, *touched)).collect();
            if self.waiting.is_empty() {
                self.open_gate();
            }
            if self.shares() && self.exchanged.elapsed() >= EXCHANGE {
                self.api.end_all_sharing();
                self.exchanged = Instant::now();
            }
        }
    }

    fn add(&mut self, touched: u64) {
        // A thread that handles a signal meanwhile touches the memory again.
        if !self.waiting.iter().any(|other| other / BLOCK_BYTES == touched / BLOCK_BYTES) {
            self.waiting.push(touched);
        }
    }

    /// Waits until waiting touches should be looked at again. Returns the maximum wait for another touch.
    fn rest(&self) -> Option<Duration> {
        if self.waiting.is_empty() {
            return self.shares().then(|| EXCHANGE.saturating_sub(self.exchanged.elapsed()));
        }
        let is_late = self.since.is_some_and(|since| since.elapsed() > 100 * LOOK);
        let look = if is_late { LATE_LOOK } else { LOOK };
        let Some(Gate { wait: Some(wait), .. }) = self.gate else { return Some(look) };
        let waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        drop(CHANGED.wait_timeout_while(waits, look, |waits| waits.met < wait));
        Some(Duration::ZERO)
    }

    /// Returns whether blocks may be shared.
    fn shares(&self) -> bool {
        self.api.driver.memory.moving.any_shared()
    }

    /// Handles a touch. Returns false if it must wait.
    fn serve(&mut self, faults: &Faults, touched: u64) -> bool {
        let api = self.api;
        let Some(moving) = api.driver.memory.moving.at(touched) else {
            // The memory was freed meanwhile.
            let page = touched / PAGE_BYTES * PAGE_BYTES;
            let _ = faults.wake(page..page + PAGE_BYTES);
            return true;
        };
        let offset = touched - moving.address;
        let served = if api.owner_of(&moving, offset) != Owner::Gpu {
            api.bring_touched(&moving, offset)
        } else if in_callback::runs() {
            api.share_touched(&moving, offset, true)
        } else if self.has_ended(&moving) {
            self.since = None;
            api.bring_touched(&moving, offset)
        } else if api.driver.captures.any() {
            // A wait for the work would end the capture.
            api.share_touched(&moving, offset, false)
        } else if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            log::warn!(
                "The program touches managed memory while the GPU's work goes on for more than {PATIENCE:?}: it gets what \
                 the memory holds now. VIRTIO_CUDA_MANAGED=0 keeps managed memory where both see it"
            );
            api.share_touched(&moving, offset, false)
        } else {
            return false;
        };
        if let Err(error) = served {
            log::warn!("Managed memory at {touched:#x} is not as the GPU has it: {error}");
        }
        true
    }

    /// Returns whether the work that uses an allocation has ended, and no thread can queue more of it until the gate opens.
    fn has_ended(&mut self, moving: &Moving) -> bool {
        let attachment = moving.attachment();
        if !self.close_gate() {
            return false;
        }
        if attachment == Attachment::Host || self.api.driver.memory.visible.is_none() {
            return true;
        }
        if self.api.driver.captures.any() {
            return false;
        }
        if let Attachment::Stream { context, stream } = attachment {
            match self.stream_has_ended(ContextId(context), stream) {
                Ok(()) => return true,
                Err(CudaError::NOT_READY) => return false,
                // The program has destroyed it.
                Err(_) => {}
            }
        }
        self.all_has_ended()
    }

    fn stream_has_ended(&self, context: ContextId, stream: StreamId) -> Result<(), CudaError> {
        calls::cuStreamQuery(&mut self.api.call_in(context), stream)
    }

    /// Returns whether all work has ended. Behind a closed gate only.
    fn all_has_ended(&mut self) -> bool {
        let Some(gate) = &mut self.gate else { return false };
        let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        match gate.wait {
            Some(wait) if waits.met < wait => return false,
            Some(_) if !waits.in_vain => return true,
            Some(_) | None => gate.wait = None,
        }
        // An earlier request was made before other threads could queue work again.
        if waits.met == waits.asked {
            // Earlier work has ended: other work is waited for now.
            if self.since.is_some_and(|since| since.elapsed() > PATIENCE) {
                self.since = None;
            }
            waits.asked += 1;
            gate.wait = Some(waits.asked);
            CHANGED.notify_all();
        }
        false
    }

    /// Prevents other threads from queueing work. Returns false if they may at the moment.
    fn close_gate(&mut self) -> bool {
        let movings = &self.api.driver.memory.moving;
        if self.gate.as_ref().is_some_and(|gate| gate.since.elapsed() > MAX_GATE) {
            self.open_gate();
            self.pause = Instant::now() + PAUSE;
        }
        if Instant::now() < self.pause {
            return false;
        }
        let gate = self.gate.get_or_insert_with(|| Gate { since: Instant::now(), guard: None, wait: None });
        if gate.guard.is_none() {
            movings.gate_is_wanted.store(true, Ordering::Release);
            gate.guard = match movings.gate.try_write() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
        }
        gate.guard.is_some()
    }

    fn open_gate(&mut self) {
        if self.gate.take().is_some() {
            self.api.driver.memory.moving.gate_is_wanted.store(false, Ordering::Release);
        }
    }
}

/// Prevents other threads from queueing work, and waits until all work has ended. `None` if it goes on for too long, or
/// while a stream captures.
pub(super) fn gate_when_idle(api: Api) -> Option<RwLockWriteGuard<'static, ()>> {
    let (begun, movings) = (Instant::now(), &api.driver.memory.moving);
    let gate = loop {
        match movings.gate.try_write() {
            Ok(guard) => break guard,
            Err(TryLockError::Poisoned(guard)) => break guard.into_inner(),
            Err(TryLockError::WouldBlock) if begun.elapsed() < MAX_QUEUEING => sleep(LOOK),
            Err(TryLockError::WouldBlock) => return None,
        }
    };
    let idle = api.is_idle() || !api.driver.captures.any() && wait_for_end();
    idle.then_some(gate)
}

/// Waits for all work. Returns false if it goes on for too long, or an earlier wait has not ended, and this one would not
/// either.
fn wait_for_end() -> bool {
    let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    if waits.met < waits.asked {
        return false;
    }
    waits.asked += 1;
    let number = waits.asked;
    CHANGED.notify_all();
    let outcome = CHANGED.wait_timeout_while(waits, MAX_GATE, |waits| waits.met < number);
    let (waits, _) = outcome.unwrap_or_else(PoisonError::into_inner);
    waits.met >= number && !waits.in_vain
}

/// Executes the requests.
fn wait_for_all(api: Api) {
    let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        waits = CHANGED
            .wait_while(waits, |waits| waits.met == waits.asked)
            .unwrap_or_else(PoisonError::into_inner);
        let number = waits.asked;
        drop(waits);
        let visible = api.driver.memory.visible.so_far();
        let (mut all, mut in_vain) = (true, false);
        for context in api.driver.contexts.existing() {
            let call = &mut api.call_in(ContextId(context));
            // The program gets an error of the work from its own next wait.
            let waited = api.wait_unless_capturing(call);
            all &= waited == Ok(true);
            in_vain |= waited == Ok(false);
        }
        if all {
            api.driver.memory.visible.end(visible);
        }
        waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        (waits.met, waits.in_vain) = (number, in_vain);
        CHANGED.notify_all();
    }
}
