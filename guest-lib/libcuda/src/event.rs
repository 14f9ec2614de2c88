// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Events.

use virtio_cuda_client::protocol::EventId;
use virtio_cuda_client::{CudaError, calls};

use crate::driver::mint;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::stream_table::Stream;

fn record(api: Api, event: u64, stream: u64, flags: u32) -> Result<(), CudaError> {
    let call = api.in_context_of(event);
    calls::cuEventRecordWithFlags(&mut call?, EventId(event), api.stream(stream), flags)
}

fn destroy(api: Api, event: u64) -> Result<(), CudaError> {
    calls::cuEventDestroy_v2(&mut api.in_context_of(event)?, EventId(event))?;
    api.driver.streams.remove(event);
    Ok(())
}

fn elapsed(api: Api, milliseconds: Out<f32>, start: u64, end: u64) -> Result<(), CudaError> {
    milliseconds.check()?;
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
        let handle = mint();
        let context = api.context()?.0;
        calls::cuEventCreate(&mut api.call(), EventId(handle), Flags)?;
        api.driver.streams.add(handle, Stream { context, flags: 0 });
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

    /// `CUDA_ERROR_NOT_READY` until the latest record is reached.
    call cuEventQuery(api, hEvent: u64) {
        calls::cuEventQuery(&mut api.in_context_of(hEvent)?, EventId(hEvent))?;
        api.synchronized();
        Ok(())
    }

    /// Waits for the latest record.
    call cuEventSynchronize(api, hEvent: u64) {
        calls::cuEventSynchronize(&mut api.in_context_of(hEvent)?, EventId(hEvent))?;
        api.synchronized();
        Ok(())
    }

    /// Milliseconds between two events, by the GPU's clock.
    call cuEventElapsedTime(api, pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) {
        elapsed(api, pMilliseconds, hStart, hEnd)
    }

    /// Milliseconds between two events, by the GPU's clock.
    call cuEventElapsedTime_v2(api, pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) {
        elapsed(api, pMilliseconds, hStart, hEnd)
    }
}
