// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suspends and resumes a session: its device memory moves to host memory, and back to the same addresses.
//!
//! A suspension closes the gate ([`super::run::gate`]), waits until the device has done the session's work, copies the contents of
//! all memory that may move to the [`Store`], and only then gives memory back. Addresses stay reserved; contexts, streams, modules
//! and all other objects stay as they are. A resumption does the reverse. Until its last step has succeeded the store keeps all
//! contents. So each move ends in one of two states, whatever fails: running with all memory, or suspended with all contents. The
//! memory of several devices moves at once, and counts as one.
//!
//! For a session that goes to another worker at once, memory stays on the card: files keep it while no process has it mapped ([`held`]).
//!
//! Two sessions that fill the card and the host's memory together change places in pieces ([`MoveTerms::is_in_pieces`]). A session is suspended in
//! part meanwhile: each part of its memory is either on the card or in the store.

pub mod ahead;
pub mod deep;
pub(super) mod digests;
pub mod held;
mod idle;
pub mod lent;
pub(super) mod pages;
mod pinned;
mod registrar;
pub(super) mod room;
pub mod saving;
mod steps;
pub(super) mod store;
pub(super) mod suspended;
pub mod times;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use vhost_cuda_common::link::{
    CONTENTS_DIFFER, DRIVER_FAILED, Frame, MOVED, MOVED_BEFORE, MOVED_IN_PART, MoveTerms, Moved,
    NO_DEVICE_MEMORY, NO_HOST_MEMORY, NOT_IDLE, NOTHING_MOVABLE, ON_CARD, TO_RESUME, TO_SUSPEND,
    move_terms_of, pool_of,
};
use vhost_cuda_common::recording::{BACK, OUT};
use virtio_cuda_protocol::transport::{REPLY_INVALID, REPLY_NO_RESOURCES, REPLY_OK};
use zerocopy::IntoBytes;

use self::deep::{Makers, make_graphs};
use self::digests::{Kernel, Key};
use self::lent::Offer;
use self::pinned::InContext;
use self::registrar::InSession;
use self::steps::{Group, Unmoved};
use self::store::Store;
use self::suspended::{Suspended, Suspension};
use super::gpu::{CuResult, CudaError};
use super::memory::parts::Part;
use super::objects::contexts::Context;
use super::run::marks::may_look_while_others_capture;
use super::run::replies::Replies;
use super::state::SessionState;

/// The time for which the gate is closed at first while the session has work, and for which it is open then.
const FIRST_PATIENCE: Duration = Duration::from_millis(20);
const OPEN: Duration = Duration::from_millis(5);
/// The maximum time limit of a suspension: the daemon has its own.
const MAX_DEADLINE: Duration = Duration::from_secs(3600);

/// Keeps as much host memory for contents as the daemon says.
pub fn keep_pool(session: &'static SessionState, frame: &Frame) {
    if let Some(bytes) = pool_of(&frame.payload) {
        session.suspension.pages.keep(bytes, InSession(session));
    }
}

/// Executes a request of the daemon to suspend or resume the session, on a thread of its own. It is always answered.
pub fn start(session: &'static SessionState, frame: &Frame, replies: &Arc<Replies>, makers: Makers) {
    let id = frame.header.id;
    let is_known = [TO_SUSPEND, TO_RESUME].contains(&frame.header.kind);
    let (leaves, terms) = (frame.header.kind == TO_SUSPEND, move_terms_of(&frame.payload));
    let is_moving = &session.suspension.is_moving;
    let Some(terms) = terms.filter(|_| is_known && !is_moving.swap(true, Ordering::Acquire)) else {
        return replies.send(id, &(REPLY_INVALID, Vec::new()));
    };
    let answers = replies.clone();
    let answer = move |moved: Moved| {
        is_moving.store(false, Ordering::Release);
        answers.send(id, &(REPLY_OK, moved.as_bytes().to_vec()));
    };
    let run = move || execute(session, leaves, terms, makers, answer);
    if let Err(error) = thread::Builder::new().name("suspend".into()).spawn(run) {
        debug!("no thread to suspend or resume the session: {error}");
        is_moving.store(false, Ordering::Release);
        session.suspension.forget();
        replies.send(id, &(REPLY_NO_RESOURCES, Vec::new()));
    }
}

