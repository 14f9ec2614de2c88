// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned host memory: cuMemHostAlloc, cuMemHostRegister. Its device pointer is its address, on every device.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::capture;
use crate::driver::context::{self, CUcontext};
use crate::driver::device::{self, CUdeviceptr};
use crate::driver::ffi::Out;
use crate::driver::pool::home as pool_home;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::vmm::spare;
use crate::memory::RangeKind;

const PAGE: usize = 4096;
/// CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED
const ALLOC_FLAGS: u32 = 7;
/// CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP | IOMEMORY | READ_ONLY
const REGISTER_FLAGS: u32 = 0xf;
const REGISTER_IOMEMORY: u32 = 4;
const REGISTER_READ_ONLY: u32 = 8;
/// CU_MEMHOSTALLOC_DEVICEMAP, which unified addressing implies.
const DEVICEMAP: u32 = 2;

/// Pinned memory by address.
static HOST: Mutex<BTreeMap<usize, Pinned>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Pinned {
    bytes: usize,
    flags: u32,
    context: CUcontext,
    /// True if it was allocated here, at addresses of [`spare`], and not registered.
    allocated: bool,
}

fn host() -> MutexGuard<'static, BTreeMap<usize, Pinned>> {
    HOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the context that pinned the memory that begins at `base`.
pub(crate) fn context_of(base: u64) -> Option<CUcontext> {
    host().get(&(base as usize)).map(|pinned| pinned.context)
}

/// Makes memory valid on all devices. Returns false, without a change, when it overlaps other valid memory.
fn add_range(base: usize, bytes: usize, kind: RangeKind) -> bool {
    let devices = device::all();
    let refused =
        devices.iter().position(|device| !device.memory.add_host_range(base as u64, bytes as u64, kind));
    if let Some(refused) = refused {
        for device in &devices[..refused] {
            device.memory.remove_host_range(base as u64);
        }
    }
    refused.is_none()
}

fn remove_range(base: usize) {
    for device in device::all() {
        device.memory.remove_host_range(base as u64);
    }
}

fn release(base: usize, pinned: Pinned) {
    remove_range(base);
    if pinned.allocated {
        // Another thread may have queued work since the devices were idle, and that work may have found the range just before.
        // SAFETY: `allocate` got exactly these addresses, the table entry that said so is gone, and so are the ranges.
        unsafe { spare::give_back(base as u64, pinned.bytes.next_multiple_of(PAGE) as u64) };
    }
}

/// Frees and unregisters the remaining memory of a context that ends.
pub(crate) fn free_all_of(context: CUcontext) {
    let left: Vec<_> = host().extract_if(.., |_, pinned| pinned.context == context).collect();
    for (base, pinned) in left {
        release(base, pinned);
    }
}

