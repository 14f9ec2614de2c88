// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Streams.

pub mod callback;
pub mod callback_thread;
pub mod capture;
pub mod values;

use std::thread;

use virtio_cuda_client::protocol::{ContextId, EventId, Opcode, StreamId};
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::{CudaError, calls, idle};

use crate::api::PER_THREAD;
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::handles::{Kind, check};
use crate::pool::local_pool::api::key_of;
use crate::state::captures::Capturing;
use crate::state::local_pools::space::StreamKey;
use crate::state::moving::Attachment;
use crate::state::streams::Stream;
use crate::work::make::NON_BLOCKING;

/// `CU_MEM_ATTACH_HOST` and `CU_MEM_ATTACH_SINGLE`.
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;

fn create(api: Api, out: Out<u64>, flags: u32, priority: i32) -> Result<(), CudaError> {
    out.check()?;
    create_in(api, api.context()?.0, out, flags, priority)
}

/// Creates a stream in a context.
pub fn create_in(api: Api, context: u64, out: Out<u64>, flags: u32, priority: i32) -> Result<(), CudaError> {
    let stream = api.make_stream(Stream { context, flags }, priority, flags & !NON_BLOCKING == 0)?;
    out.set(stream.0)
}

fn destroy(api: Api, handle: u64) -> Result<(), CudaError> {
    if handle <= PER_THREAD {
        return Err(CudaError::INVALID_HANDLE);
    }
    let mut call = api.in_context_of(handle)?.posted_if(api.may_post(handle));
    let stream = api.capturing(handle)?;
    if !api.driver.captures.any() {
        let key = StreamKey { context: stream.context, stream: handle, thread: None };
        api.driver.local_pools.mark_frees_of(api, key);
    }
    calls::cuStreamDestroy_v2(&mut call, StreamId(handle))?;
    api.driver.streams.remove(handle);
    api.driver.captures.ended(stream);
    Ok(())
}

/// Notes that a stream has ended the work that comes before the free with this number.
fn note_reached(api: Api, handle: u64, frees: u64) {
    if frees > 0
        && let Ok(key) = key_of(api, handle)
    {
        api.driver.local_pools.reached(frees, |stream| stream == key);
    }
}

impl Api {
    /// Returns the program's stream `handle` as captures identify it.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`; `CUDA_ERROR_INVALID_CONTEXT` without a context.
    pub fn capturing(&self, handle: u64) -> Result<Capturing, CudaError> {
        let (context, stream) = (self.context_of_stream(handle)?, self.stream(handle)?.0);
        Ok(Capturing { context, stream, thread: (stream == PER_THREAD).then(|| thread::current().id()) })
    }

    /// Returns the green context of a stream (0 if it has none), and the context of the stream.
    pub fn green_context_of_stream(&self, stream: u64) -> Result<(u64, u64), CudaError> {
        let context = self.context_of_stream(stream)?;
        Ok(self.driver.greens.of_context(context).unwrap_or((0, context)))
    }
}