/// Suspends or resumes, and answers. Calls that wait go on, or ask for a resumption, only after the answer: the daemon may send the next
/// request then.
pub fn execute(
    session: &'static SessionState,
    leaves: bool,
    terms: MoveTerms,
    makers: Makers,
    answer: impl FnOnce(Moved),
) {
    may_look_while_others_capture(&session.gpu);
    let begun = Instant::now();
    let recorded = session.profile.begin();
    // Dropped last: this thread may be the last user of a context.
    let mut contexts = Vec::new();
    // Locked until the gate stands as the state says, so that the next move finds it so.
    let mut suspended = session.suspension.suspended.lock();
    let away = suspended.as_ref().map_or(0, |suspended| suspended.moved_bytes);
    let moved = if leaves {
        suspend(session, terms, begun, &mut suspended, &mut contexts)
    } else {
        resume(session, terms, makers, &mut suspended, &mut contexts)
    };
    let micros = begun.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
    let moved = Moved { micros, ..moved };
    debug!("{}: {moved:?}", if suspended.is_some() { "suspended" } else { "running" });
    if let Some(begun) = recorded.filter(|_| [MOVED, MOVED_IN_PART].contains(&moved.outcome)) {
        session.profile.add_move(if leaves { OUT } else { BACK }, begun, moved.moved_bytes.abs_diff(away));
    }
    answer(moved);
    match *suspended {
        Some(_) => session.gate.suspend(),
        None => session.gate.open(),
    }
    drop(suspended);
}

/// Brings a session back that has entered this worker, before any call of its program. It stays suspended if the card has no room for it.
///
/// Errors: the reason for which it cannot come back here, for people.
pub fn come_back(session: &'static SessionState, makers: Makers) -> Result<(), String> {
    let mut moved = failed(DRIVER_FAILED);
    execute(session, false, MoveTerms::default(), makers, |answer| moved = answer);
    // The daemon counts no host memory for a session that runs when it comes from another worker.
    session.suspension.forget();
    match moved.outcome {
        MOVED | MOVED_BEFORE | NO_DEVICE_MEMORY => Ok(()),
        CONTENTS_DIFFER => Err("its contents are not what they were".to_owned()),
        _ => Err(format!("its objects or graphs cannot be made again there: CUDA error {}", moved.cuda)),
    }
}

/// Waits until the device has done the work of a session that makes no more calls. Nothing moves meanwhile.
///
/// Errors: the reason for which it has not, at `deadline`.
pub fn wait_for_work(session: &SessionState, deadline: Instant) -> Result<(), String> {
    may_look_while_others_capture(&session.gpu);
    let suspended = session.suspension.suspended.try_lock_until(deadline).ok_or("a move is under way")?;
    if suspended.is_some() {
        return Ok(());
    }
    if session.graphs.is_capturing() {
        return Err("a stream of it is being captured".to_owned());
    }
    let contexts = session.contexts.all();
    let raw: Vec<_> = contexts.iter().map(|context| context.object.raw::<u8>() as usize).collect();
    match idle::wait(&session.gpu, &raw, deadline) {
        Ok(true) => Ok(()),
        Ok(false) => Err("its work did not end when the machine stopped".to_owned()),
        Err(error) => Err(format!("the driver failed: {error}")),
    }
}

