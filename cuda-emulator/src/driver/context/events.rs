// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of whole contexts.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::driver::capture;
use crate::driver::context::{self, CUcontext, Context};
use crate::driver::event::{self, CUevent, Recorded};
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};

fn find(handle: CUcontext) -> CuResult<Arc<Context>> {
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    context::find_given(handle)?.checked()
}

/// Makes all present work of a context the event's latest record.
pub(crate) fn record(handle: CUcontext, event: CUevent) -> CuResult<()> {
    let context = find(handle)?;
    let event = event::find(event)?;
    if !event.is_of(&context) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    capture::refuse_any(&context)?;
    let at = Arc::new(OnceLock::new());
    let stamp = Arc::clone(&at);
    let shared = event.begin_shared();
    let mark = context.submit_aside(context.ends(), move |_, _| {
        stamp.get_or_init(Instant::now);
        if let Some((shared, record)) = shared {
            shared.reach(record);
        }
        Ok(())
    });
    event.set_record(mark, at);
    Ok(())
}

/// Makes all later work of a context wait for the event's latest record.
pub(crate) fn wait(handle: CUcontext, event: CUevent) -> CuResult<()> {
    let context = find(handle)?;
    event::find(event)?;
    capture::refuse_any(&context)?;
    match event::recorded(event)? {
        Recorded::Never => {}
        Recorded::At(mark) => context.wait_for(mark),
        Recorded::Shared(shared, record) => {
            context.wait_for(context.submit_aside(Vec::new(), move |_, _| {
                shared.wait(record);
                Ok(())
            }))
        }
        Recorded::Captured(captured) => {
            capture::invalidate(&captured);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuCtxRecordEvent => record(context: CUcontext, event: CUevent);
    cuCtxWaitEvent => wait(context: CUcontext, event: CUevent);
}
