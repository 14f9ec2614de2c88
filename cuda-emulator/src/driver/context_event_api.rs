// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of whole contexts: arguments are checked, the calls are not served.

use super::context::{self, CUcontext};
use super::event::{self, CUevent};
use super::result::{CUresult, CuResult};

fn of_context(handle: CUcontext, event: CUevent) -> CuResult<()> {
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    if handle == CUcontext::NULL {
        return Err(none);
    }
    context::find_or_current(handle).map_err(|_| none)?;
    event::find(event)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

super::ffi::entries! { after_init
    cuCtxRecordEvent => of_context(context: CUcontext, event: CUevent);
    cuCtxWaitEvent => of_context(context: CUcontext, event: CUevent);
}