fn suspend(
    session: &'static SessionState,
    terms: MoveTerms,
    begun: Instant,
    suspended: &mut Option<Suspended>,
    contexts: &mut Vec<Context>,
) -> Moved {
    let deadline = begun + Duration::from_millis(terms.deadline_ms.into()).min(MAX_DEADLINE);
    if suspended.as_ref().is_some_and(|now| now.deep.is_some()) {
        // Nothing is left on the card.
        return failed(NOTHING_MOVABLE);
    }
    if suspended.is_some() {
        // The gate is closed, and there has been no work since.
        *contexts = session.contexts.all();
    } else {
        match settle(session, deadline, contexts) {
            Ok(true) => {}
            Ok(false) => return failed(NOT_IDLE),
            Err(error) => {
                // All failures but the one above end what was kept: the daemon counts on it.
                session.suspension.forget();
                return unmoved(Unmoved::Driver(error));
            }
        }
    }
    if terms.is_on_card() && suspended.is_none() {
        match give_back(session, terms, contexts, suspended) {
            Ok(moved) => {
                session.suspension.forget();
                return moved;
            }
            Err(error) => debug!("its memory does not stay on the card: {error:?}"),
        }
    }
    let terms = MoveTerms { flags: terms.flags & !ON_CARD, ..terms };
    give_back(session, terms, contexts, suspended).unwrap_or_else(unmoved)
}

/// Closes the gate, and waits until the device has done the session's work. Returns false if there is no such moment until
/// `deadline`.
///
/// A call that is inside, or work, may wait for something that the program does behind the gate. So the gate opens again and
/// again, and stays closed twice as long each time.
///
/// Errors: the driver's.
fn settle(session: &SessionState, deadline: Instant, contexts: &mut Vec<Context>) -> CuResult<bool> {
    let mut patience = FIRST_PATIENCE;
    loop {
        let until = deadline.min(Instant::now() + patience);
        // A capture is not work, but an event cannot be recorded beside it.
        if session.gate.close(until) && !session.graphs.is_capturing() {
            *contexts = session.contexts.all();
            let raw: Vec<_> = contexts.iter().map(|context| context.object.raw::<u8>() as usize).collect();
            if idle::wait(&session.gpu, &raw, until)? {
                return Ok(true);
            }
        }
        session.gate.open();
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(OPEN);
        patience *= 2;
    }
}

/// Moves memory that may move and is on the device. The gate is closed, and there is no work.
///
/// Errors: the reason; the session is as before.
fn give_back(
    session: &SessionState,
    terms: MoveTerms,
    contexts: &[Context],
    suspended: &mut Option<Suspended>,
) -> Result<Moved, Unmoved> {
    let gpu = &session.gpu;
    let on_card = terms.is_on_card();
    let kept = if on_card { None } else { session.suspension.kept.lock().take() };
    let is_first = suspended.is_none();
    if is_first {
        session.placed.end_freed(gpu);
    }
    let with_context: BTreeSet<i32> = devices_of(contexts).collect();
    let mut reservations = session.reservations();
    let mut placed = session.placed.lock();
    let mut now = suspended.take().unwrap_or_else(|| {
        let created = reservations.movable(&with_context);
        Suspended {
            store: kept.unwrap_or_else(|| Store::new(&session.suspension.pages)),
            created,
            ..Suspended::default()
        }
    });
    // Files that have some contents of a suspended session take no others.
    if is_first && !on_card {
        now.store.offer = saving::offered(session).map(Offer::new);
    }
    let created = now.created.iter_mut().map(|(_, part)| part);
    let all: Vec<&mut Part> = placed.movable_if(on_card).chain(created).collect();
    let addresses: BTreeSet<u64> = all.iter().map(|part| part.address()).collect();
    // Memory that was freed meanwhile.
    now.store.retain(|address| addresses.contains(&address));
    let goes = |part: &&mut Part| {
        let device = part.device();
        !part.is_away() && with_context.contains(&device) && terms.is_for(session.placed.device_bit(device))
    };
    let here: Vec<_> = all.into_iter().filter(goes).collect();
    if here.is_empty() && (!is_first || terms.is_with_nothing()) {
        let outcome = if is_first { MOVED } else { MOVED_BEFORE };
        let moved = report(session, outcome, placed.movable(), &mut now);
        *suspended = Some(now);
        return Ok(moved);
    }
    let in_pieces = terms.is_in_pieces();
    let carriers = carriers(session, contexts, &here, !on_card).map_err(Unmoved::Driver);
    let copied = carriers.and_then(|carriers| {
        let mut groups = grouped(&carriers, here);
        if on_card {
            // SAFETY: as below.
            return unsafe { steps::hold(gpu, &mut groups) }.map(|()| 0);
        }
        // SAFETY: the gate is closed and the devices have done all work, so nothing uses the session's memory.
        unsafe { steps::give_back(gpu, groups, terms.budget_bytes, in_pieces, &mut now.store) }
    });
    now.created.iter().for_each(|(name, part)| reservations.set_file(*name, part.file().cloned()));
    let outcome = copied.map(|copied_bytes| {
        now.copied_bytes = copied_bytes;
        report(session, MOVED, placed.movable(), &mut now)
    });
    if outcome.is_ok() || !is_first {
        *suspended = Some(now);
    }
    outcome
}

