// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of events whose records have ended with the driver's objects ([`super::deep`]).
//!
//! A deep suspension notes for each record when it was, in milliseconds of the host's clock, which all of its processes share. It asks the driver for the times between
//! neighbours, which are exact where two records are close together. Events that the program has not recorded again since have their
//! times here, and the others by a record that the resumption has made. So a pause between two records counts as it does for the program.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use vhost_cuda_common::gates::now;
use virtio_cuda_protocol::cuda::{ContextId, Opcode};

use super::suspended::Begin;
use crate::gpu::{CUevent, CuResult, CudaError, EVENT_DISABLE_TIMING};
use crate::objects::Object;
use crate::recipe::kept::Call;
use crate::recipe::steps::Step;
use crate::state::SessionState;

/// A record of which host and GPU know the time takes no longer than this, in nanoseconds. One that does, because the thread had no
/// processor, or because the GPU was another process's, is made again for so long.
const SHORT_NS: u64 = 500_000;
const PATIENCE_NS: u64 = 20_000_000;

/// Notes the times of all events. The session has no work. `steps` make its objects again.
///
/// Errors: the driver's; nothing is noted.
pub fn take(session: &SessionState, steps: &[Step]) -> CuResult<()> {
    let mut contexts = BTreeMap::<u64, Vec<(u64, Arc<Object>)>>::new();
    let mut names = HashSet::new();
    for step in steps.iter().filter(|step| measures(&step.call)) {
        let event = session.objects.events.get(step.key.id)?;
        names.insert(step.key.id);
        contexts.entry(event.context()).or_default().push((step.key.id, event));
    }
    let mut times = Vec::new();
    for (context, events) in contexts {
        let (now, at) = record(session, context)?;
        let noted = before(session, &events, now, at);
        session.gpu.cuEventDestroy_v2(now)?;
        times.extend(noted?);
    }
    let past = &mut session.suspension.times.lock().past;
    past.retain(|name, _| names.contains(name));
    past.extend(times);
    Ok(())
}

/// Makes the records by which new ones are measured, once the objects are there again.
///
/// Errors: the driver's; it can be repeated.
pub fn begin(session: &SessionState, steps: &[Step]) -> CuResult<()> {
    let events = steps.iter().filter(|step| measures(&step.call));
    let contexts: CuResult<HashSet<u64>> =
        events.map(|step| Ok(session.objects.events.get(step.key.id)?.context())).collect();
    let mut begins = HashMap::new();
    for context in contexts? {
        let (event, at) = record(session, context)?;
        let object = Arc::downgrade(&session.contexts.get(ContextId(context))?.object);
        begins.insert(context, Begin { context: object, event: event as usize, at });
    }
    session.suspension.times.lock().begins = begins;
    Ok(())
}

/// Returns the milliseconds between two events of which one at least has no record of the driver's.
///
/// Errors: the driver's; `CUDA_ERROR_INVALID_HANDLE` for an event that has never been recorded.
pub fn between(session: &SessionState, start: u64, end: u64) -> CuResult<f32> {
    let start = time_of(session, start)?;
    Ok((time_of(session, end)? - start) as f32)
}

fn time_of(session: &SessionState, name: u64) -> CuResult<f64> {
    let event = session.objects.events.get(name)?;
    let begin = session.suspension.times.lock().begins.get(&event.context()).cloned();
    // The record ends with the context, which stays while it is used here.
    if let Some(begin) = begin
        && let Some(_context) = begin.context.upgrade()
    {
        match session.gpu.cuEventElapsedTime_v2(begin.event as CUevent, event.raw()) {
            Err(CudaError::INVALID_HANDLE) => {}
            since => return Ok(begin.at + f64::from(since?.0)),
        }
    }
    session.suspension.times.lock().past.get(&name).copied().ok_or(CudaError::INVALID_HANDLE)
}

/// Returns whether a call makes an event that measures time.
fn measures(call: &Call) -> bool {
    let flags = call.arguments.get(8..12).and_then(|flags| flags.try_into().ok()).map(u32::from_le_bytes);
    call.opcode == Opcode::cuEventCreate && flags.is_some_and(|flags| flags & EVENT_DISABLE_TIMING == 0)
}

/// Records a new event in a context, which is current then. Returns it and its time.
fn record(session: &SessionState, context: u64) -> CuResult<(CUevent, f64)> {
    let gpu = &session.gpu;
    gpu.cuCtxSetCurrent(session.contexts.get(ContextId(context))?.object.raw())?;
    let (event,) = gpu.cuEventCreate(0)?;
    let until = now() + PATIENCE_NS;
    loop {
        let before = now();
        let recorded = gpu
            .cuEventRecordWithFlags(event, std::ptr::null_mut(), 0)
            .and_then(|()| gpu.cuEventSynchronize(event));
        let after = now();
        if let Err(error) = recorded {
            let _ = gpu.cuEventDestroy_v2(event);
            return Err(error);
        }
        if after.saturating_sub(before) < SHORT_NS || after > until {
            return Ok((event, after as f64 / 1e6));
        }
    }
}

/// Returns the times of the events of a context that have a record, which was before `now`, at the time `at`.
///
/// Errors: the driver's.
fn before(
    session: &SessionState,
    events: &[(u64, Arc<Object>)],
    now: CUevent,
    at: f64,
) -> CuResult<Vec<(u64, f64)>> {
    let until = |event: &Object, later| session.gpu.cuEventElapsedTime_v2(event.raw(), later);
    let mut recorded = Vec::new();
    for (name, event) in events {
        match until(event, now) {
            Err(CudaError::INVALID_HANDLE | CudaError::CAPTURED_EVENT) => {}
            age => recorded.push((age?.0, *name, event)),
        }
    }
    recorded.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let (mut later, mut time) = (now, at);
    let noted = recorded.into_iter().map(|(_, name, event)| {
        time -= f64::from(until(event, later)?.0);
        later = event.raw();
        Ok((name, time))
    });
    noted.collect()
}