entry_points! {
    /// Creates a stream of normal priority.
    call cuStreamCreate(api, phStream: Out<u64>, Flags: u32) {
        create(api, phStream, Flags, 0)
    }

    /// Creates a stream.
    call cuStreamCreateWithPriority(api, phStream: Out<u64>, flags: u32, priority: i32) {
        create(api, phStream, flags, priority)
    }

    /// Destroys a stream; its work completes.
    call cuStreamDestroy_v2(api, hStream: u64) {
        destroy(api, hStream)
    }

    /// Destroys a stream; its work completes.
    call cuStreamDestroy(api, hStream: u64) {
        destroy(api, hStream)
    }

    /// Waits for the stream's work.
    call cuStreamSynchronize / cuStreamSynchronize_ptsz (api, hStream: u64) {
        let (mut call, context, stream) = (api.in_context_of(hStream)?, api.context_of_stream(hStream)?, api.stream(hStream)?);
        let frees = api.driver.local_pools.frees_so_far();
        if !(api.may_post(hStream) && api.is_stream_idle(context, stream)) {
            let before = idle::so_far();
            calls::cuStreamSynchronize(&mut call, stream)?;
            idle::waited_for(Opcode::cuStreamSynchronize, ContextId(context), stream, before);
        }
        note_reached(api, hStream, frees);
        api.synchronized();
        Ok(())
    }

    /// Returns `CUDA_ERROR_NOT_READY` while the stream has work.
    call cuStreamQuery / cuStreamQuery_ptsz (api, hStream: u64) {
        let frees = api.driver.local_pools.frees_so_far();
        calls::cuStreamQuery(&mut api.in_context_of(hStream)?, api.stream(hStream)?)?;
        note_reached(api, hStream, frees);
        api.synchronized();
        Ok(())
    }

    /// Makes later work of the stream wait for the event's latest record.
    call cuStreamWaitEvent / cuStreamWaitEvent_ptsz (api, hStream: u64, hEvent: u64, Flags: u32) {
        check(Kind::Event, hEvent)?;
        if Flags != 0 {
            // The wait may become a node of a graph.
            graphs_use_events();
        }
        let mut call = api
            .in_context_of(hStream)?
            .posted_if(Flags == 0 && api.may_post(hStream) && api.driver.events.get(hEvent).is_ok_and(|event| event.reached.is_some()));
        calls::cuStreamWaitEvent(&mut call, api.stream(hStream)?, EventId(hEvent), Flags)
    }

    /// Returns the flags of a stream.
    call cuStreamGetFlags / cuStreamGetFlags_ptsz (api, hStream: u64, flags: Out<u32>) {
        flags.check()?;
        match api.driver.streams.get(hStream) {
            Ok(stream) => flags.set(stream.flags),
            Err(_) => flags.set(calls::cuStreamGetFlags(&mut api.in_context_of(hStream)?, api.stream(hStream)?)?),
        }
    }

    /// Returns the number of a stream, which never changes. Pools of memory ask for it at each allocation.
    call cuStreamGetId / cuStreamGetId_ptsz (api, hStream: u64, streamId: Out<u64>) {
        streamId.check()?;
        let (stream, context) = (api.stream(hStream)?, api.context_of_stream(hStream)?);
        if let Some(id) = api.driver.streams.id(context, stream) {
            return streamId.set(id);
        }
        let id = calls::cuStreamGetId(&mut api.in_context_of(hStream)?, stream)?;
        if stream.0 != PER_THREAD {
            api.driver.streams.note_id(context, stream, id);
        }
        streamId.set(id)
    }

    /// Returns the context of a stream.
    call cuStreamGetCtx / cuStreamGetCtx_ptsz (api, hStream: u64, pctx: Out<u64>) {
        pctx.set(api.context_of_stream(hStream)?)
    }

    /// Returns the context and the green context of a stream. For a green context the first is the primary context.
    call cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz (api, hStream: u64, pCtx: Out<u64>, pGreenCtx: Out<u64>) {
        let (green, context) = api.green_context_of_stream(hStream)?;
        pGreenCtx.set_if_wanted(green);
        pCtx.set_if_wanted(context);
        Ok(())
    }

    /// Returns the device of a stream.
    call cuStreamGetDevice / cuStreamGetDevice_ptsz (api, hStream: u64, device: Out<i32>) {
        let context = api.context_of_stream(hStream)?;
        device.set(api.driver.contexts.device_of(context)? as i32)
    }

    /// Attaches managed memory to a stream, the host or all streams. This only affects memory that moves.
    call cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz (api, hStream: u64, dptr: u64, _length: usize, flags: u32) {
        let context = api.context_of_stream(hStream)?;
        // An allocation can only be attached as a whole.
        let range = api.driver.memory.ranges.host(dptr);
        let starts = range.is_some_and(|range| range.start == dptr && range.pool.is_none());
        if !starts || !api.driver.memory.is_managed(dptr) {
            return Err(CudaError::INVALID_VALUE);
        }
        if let Some(moving) = api.driver.memory.moving.at(dptr) {
            moving.attach(match (flags, api.stream(hStream)?) {
                (ATTACH_SINGLE, stream) if stream.0 > PER_THREAD => Attachment::Stream { context, stream },
                (ATTACH_HOST, _) => Attachment::Host,
                // A default stream's work is ordered with that of other streams.
                _ => Attachment::Global,
            });
        }
        Ok(())
    }
}