fn resume(
    session: &'static SessionState,
    terms: MoveTerms,
    makers: Makers,
    suspended: &mut Option<Suspended>,
    contexts: &mut Vec<Context>,
) -> Moved {
    let Some(now) = suspended else { return failed(MOVED_BEFORE) };
    if now.saved.is_some() {
        // The daemon loads the contents before.
        return failed(CONTENTS_DIFFER);
    }
    session.gate.resume();
    if let Some(deep) = &mut now.deep {
        if let Err(error) = deep.make_again(session, makers.calls) {
            return unmoved(error);
        }
        now.deep = None;
        if now.graphs.is_empty() {
            session.gate.unseal();
        }
    }
    *contexts = session.contexts.all();
    let back = bring_back(session, terms.is_in_pieces(), now, contexts).and_then(|moved| {
        if moved.outcome == MOVED && !now.graphs.is_empty() {
            make_graphs(session, &mut now.graphs, makers.graphs)?;
        }
        Ok(moved)
    });
    match back {
        Ok(moved) if moved.outcome == MOVED => {
            // The next suspension copies only what has changed.
            *session.suspension.kept.lock() = suspended.take().map(|now| now.store.without_offer());
            moved
        }
        Ok(moved) => moved,
        Err(Unmoved::DeviceMemory(device)) => {
            Moved { full_devices: session.placed.device_bit(device), ..failed(NO_DEVICE_MEMORY) }
        }
        Err(error) => unmoved(error),
    }
}

/// Brings memory back. The gate is closed.
fn bring_back(
    session: &SessionState,
    in_pieces: bool,
    now: &mut Suspended,
    contexts: &[Context],
) -> Result<Moved, Unmoved> {
    let gpu = &session.gpu;
    let mut reservations = session.reservations();
    let mut placed = session.placed.lock();
    let created = now.created.iter_mut().map(|(_, part)| part);
    let all: Vec<&mut Part> = placed.movable().chain(created).filter(|part| part.is_away()).collect();
    let computes = all.iter().any(|part| part.stored);
    let carriers = carriers(session, contexts, &all, computes)?;
    let mut groups = grouped(&carriers, all);
    // SAFETY: the gate is closed, so nothing uses the session's memory.
    let is_all = unsafe {
        if in_pieces {
            steps::bring_back_pieces(gpu, groups, &mut now.store)
        } else {
            steps::bring_back(gpu, &mut groups, &now.store).map(|()| true)
        }
    }?;
    for (name, part) in now.created.iter_mut().filter(|(_, part)| !part.is_away()) {
        reservations.set_file(*name, part.file().cloned());
        let Some(handle) = part.handle() else { continue };
        if !reservations.moved(*name, handle) {
            let _ = part.release_handle(gpu);
        }
    }
    Ok(report(session, if is_all { MOVED } else { MOVED_IN_PART }, placed.movable(), now))
}

/// The devices on which the session has a context, which is not a part of another one.
fn devices_of(contexts: &[Context]) -> impl Iterator<Item = i32> {
    contexts.iter().filter(|context| !context.is_green()).map(|context| context.device)
}

