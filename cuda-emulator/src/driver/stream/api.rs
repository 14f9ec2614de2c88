// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuStream*, and host functions in streams.

use std::ffi::c_void;

use super::queue::Mark;
use super::{
    CU_STREAM_NON_BLOCKING, CUstream, HostFunction, STREAMS, context_handle, create_in, with_stream,
};
use crate::driver::capture;
use crate::driver::context::green::{self, CUgreenCtx};
use crate::driver::context::{self, CUcontext, Context};
use crate::driver::event::{self, CUevent, Recorded};
use crate::driver::ffi::{Out, in_host_function};
use crate::driver::graph::{HostWork, Work};
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};

fn stream_create(out: Out<CUstream>, flags: u32) -> CuResult<()> {
    stream_create_with_priority(out, flags, 0)
}

fn stream_create_with_priority(out: Out<CUstream>, flags: u32, priority: i32) -> CuResult<()> {
    out.check()?;
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    create_in(context::current_handle().unwrap_or(Handle::NULL), out, flags, priority)
}

fn stream_destroy(handle: CUstream) -> CuResult<()> {
    let stream = STREAMS.get(handle).ok_or_else(|| handle.refusal())?;
    stream.context.upgrade().map(Context::checked).transpose()?;
    capture::abandon(&stream);
    // Running work continues, because its job holds the stream.
    STREAMS.remove(handle).map(|_| ()).ok_or_else(|| handle.refusal())
}

fn stream_synchronize(handle: CUstream) -> CuResult<()> {
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    if stream.is_legacy() {
        context.predecessors(&stream).iter().for_each(Mark::wait);
    }
    stream.queue.end().wait();
    context.flush_printf();
    context.sticky().map_or(Ok(()), Err)
}

fn stream_query(handle: CUstream) -> CuResult<()> {
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    let idle =
        stream.queue.end().reached() && (!stream.is_legacy() || context.predecessors(&stream).is_empty());
    context.flush_printf();
    if let Some(error) = context.sticky() {
        return Err(error);
    }
    if idle { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

/// CU_EVENT_WAIT_EXTERNAL
const WAIT_EXTERNAL: u32 = 1;

fn stream_wait_event(handle: CUstream, event: CUevent, flags: u32) -> CuResult<()> {
    if flags & !WAIT_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    if flags & WAIT_EXTERNAL != 0
        && capture::add(&stream, || Ok(Work::EventWait(event, event::find_own(event)?)))?
    {
        return Ok(());
    }
    if flags & WAIT_EXTERNAL != 0 {
        // Only a graph can have such a node.
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let mark = match event::recorded(event)? {
        Recorded::Captured(captured) => return capture::join(&stream, &captured),
        Recorded::Never => return Ok(()),
        Recorded::Shared(shared, record) => {
            capture::isolate(&stream)?;
            if !shared.is_reached(record) {
                context.submit(&stream, Vec::new(), move |_, _| {
                    shared.wait(record);
                    Ok(())
                });
            }
            return Ok(());
        }
        Recorded::At(mark) => mark,
    };
    capture::isolate(&stream)?;
    if !mark.is_of(&stream.queue) && !mark.reached() {
        context.submit(&stream, vec![mark], |_, _| Ok(()));
    }
    Ok(())
}

fn stream_get_flags(handle: CUstream, flags: Out<u32>) -> CuResult<()> {
    flags.check()?;
    let (_, stream) = with_stream(handle)?;
    flags.set_if_wanted(if stream.non_blocking { CU_STREAM_NON_BLOCKING } else { 0 });
    Ok(())
}

fn stream_get_priority(handle: CUstream, priority: Out<i32>) -> CuResult<()> {
    priority.check()?;
    priority.set_if_wanted(with_stream(handle)?.1.priority);
    Ok(())
}

fn stream_get_id(handle: CUstream, id: Out<u64>) -> CuResult<()> {
    id.check()?;
    id.set_if_wanted(with_stream(handle)?.1.id);
    Ok(())
}

fn stream_get_ctx(handle: CUstream, out: Out<CUcontext>) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(context_handle(handle)?);
    Ok(())
}

fn stream_get_ctx_v2(handle: CUstream, out: Out<CUcontext>, green: Out<CUgreenCtx>) -> CuResult<()> {
    out.check()?;
    let (context, _) = with_stream(handle)?;
    green.set_if_wanted(green::of_context(context_handle(handle)?));
    out.set_if_wanted(context.handle);
    Ok(())
}

fn stream_get_device(handle: CUstream, device: Out<i32>) -> CuResult<()> {
    device.check()?;
    device.set_if_wanted(with_stream(handle)?.0.device.ordinal);
    Ok(())
}

type StreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;

fn launch_host_func(handle: CUstream, function: HostFunction, argument: *mut c_void) -> CuResult<()> {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    let work = HostWork { function, argument: argument as usize };
    if !capture::add(&stream, || Ok(Work::Host(work)))? {
        context.submit_work(&stream, move |_| work.run());
    }
    Ok(())
}

fn stream_add_callback(
    handle: CUstream,
    callback: StreamCallback,
    data: *mut c_void,
    flags: u32,
) -> CuResult<()> {
    let callback = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    let data = data as usize;
    context.submit(&stream, Vec::new(), move |_, sticky| {
        let status = sticky.unwrap_or(CUresult::CUDA_SUCCESS);
        // SAFETY: the caller passed a function that may be called with this argument until the stream got here.
        in_host_function(|| unsafe { callback(handle, status, data as *mut c_void) })
    });
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuStreamCreate => stream_create(out: Out<CUstream>, flags: u32);
    cuStreamCreateWithPriority => stream_create_with_priority(out: Out<CUstream>, flags: u32, priority: i32);
    cuStreamDestroy => stream_destroy(stream: CUstream);
    cuStreamDestroy_v2 => stream_destroy(stream: CUstream);
    cuStreamSynchronize + cuStreamSynchronize_ptsz => stream_synchronize(stream: CUstream);
    cuStreamQuery + cuStreamQuery_ptsz => stream_query(stream: CUstream);
    cuStreamWaitEvent + cuStreamWaitEvent_ptsz => stream_wait_event(stream: CUstream, event: CUevent, flags: u32);
    cuStreamGetFlags + cuStreamGetFlags_ptsz => stream_get_flags(stream: CUstream, flags: Out<u32>);
    cuStreamGetPriority + cuStreamGetPriority_ptsz => stream_get_priority(stream: CUstream, priority: Out<i32>);
    cuStreamGetId + cuStreamGetId_ptsz => stream_get_id(stream: CUstream, id: Out<u64>);
    cuStreamGetCtx + cuStreamGetCtx_ptsz => stream_get_ctx(stream: CUstream, context: Out<CUcontext>);
    cuStreamGetCtx_v2 + cuStreamGetCtx_v2_ptsz => stream_get_ctx_v2(
        stream: CUstream, context: Out<CUcontext>, green: Out<CUgreenCtx>);
    cuStreamGetDevice + cuStreamGetDevice_ptsz => stream_get_device(stream: CUstream, device: Out<i32>);
    cuLaunchHostFunc + cuLaunchHostFunc_ptsz => launch_host_func(
        stream: CUstream, function: HostFunction, argument: *mut c_void);
    cuStreamAddCallback + cuStreamAddCallback_ptsz => stream_add_callback(
        stream: CUstream, callback: StreamCallback, data: *mut c_void, flags: u32);
}
