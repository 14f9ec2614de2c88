// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of cuMemAlloc that other processes map, too.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exchange::{self, IpcHandle, Token};
use super::offers;
use crate::driver::capture;
use crate::driver::context::{self, CUcontext};
use crate::driver::device::{self, CUdeviceptr, Device, Owner};
use crate::driver::ffi::Out;
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::memory::{Range, RangeKind};

/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// The memory of other processes that this one has mapped.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    token: Token,
    context: CUcontext,
    device: &'static Device,
    ptr: CUdeviceptr,
    /// The number of times that cuIpcCloseMemHandle must be called.
    count: u64,
}

fn opened() -> MutexGuard<'static, Vec<Opened>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the memory that a context has opened, when it ends.
pub(in crate::driver) fn forget_all_of(context: CUcontext) {
    for opened in opened().extract_if(.., |opened| opened.context == context) {
        opened.device.memory.free(opened.ptr);
    }
}

/// Returns whether cuIpcGetMemHandle accepts an allocation: one of cuMemAlloc, but neither managed memory, nor memory
/// of a pool or graph, nor memory that another process has shared.
pub(in crate::driver) fn can_share(range: &Range, owner: Option<&Owner>) -> bool {
    let plain = |owner: &Owner| owner.pool.is_none() && owner.context != Handle::NULL;
    range.kind == RangeKind::Device && owner.is_some_and(plain)
}

fn get_mem_handle(out: Out<IpcHandle>, ptr: CUdeviceptr) -> CuResult<()> {
    out.check()?;
    context::current()?;
    capture::check_safe()?;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let (device, range) = device::range_of(ptr).ok_or(invalid)?;
    if !can_share(&range, device.owner(range.base).as_ref()) {
        return Err(invalid);
    }
    if let Some(handle) = offers::of(range.base) {
        out.set_if_wanted(handle);
        return Ok(());
    }
    // The memory is moved to a file of its own.
    context::wait_all_idle();
    let file = device.memory.export(range.base).map_err(|error| {
        log::error!("an allocation cannot be shared: {error}");
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })?;
    out.set_if_wanted(offers::add(range.base, exchange::offer(file, range.bytes)?));
    Ok(())
}

fn open_mem_handle(out: Out<CUdeviceptr>, handle: IpcHandle, flags: u32) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if flags & !LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    handle.check()?;
    if handle.is_own() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // Held throughout, so that two threads do not map the same memory twice.
    let mut opened = opened();
    let same = |opened: &&mut Opened| opened.token == handle.token && opened.context == context.handle;
    if let Some(known) = opened.iter_mut().find(same) {
        known.count += 1;
        out.set_if_wanted(known.ptr);
        return Ok(());
    }
    let bytes = u64::from_ne_bytes(handle.bytes);
    let ptr = context.device.memory.import(handle.fetch()?, bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::OutOfMemory => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        _ => CUresult::CUDA_ERROR_MAP_FAILED,
    })?;
    let (token, context, device) = (handle.token, context.handle, context.device);
    opened.push(Opened { token, context, device, ptr, count: 1 });
    out.set_if_wanted(ptr);
    Ok(())
}

fn close_mem_handle(ptr: CUdeviceptr) -> CuResult<()> {
    context::current()?;
    capture::check_safe()?;
    // Work that still uses the memory ends first.
    context::wait_all_idle();
    let mut opened = opened();
    let place = opened.iter().position(|opened| opened.ptr == ptr);
    let place = place.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    opened[place].count -= 1;
    if opened[place].count == 0 {
        let removed = opened.swap_remove(place);
        removed.device.memory.free(ptr);
    }
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuIpcGetMemHandle => get_mem_handle(out: Out<IpcHandle>, ptr: CUdeviceptr);
    cuIpcOpenMemHandle => open_mem_handle(out: Out<CUdeviceptr>, handle: IpcHandle, flags: u32);
    cuIpcOpenMemHandle_v2 => open_mem_handle(out: Out<CUdeviceptr>, handle: IpcHandle, flags: u32);
    cuIpcCloseMemHandle => close_mem_handle(ptr: CUdeviceptr);
}
