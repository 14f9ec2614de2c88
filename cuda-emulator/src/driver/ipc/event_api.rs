// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that other processes record and wait for, too.

use super::exchange::IpcHandle;
use super::shared_event::SharedEvent;
use crate::driver::context;
use crate::driver::event::{self, CUevent};
use crate::driver::ffi::Out;
use crate::driver::result::{CUresult, CuResult};

fn get_event_handle(out: Out<IpcHandle>, event: CUevent) -> CuResult<()> {
    out.check()?;
    if event == CUevent::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let event = event::find(event)?;
    // Only events of CU_EVENT_INTERPROCESS.
    let shared = event.shared().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    out.set_if_wanted(shared.handle()?);
    Ok(())
}

fn open_event_handle(out: Out<CUevent>, handle: IpcHandle) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    handle.check().map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
    if handle.is_own() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    out.set_if_wanted(event::adopt(&context, SharedEvent::open(&handle)?));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuIpcGetEventHandle => get_event_handle(out: Out<IpcHandle>, event: CUevent);
    cuIpcOpenEventHandle => open_event_handle(out: Out<CUevent>, handle: IpcHandle);
}
