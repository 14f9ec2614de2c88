// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a context, and of all its objects.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::{CONTEXTS, CUcontext, Context, current_handle, find, pop_handle};
use crate::driver::device::Device;
use crate::driver::memory::host as host_memory;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::{array, event, external, ipc, module, texture, trace};

/// Ends all objects of a context, after its work.
fn end(context: &Context) {
    trace::context_ends(context.handle.0 as *mut c_void);
    context.forget();
    context.wait_idle();
    context.flush_printf();
    module::forget_modules(context);
    event::forget_events(context);
    texture::forget_objects(context);
    array::forget_arrays(context);
    external::forget_all_of(context);
    context.forget_streams();
    host_memory::free_all_of(context.handle);
    ipc::forget_all_of(context.handle);
    context.device.free_all_of(context.handle);
    if context.primary {
        context.device.fault.primary_context_ended();
    }
}

/// cuCtxDestroy
pub(in crate::driver) fn destroy(handle: CUcontext) -> CuResult<()> {
    let context = CONTEXTS.get(handle).filter(|context| !context.primary);
    end(&*context.ok_or_else(|| handle.refusal())?);
    if current_handle() == Some(handle) {
        pop_handle();
    }
    Ok(())
}

/// cuCtxDetach: removes one holder of the current context, which ends without holders.
pub(super) fn detach(handle: CUcontext) -> CuResult<()> {
    if current_handle() != Some(handle) {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = find(handle)?;
    let less = |count: u32| count.checked_sub(1);
    if context.attached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return Ok(());
    }
    if context.primary { release_primary(context.device) } else { destroy(handle) }
}

/// cuDevicePrimaryCtxRelease
pub(super) fn release_primary(device: &Device) -> CuResult<()> {
    device.primary.release(end)
}

/// cuDevicePrimaryCtxReset
pub(super) fn reset_primary(device: &Device) {
    device.primary.reset(end);
}