fn allocate(bytes: usize, flags: u32) -> CuResult<*mut c_void> {
    let context = context::current()?;
    capture::check_safe()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let length = bytes.checked_next_multiple_of(PAGE).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let place = spare::reserve(length as u64, PAGE as u64, 0)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let mapping = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the place is this function's alone.
    let base = unsafe { libc::mmap(place as *mut c_void, length, protection, mapping, -1, 0) };
    if base == libc::MAP_FAILED {
        // SAFETY: the place is this function's alone, and no device knows it.
        unsafe { spare::give_back(place, length as u64) };
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let pinned = Pinned { bytes, flags, context: context.handle, allocated: true };
    if !add_range(base as usize, bytes, RangeKind::HostAllocated) {
        release(base as usize, pinned);
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    host().insert(base as usize, pinned);
    Ok(base)
}

fn mem_host_alloc(out: Out<*mut c_void>, bytes: usize, flags: u32) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(allocate(bytes, flags)?);
    Ok(())
}

fn mem_alloc_host(out: Out<*mut c_void>, bytes: usize) -> CuResult<()> {
    mem_host_alloc(out, bytes, 0)
}

/// Removes an entry from the table if it is of the right kind.
fn take(pointer: *mut c_void, allocated: bool) -> Option<Pinned> {
    let mut host = host();
    host.get(&(pointer as usize)).filter(|pinned| pinned.allocated == allocated)?;
    host.remove(&(pointer as usize))
}

fn mem_free_host(pointer: *mut c_void) -> CuResult<()> {
    context::current()?;
    if pointer.is_null() {
        return Ok(());
    }
    capture::check_safe()?;
    let pinned = take(pointer, true).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    context::wait_all_idle();
    release(pointer as usize, pinned);
    Ok(())
}

/// Populates the pages, as pinning does. Fails where there is no such memory or it must not be used that way.
fn populate(base: usize, bytes: usize, writable: bool) -> CuResult<()> {
    let start = base / PAGE * PAGE;
    let end = base.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
    let length = end.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? - start;
    let advice = if writable { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    loop {
        // SAFETY: populating changes no content; the kernel checks the range.
        if unsafe { libc::madvise(start as *mut c_void, length, advice) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// An upper bound for the memory of a process.
const MAX_REGISTERED: usize = 1 << 47;

fn mem_host_register(pointer: *mut c_void, bytes: usize, flags: u32) -> CuResult<()> {
    let context = context::current()?;
    capture::check_safe()?;
    if pointer.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if flags & REGISTER_IOMEMORY != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let base = pointer as usize;
    if bytes > MAX_REGISTERED && base.checked_add(bytes).is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if find(pointer).is_ok_and(|pinned| pinned.allocated) || pool_home::pool_of(pointer as u64).is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    populate(base, bytes, flags & REGISTER_READ_ONLY == 0)?;
    if !add_range(base, bytes, RangeKind::HostRegistered) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    host().insert(base, Pinned { bytes, flags, context: context.handle, allocated: false });
    Ok(())
}

fn mem_host_unregister(pointer: *mut c_void) -> CuResult<()> {
    context::current()?;
    capture::check_safe()?;
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let pinned = take(pointer, false).ok_or_else(|| match find(pointer) {
        // Allocated, or inside a registered range.
        Err(_) if pool_home::pool_of(pointer as u64).is_some() => CUresult::CUDA_ERROR_INVALID_VALUE,
        Ok(_) => CUresult::CUDA_ERROR_INVALID_VALUE,
        Err(_) => CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    })?;
    context::wait_all_idle();
    release(pointer as usize, pinned);
    Ok(())
}

fn find(pointer: *mut c_void) -> CuResult<Pinned> {
    let host = host();
    let (base, pinned) =
        host.range(..=pointer as usize).next_back().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let inside = pointer as usize - base < pinned.bytes;
    if inside { Ok(*pinned) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn mem_host_get_device_pointer(out: Out<CUdeviceptr>, pointer: *mut c_void, flags: u32) -> CuResult<()> {
    out.check()?;
    context::current()?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    find(pointer)?;
    out.set_if_wanted(pointer as u64);
    Ok(())
}

fn mem_host_get_flags(flags: Out<u32>, pointer: *mut c_void) -> CuResult<()> {
    flags.check()?;
    context::current()?;
    flags.set_if_wanted(find(pointer)?.flags | DEVICEMAP);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemHostAlloc => mem_host_alloc(out: Out<*mut c_void>, bytes: usize, flags: u32);
    cuMemAllocHost_v2 => mem_alloc_host(out: Out<*mut c_void>, bytes: usize);
    cuMemFreeHost => mem_free_host(pointer: *mut c_void);
    cuMemHostRegister => mem_host_register(pointer: *mut c_void, bytes: usize, flags: u32);
    cuMemHostRegister_v2 => mem_host_register(pointer: *mut c_void, bytes: usize, flags: u32);
    cuMemHostUnregister => mem_host_unregister(pointer: *mut c_void);
    cuMemHostGetDevicePointer_v2 => mem_host_get_device_pointer(
        out: Out<CUdeviceptr>, pointer: *mut c_void, flags: u32);
    cuMemHostGetFlags => mem_host_get_flags(flags: Out<u32>, pointer: *mut c_void);
}
