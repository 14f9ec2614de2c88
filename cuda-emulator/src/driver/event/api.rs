// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuEvent*.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::{CUevent, EVENTS, Event, Last, Record, find, find_own};
use crate::driver::capture;
use crate::driver::context::{self, Context};
use crate::driver::ffi::Out;
use crate::driver::graph::Work;
use crate::driver::handle::Handle;
use crate::driver::ipc::SharedEvent;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;

const CU_EVENT_DISABLE_TIMING: u32 = 2;
const CU_EVENT_INTERPROCESS: u32 = 4;
const CU_EVENT_ALL_FLAGS: u32 = 7;

/// Returns the latest record in a stream. A query of another record is an error, which ends the capture that it
/// belongs to.
fn record(event: &Event) -> CuResult<Option<Record>> {
    match event.last() {
        Last::Never => Ok(None),
        Last::Record(record) => Ok(Some(record)),
        Last::Captured(captured) => {
            capture::invalidate(&captured);
            Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
        }
    }
}

fn event_create(out: Out<CUevent>, flags: u32) -> CuResult<()> {
    out.check()?;
    let timing = flags & CU_EVENT_DISABLE_TIMING == 0;
    if flags & !CU_EVENT_ALL_FLAGS != 0 || flags & CU_EVENT_INTERPROCESS != 0 && timing {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = Arc::downgrade(&context::current()?);
    let shared = flags & CU_EVENT_INTERPROCESS != 0;
    let shared = shared.then(SharedEvent::new).transpose()?.map(Arc::new);
    let handle = Handle::unique();
    EVENTS.insert(handle, Arc::new(Event { context, timing, last: Mutex::default(), shared }));
    out.set_if_wanted(handle);
    Ok(())
}

fn event_destroy(handle: CUevent) -> CuResult<()> {
    context_of(&*find(handle)?)?;
    EVENTS.remove(handle).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// CU_EVENT_RECORD_EXTERNAL
const RECORD_EXTERNAL: u32 = 1;

fn event_record(handle: CUevent, stream: CUstream) -> CuResult<()> {
    event_record_with_flags(handle, stream, 0)
}

fn event_record_with_flags(handle: CUevent, stream: CUstream, flags: u32) -> CuResult<()> {
    if flags & !RECORD_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let event = find(handle)?;
    let context = event.context.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.checked()?;
    let stream = context.stream(stream)?;
    capture::check_order(&context, &stream)?;
    if flags & RECORD_EXTERNAL != 0
        && capture::add(&stream, || Ok(Work::EventRecord(handle, find_own(handle)?)))?
    {
        return Ok(());
    }
    if flags & RECORD_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    if let Some(captured) = capture::dependencies(&stream)? {
        *event.last.lock().unwrap_or_else(PoisonError::into_inner) = Last::Captured(captured);
        return Ok(());
    }
    let at = Arc::new(OnceLock::new());
    let stamp = Arc::clone(&at);
    stream.queue.wait_for_room();
    // Held while the record is appended, so that two threads' records end in the order of their marks.
    let mut last = event.last.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = event.begin_shared();
    let mark = context.append(&stream, Vec::new(), move |_, _| {
        stamp.get_or_init(Instant::now);
        if let Some((shared, record)) = shared {
            shared.reach(record);
        }
        Ok(())
    });
    *last = Last::Record(Record { mark, at });
    Ok(())
}

fn context_of(event: &Event) -> CuResult<Arc<Context>> {
    event.context.upgrade().ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?.checked()
}

fn event_query(handle: CUevent) -> CuResult<()> {
    let event = find(handle)?;
    let context = context_of(&event)?;
    let record = record(&event)?;
    capture::check_safe()?;
    context.flush_printf();
    let ready = match event.shared_record() {
        Some((shared, record)) => shared.is_reached(record),
        None => record.is_none_or(|record| record.mark.reached()),
    };
    if let Some(error) = context.sticky() {
        return Err(error);
    }
    if ready { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

fn event_synchronize(handle: CUevent) -> CuResult<()> {
    let event = find(handle)?;
    let context = context_of(&event)?;
    let record = record(&event)?;
    match event.shared_record() {
        Some((shared, record)) => shared.wait(record),
        None => record.into_iter().for_each(|record| record.mark.wait()),
    }
    context.flush_printf();
    context.sticky().map_or(Ok(()), Err)
}

fn event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CuResult<()> {
    let start = find(start)?;
    context_of(&start)?;
    let of = |event: &Event| match event.timing {
        true => record(event)?.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE),
        false => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    };
    // NVIDIA's library looks at the second one only if the first one has a record.
    let start = of(&start)?;
    let end = of(&*find(end)?)?;
    milliseconds.check()?;
    let (Some(start), Some(end)) = (start.at.get(), end.at.get()) else {
        return Err(CUresult::CUDA_ERROR_NOT_READY);
    };
    let forward = end.saturating_duration_since(*start).as_secs_f64();
    let backward = start.saturating_duration_since(*end).as_secs_f64();
    milliseconds.set_if_wanted(((forward - backward) * 1e3) as f32);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuEventCreate => event_create(out: Out<CUevent>, flags: u32);
    cuEventDestroy => event_destroy(event: CUevent);
    cuEventDestroy_v2 => event_destroy(event: CUevent);
    cuEventRecord + cuEventRecord_ptsz => event_record(event: CUevent, stream: CUstream);
    cuEventRecordWithFlags + cuEventRecordWithFlags_ptsz => event_record_with_flags(
        event: CUevent, stream: CUstream, flags: u32);
    cuEventQuery => event_query(event: CUevent);
    cuEventSynchronize => event_synchronize(event: CUevent);
    cuEventElapsedTime => event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent);
    cuEventElapsedTime_v2 => event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent);
}
