// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Events.

use virtio_cuda_client::protocol::EventId;
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::handles::{DISABLE_TIMING, new_handle};
use crate::stream::table::Stream;

/// `CU_EVENT_*`.
const BLOCKING_SYNC: u32 = 1;
const INTERPROCESS: u32 = 4;

fn record(api: Api, event: u64, stream: u64, flags: u32) -> Result<(), CudaError> {
    if api.driver.captures.any() {
        // A graph may record the event whenever it runs.
        api.driver.events.remove(event);
    }
    if flags != 0 {
        // The record may become a node of a graph.
        graphs_use_events();
    }
    let known = api.driver.events.get(event);
    let mut call = api
        .in_context_of(event)?
        .posted_if(flags == 0 && known.is_some() && api.may_post(stream) && api.may_post(event));
    let recorded = calls::cuEventRecordWithFlags(&mut call, EventId(event), api.stream(stream), flags);
    if let Some(known) = known {
        known.recorded();
    }
    recorded
}

fn destroy(api: Api, event: u64) -> Result<(), CudaError> {
    // Checked before the call is posted, because a posted error would not be returned here.
    api.driver.streams.get(event)?;
    let mut call = api.in_context_of(event)?.posted_if(api.may_post(event));
    calls::cuEventDestroy_v2(&mut call, EventId(event))?;
    api.driver.streams.remove(event);
    api.driver.events.remove(event);
    Ok(())
}

/// Queries with `row` whether the event's latest record is reached, unless that is known.
fn reach(
    api: Api,
    event: u64,
    row: impl FnOnce(&mut Call<'_>, EventId) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let known = api.driver.events.get(event).filter(|_| api.driver.streams.get(event).is_ok());
    if known.as_ref().is_some_and(|known| known.is_reached()) {
        api.synchronized();
        return Ok(());
    }
    let latest = known.as_ref().map_or(0, |known| known.latest());
    row(&mut api.in_context_of(event)?, EventId(event))?;
    if let Some(known) = known {
        known.set(latest);
    }
    api.synchronized();
    Ok(())
}

fn elapsed(api: Api, milliseconds: Out<f32>, start: u64, end: u64) -> Result<(), CudaError> {
    milliseconds.set(calls::cuEventElapsedTime_v2(
        &mut api.in_context_of(start)?,
        EventId(start),
        EventId(end),
    )?)
}

entry_points! {
    /// Creates an event.
    call cuEventCreate(api, phEvent: Out<u64>, Flags: u32) {
        phEvent.check()?;
        let handle = new_handle();
        let context = api.context()?.0;
        let mut call = api.call().posted_if(Flags & !(BLOCKING_SYNC | DISABLE_TIMING) == 0);
        calls::cuEventCreate(&mut call, EventId(handle), Flags)?;
        api.driver.streams.add(handle, Stream { context, flags: 0 });
        if Flags & INTERPROCESS == 0 {
            api.driver.events.add(handle);
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
