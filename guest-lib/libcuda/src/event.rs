// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Events.

use std::sync::Arc;

use virtio_cuda_client::protocol::EventId;
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::handles::{DISABLE_TIMING, Kind, new_handle};
use crate::state::reached::Reached;
use crate::state::streams::Event;

/// `CU_EVENT_*`.
const BLOCKING_SYNC: u32 = 1;
const INTERPROCESS: u32 = 4;

fn record(api: Api, event: u64, stream: u64, flags: u32) -> Result<(), CudaError> {
    if api.driver.captures.any() {
        // A graph may record the event whenever it runs.
        api.driver.events.recorded_by_graphs(event);
    }
    if flags != 0 {
        // The record may become a node of a graph.
        graphs_use_events();
    }
    let known = api.driver.events.get(event).ok();
    let may_post = |event: &Arc<Event>| event.reached.is_some() && api.may_post_event(event);
    let mut call = api
        .in_context_of_event(event)?
        .posted_if(flags == 0 && known.as_ref().is_some_and(may_post) && api.may_post(stream));
    let recorded = calls::cuEventRecordWithFlags(&mut call, EventId(event), api.stream(stream)?, flags);
    if let Some(reached) = known.as_ref().and_then(|event| event.reached.as_ref()) {
        reached.recorded();
    }
    recorded
}

fn destroy(api: Api, event: u64) -> Result<(), CudaError> {
    // Checked before the call is posted, because a posted error would not be returned here.
    let known = api.driver.events.get(event)?;
    let mut call = api.in_context_of_event(event)?.posted_if(api.may_post_event(&known));
    calls::cuEventDestroy_v2(&mut call, EventId(event))?;
    api.driver.events.remove(event);
    Ok(())
}

/// Queries with `row` whether the event's latest record is reached, unless that is known.
fn reach(
    api: Api,
    event: u64,
    row: impl FnOnce(&mut Call<'_>, EventId) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let known = api.driver.events.get(event).ok();
    let reached = known.as_ref().and_then(|event| event.reached.as_ref());
    if reached.is_some_and(Reached::is_reached) {
        api.synchronized();
        return Ok(());
    }
    let latest = reached.map_or(0, Reached::latest);
    row(&mut api.in_context_of_event(event)?, EventId(event))?;
    if let Some(reached) = reached {
        reached.set(latest);
    }
    api.synchronized();
    Ok(())
}

fn elapsed(api: Api, milliseconds: Out<f32>, start: u64, end: u64) -> Result<(), CudaError> {
    milliseconds.set(calls::cuEventElapsedTime_v2(
        &mut api.in_context_of_event(start)?,
        EventId(start),
        EventId(end),
    )?)
}

entry_points! {
    /// Creates an event.
    call cuEventCreate(api, phEvent: Out<u64>, Flags: u32) {
        phEvent.check()?;
        let handle = new_handle(Kind::Event);
        let context = api.context()?.0;
        let mut call = api.call().posted_if(Flags & !(BLOCKING_SYNC | DISABLE_TIMING) == 0);
        calls::cuEventCreate(&mut call, EventId(handle), Flags)?;
        if Flags & INTERPROCESS == 0 {
            api.driver.events.add(handle, context);
        } else {
            api.driver.events.add_shared(handle, context);
        }
        phEvent.set(handle)
    }

    /// Destroys an event.
    call cuEventDestroy_v2(api, hEvent: u64) {
        destroy(api, hEvent)
    }

    /// Destroys an event.
    call cuEventDestroy(api, hEvent: u64) {
        destroy(api, hEvent)
    }

    /// Records the event in a stream.
    call cuEventRecord / cuEventRecord_ptsz (api, hEvent: u64, hStream: u64) {
        record(api, hEvent, hStream, 0)
    }

    /// Records the event in a stream.
    call cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz (api, hEvent: u64, hStream: u64, flags: u32) {
        record(api, hEvent, hStream, flags)
    }

    /// Returns `CUDA_ERROR_NOT_READY` until the latest record is reached.
    call cuEventQuery(api, hEvent: u64) {
        reach(api, hEvent, calls::cuEventQuery)
    }

    /// Waits for the latest record.
    call cuEventSynchronize(api, hEvent: u64) {
        reach(api, hEvent, calls::cuEventSynchronize)
    }

    /// Returns the milliseconds between two events, by the GPU's clock.
    call cuEventElapsedTime(api, pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) {
        elapsed(api, pMilliseconds, hStart, hEnd)
    }

    /// Returns the milliseconds between two events, by the GPU's clock.
    call cuEventElapsedTime_v2(api, pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) {
        elapsed(api, pMilliseconds, hStart, hEnd)
    }
}
