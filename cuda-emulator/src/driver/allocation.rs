// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device and managed memory: allocation, and what the driver is told about its use.

use super::attributes::PITCH_ALIGNMENT;
use super::capture;
use super::context;
use super::device::{self, CUdevice, CUdeviceptr};
use super::ffi::Out;
use super::graph;
use super::pool::CUmemLocation;
use super::result::{CUresult, CuResult};
use super::stream::{self, CUstream};
use crate::memory::RangeKind;

/// CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST
const ATTACH: [u32; 2] = [1, 2];
/// CU_MEM_ADVISE_SET_READ_MOSTLY ..= CU_MEM_ADVISE_UNSET_ACCESSED_BY
const ADVICE: std::ops::RangeInclusive<u32> = 1..=6;

fn mem_alloc(out: Out<CUdeviceptr>, bytes: usize) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if bytes == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set(context.device.allocate(context.handle, bytes as u64, RangeKind::Device, None)?);
    Ok(())
}

fn mem_alloc_pitch(
    out: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> CuResult<()> {
    out.check()?;
    pitch.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let row =
        (width as u64).checked_next_multiple_of(PITCH_ALIGNMENT).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let options = (RangeKind::Device, None);
    out.set(context.device.allocate_aligned(context.handle, bytes, PITCH_ALIGNMENT, options)?);
    pitch.set(row as usize);
    Ok(())
}

fn mem_alloc_managed(out: Out<CUdeviceptr>, bytes: usize, flags: u32) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if bytes == 0 || !ATTACH.contains(&flags) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set(context.device.allocate(context.handle, bytes as u64, RangeKind::Managed, None)?);
    Ok(())
}

fn mem_free(ptr: CUdeviceptr) -> CuResult<()> {
    let context = context::current()?;
    if ptr == 0 {
        return Ok(());
    }
    capture::check_safe()?;
    if graph::free_outside(ptr) {
        return Ok(());
    }
    let owners = device::all().iter().filter_map(|device| Some((device, device.disown(ptr)?)));
    let (device, owner) = owners.take(1).next().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // Work that still uses the memory ends first, as on the device.
    context.wait_idle();
    context.flush_printf();
    device.release(ptr, &owner)
}

fn mem_get_info(free: Out<usize>, total: Out<usize>) -> CuResult<()> {
    let context = context::current()?;
    free.set(context.device.memory.free_bytes() as usize);
    total.set(context.device.memory.total_bytes() as usize);
    Ok(())
}

fn mem_get_address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, ptr: CUdeviceptr) -> CuResult<()> {
    context::current()?;
    let (_, range) = device::range_of(ptr).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    base.set(range.base);
    bytes.set(range.bytes as usize);
    Ok(())
}

/// Checks a range of managed memory.
fn check_managed(ptr: CUdeviceptr, bytes: usize) -> CuResult<()> {
    let found = device::range_of(ptr).filter(|(_, range)| range.kind == RangeKind::Managed);
    let inside = found.is_some_and(|(_, range)| bytes > 0 && range.holds(ptr, bytes as u64));
    if inside { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// CU_MEM_LOCATION_TYPE_DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT
fn check_location(location: CUmemLocation) -> CuResult<()> {
    match location.kind {
        1 => device::device(location.id).map(|_| ()),
        2..=4 => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The location that a device ordinal of the older calls means; CU_DEVICE_CPU is -1.
fn location_of(ordinal: CUdevice) -> CUmemLocation {
    CUmemLocation { kind: if ordinal == -1 { 2 } else { 1 }, id: ordinal.max(0) }
}

fn mem_advise_v2(ptr: CUdeviceptr, bytes: usize, advice: u32, location: CUmemLocation) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, bytes)?;
    if !ADVICE.contains(&advice) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SET_READ_MOSTLY and UNSET_READ_MOSTLY, UNSET_PREFERRED_LOCATION take no location.
    if matches!(advice, 1 | 2 | 4) { Ok(()) } else { check_location(location) }
}

fn mem_advise(ptr: CUdeviceptr, bytes: usize, advice: u32, ordinal: CUdevice) -> CuResult<()> {
    mem_advise_v2(ptr, bytes, advice, location_of(ordinal))
}

fn mem_prefetch_async_v2(
    ptr: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, bytes)?;
    check_location(location)?;
    stream::with_stream(stream)?;
    // Managed memory is where everybody reaches it: nothing moves.
    if flags == 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn mem_prefetch_async(ptr: CUdeviceptr, bytes: usize, ordinal: CUdevice, stream: CUstream) -> CuResult<()> {
    mem_prefetch_async_v2(ptr, bytes, location_of(ordinal), 0, stream)
}

fn stream_attach_mem_async(stream: CUstream, ptr: CUdeviceptr, bytes: usize, flags: u32) -> CuResult<()> {
    stream::place_work(stream)?;
    check_managed(ptr, bytes.max(1))?;
    // CU_MEM_ATTACH_GLOBAL, HOST or SINGLE; access is never restricted.
    if matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

super::ffi::entries! { after_init
    cuMemAlloc_v2 => mem_alloc(out: Out<CUdeviceptr>, bytes: usize);
    cuMemAllocPitch_v2 => mem_alloc_pitch(
        out: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemAllocManaged => mem_alloc_managed(out: Out<CUdeviceptr>, bytes: usize, flags: u32);
    cuMemFree_v2 => mem_free(ptr: CUdeviceptr);
    cuMemGetInfo_v2 => mem_get_info(free: Out<usize>, total: Out<usize>);
    cuMemGetAddressRange_v2 => mem_get_address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, ptr: CUdeviceptr);
    cuMemAdvise => mem_advise(ptr: CUdeviceptr, bytes: usize, advice: u32, device: CUdevice);
    cuMemAdvise_v2 => mem_advise_v2(ptr: CUdeviceptr, bytes: usize, advice: u32, location: CUmemLocation);
    cuMemPrefetchAsync + cuMemPrefetchAsync_ptsz => mem_prefetch_async(
        ptr: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_v2 + cuMemPrefetchAsync_v2_ptsz => mem_prefetch_async_v2(
        ptr: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream);
    cuStreamAttachMemAsync + cuStreamAttachMemAsync_ptsz => stream_attach_mem_async(
        stream: CUstream, ptr: CUdeviceptr, bytes: usize, flags: u32);
}