/// Returns what copies the contents of these parts, by device: in any one of its contexts that is not a part of another. Only if
/// it `computes`, there are digests.
///
/// Errors: the driver's; `CUDA_ERROR_INVALID_CONTEXT` for a device without a context.
fn carriers<'a>(
    session: &'a SessionState,
    contexts: &[Context],
    parts: &[&mut Part],
    computes: bool,
) -> CuResult<BTreeMap<i32, InContext<'a>>> {
    let (gpu, Suspension { key, kernels, .. }) = (&session.gpu, &session.suspension);
    let key = match key.get() {
        Some(key) => *key,
        None => {
            let new = Key::random()?;
            *key.get_or_init(|| new)
        }
    };
    let all: BTreeSet<i32> = parts.iter().map(|part| part.device()).collect();
    let devices = all.len();
    let mut kernels = kernels.lock();
    let carrier = |device: i32| {
        let mut of_it = contexts.iter().filter(|context| context.device == device && !context.is_green());
        let object = &of_it.next().ok_or(CudaError::INVALID_CONTEXT)?.object;
        let context = object.raw::<u8>() as usize;
        let loaded = kernels.get(&device).and_then(|kernel| kernel.function_in(object));
        let function = match loaded {
            _ if !computes => 0,
            Some(function) => function,
            None => {
                gpu.cuCtxSetCurrent(context as _)?;
                let new = Kernel::load(gpu, object)?;
                let function = new.function_in(object);
                kernels.insert(device, new);
                function.ok_or(CudaError::INVALID_CONTEXT)?
            }
        };
        Ok((device, InContext { gpu, context, devices, function, key }))
    };
    all.into_iter().map(carrier).collect()
}

/// Groups parts by their devices, each of which has a carrier.
fn grouped<'a, 'p, C>(carriers: &'a BTreeMap<i32, C>, parts: Vec<&'p mut Part>) -> Vec<Group<'a, 'p, C>> {
    let mut groups: BTreeMap<i32, Group<'a, 'p, C>> =
        carriers.iter().map(|(&device, carriers)| (device, Group { carriers, parts: Vec::new() })).collect();
    for part in parts {
        if let Some(group) = groups.get_mut(&part.device()) {
            group.parts.push(part);
        }
    }
    groups.into_values().collect()
}

/// Returns the figures after a move. `placed` is all memory of `cuMemAlloc` that may move.
fn report<'a>(
    session: &SessionState,
    outcome: u32,
    placed: impl Iterator<Item = &'a mut Part>,
    suspended: &mut Suspended,
) -> Moved {
    let (mut moved_bytes, mut movable_bytes) = (0, 0);
    let (mut movable_devices, mut full_devices) = (0, 0);
    let mut count = |part: &Part| {
        moved_bytes += if part.exists() { 0 } else { part.bytes };
        let device = session.placed.device_bit(part.device());
        if part.is_away() {
            full_devices |= device;
        } else {
            movable_bytes += part.bytes;
            movable_devices |= device;
        }
    };
    placed.for_each(|part| count(part));
    suspended.created.iter().for_each(|(_, part)| count(part));
    suspended.moved_bytes = moved_bytes;
    let resident_bytes = session.allocations().quota.used().saturating_sub(moved_bytes);
    let stored_bytes = suspended.store.stored_bytes();
    let copied_bytes = suspended.copied_bytes;
    Moved {
        outcome,
        moved_bytes,
        stored_bytes,
        copied_bytes,
        resident_bytes,
        movable_bytes,
        movable_devices,
        full_devices: if outcome == MOVED_IN_PART { full_devices } else { 0 },
        ..Moved::default()
    }
}

fn failed(outcome: u32) -> Moved {
    Moved { outcome, ..Moved::default() }
}

fn unmoved(reason: Unmoved) -> Moved {
    match reason {
        Unmoved::Nothing => failed(NOTHING_MOVABLE),
        Unmoved::HostMemory => failed(NO_HOST_MEMORY),
        Unmoved::DeviceMemory(_) => failed(NO_DEVICE_MEMORY),
        Unmoved::Differs => failed(CONTENTS_DIFFER),
        Unmoved::Driver(error) => Moved { cuda: error.0.cast_unsigned(), ..failed(DRIVER_FAILED) },
    }
}
