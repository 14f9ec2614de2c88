// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The thread that handles touches of managed memory, and a thread that waits for the GPU on its behalf. A kernel that
//! does not end thus delays a touch for a limited time only.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

use virtio_cuda_client::protocol::{ContextId, StreamId, WINDOW_BYTES};
use virtio_cuda_client::thread::without_signals;
use virtio_cuda_client::{CudaError, calls};

use crate::api::DefaultStream;
use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::moving::blocks::Owner;
use crate::memory::moving::faults::{Faults, Touch};
use crate::memory::moving::pages::Store;
use crate::memory::moving::placed;
use crate::memory::moving::{Attachment, Means};
use crate::memory::table::window::PAGE_BYTES;
use crate::stream::in_callback;

/// Maximum wait for the GPU's work. A correct program has waited for it before.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// Maximum wait for threads that are queueing work.
const MAX_GATE: Duration = Duration::from_secs(10);
/// Interval between checks of the gate.
const LOOK: Duration = Duration::from_micros(50);

/// Requests to wait for all work, by number, and the completed ones.
#[derive(Debug, Default)]
struct Waits {
    asked: u64,
    met: u64,
}

static WAITS: Mutex<Waits> = Mutex::new(Waits { asked: 0, met: 0 });
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
    let api = Api { driver, default_stream: DefaultStream::Legacy };
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
                driver.memory.moving.means.wait().as_ref().map(|means| attend(api, &means.faults))
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

fn attend(api: Api, faults: &Faults) {
    loop {
        match faults.next() {
            Ok(Some(touch)) => serve(api, faults, touch),
            Ok(None) => {}
            Err(error) => {
                log::error!("Managed memory: touches are told no more: {error}");
                return;
            }
        }
    }
}

fn serve(api: Api, faults: &Faults, touch: Touch) {
    let movings = &api.driver.memory.moving;
    let Some(moving) = movings.at(touch.address) else {
        // The memory was freed meanwhile.
        let page = touch.address / PAGE_BYTES * PAGE_BYTES;
        let _ = faults.wake(page..page + PAGE_BYTES);
        return;
    };
    let offset = touch.address - moving.address;
    let mut idle = true;
    let _gate;
    if api.owner_of(&moving, offset) == Owner::Gpu {
        // No thread may queue work while its blocks are fetched.
        _gate = gate(api);
        // Work waits for a function that it calls, so the function's touches cannot conflict with it.
        idle = in_callback::is(touch.thread) || has_ended(api, moving.attachment());
    }
    if let Err(error) = api.bring_touched(&moving, offset, idle) {
        log::warn!("Managed memory at {:#x} is not as the GPU has it: {error}", touch.address);
    }
}

/// Prevents other threads from queueing work. `None` if a thread has been queueing for too long.
fn gate(api: Api) -> Option<RwLockWriteGuard<'static, ()>> {
    let (begun, movings) = (Instant::now(), &api.driver.memory.moving);
    movings.gate_is_wanted.store(true, Ordering::Release);
    let guard = loop {
        match movings.gate.try_write() {
            Ok(guard) => break Some(guard),
            Err(TryLockError::Poisoned(guard)) => break Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < MAX_GATE => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                log::warn!("Managed memory: a call has been queueing work for {MAX_GATE:?}");
                break None;
            }
        }
    };
    movings.gate_is_wanted.store(false, Ordering::Release);
    guard
}

/// Prevents other threads from queueing work, and waits until all work has ended. `None` if it goes on for more than the
/// maximum time, or while a stream captures.
pub(super) fn gate_when_idle(api: Api) -> Option<RwLockWriteGuard<'static, ()>> {
    let gate = gate(api)?;
    let idle = api.is_idle() || !api.driver.captures.any() && wait_for_end() == Ended::Yes;
    idle.then_some(gate)
}

/// Waits until the work that uses an allocation has ended. Returns false after the maximum time, or if waiting is
/// impossible.
fn has_ended(api: Api, attachment: Attachment) -> bool {
    if attachment == Attachment::Host || api.driver.memory.visible.is_none() {
        return true;
    }
    if api.driver.captures.any() {
        return false;
    }
    match attachment {
        Attachment::Stream { context, stream } => {
            stream_has_ended(api, ContextId(context), stream).unwrap_or_else(|_| all_has_ended_for_a_touch())
        }
        Attachment::Host | Attachment::Global => all_has_ended_for_a_touch(),
    }
}

/// Like [`has_ended`], for the work of a stream. Polls the stream, so that an outstanding wait for all work does not
/// delay it.
///
/// Errors: the stream's; the program may have destroyed it.
fn stream_has_ended(api: Api, context: ContextId, stream: StreamId) -> Result<bool, CudaError> {
    let begun = Instant::now();
    loop {
        match calls::cuStreamQuery(&mut api.driver.session.call().context(context), stream) {
            Ok(()) => return Ok(true),
            Err(CudaError::NOT_READY) if begun.elapsed() < MAX_WAIT => std::thread::sleep(LOOK),
            Err(CudaError::NOT_READY) => {
                warn_of_running_work();
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

fn warn_of_running_work() {
    log::warn!(
        "The program touches managed memory while the GPU's work goes on for more than {MAX_WAIT:?}: it gets what the memory \
         held before. VIRTIO_CUDA_MANAGED=0 keeps managed memory where both see it"
    );
}

/// Like [`has_ended`], for all work.
fn all_has_ended_for_a_touch() -> bool {
    let ended = wait_for_end();
    if ended == Ended::NotInTime {
        warn_of_running_work();
    }
    ended == Ended::Yes
}

/// The outcome of a wait for all work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Yes,
    /// It goes on after the maximum time.
    NotInTime,
    /// An earlier wait has not ended, and this one would not either.
    NotAsked,
}

/// Waits for all work.
fn wait_for_end() -> Ended {
    let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    if waits.met < waits.asked {
        return Ended::NotAsked;
    }
    waits.asked += 1;
    let number = waits.asked;
    CHANGED.notify_all();
    let outcome = CHANGED.wait_timeout_while(waits, MAX_WAIT, |waits| waits.met < number);
    let (waits, _) = outcome.unwrap_or_else(PoisonError::into_inner);
    if waits.met >= number { Ended::Yes } else { Ended::NotInTime }
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
        let mut all = true;
        for context in api.driver.contexts.existing() {
            let call = &mut api.driver.session.call().context(ContextId(context));
            // The program gets an error of the work from its own next wait.
            all &= api.wait_unless_capturing(call).unwrap_or(false);
        }
        if all {
            api.driver.memory.visible.end(visible);
        }
        waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
        waits.met = number;
        CHANGED.notify_all();
    }
}
