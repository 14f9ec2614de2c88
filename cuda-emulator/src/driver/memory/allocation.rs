// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device and managed memory: allocation.

use crate::driver::capture;
use crate::driver::context;
use crate::driver::device::attributes::PITCH_ALIGNMENT;
use crate::driver::device::{self, CUdeviceptr};
use crate::driver::ffi::Out;
use crate::driver::graph;
use crate::driver::pool::home as pool_home;
use crate::driver::result::{CUresult, CuResult};
use crate::memory::RangeKind;

/// CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST
const ATTACH: [u32; 2] = [1, 2];

fn mem_alloc(out: Out<CUdeviceptr>, bytes: usize) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if bytes == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(context.device.allocate(context.handle, bytes as u64, RangeKind::Device, None)?);
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
    let kind = RangeKind::Device;
    out.set_if_wanted(context.device.allocate_aligned(context.handle, bytes, PITCH_ALIGNMENT, kind, None)?);
    pitch.set_if_wanted(row as usize);
    Ok(())
}

fn mem_alloc_managed(out: Out<CUdeviceptr>, bytes: usize, flags: u32) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    if bytes == 0 || !ATTACH.contains(&flags) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(context.device.allocate(context.handle, bytes as u64, RangeKind::Managed, None)?);
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
    free.set_if_wanted(context.device.memory.free_bytes() as usize);
    total.set_if_wanted(context.device.memory.total_bytes() as usize);
    Ok(())
}

fn mem_get_address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, ptr: CUdeviceptr) -> CuResult<()> {
    let current = context::current()?.device.ordinal;
    let (_, range) = device::range_of(ptr).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    if pool_home::pool_of(ptr).is_some_and(|pool| !pool.home.is_of_device() && !pool.is_reached_by(current)) {
        return Err(CUresult::CUDA_ERROR_NOT_FOUND);
    }
    base.set_if_wanted(range.base);
    bytes.set_if_wanted(range.bytes as usize);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemAlloc_v2 => mem_alloc(out: Out<CUdeviceptr>, bytes: usize);
    cuMemAllocPitch_v2 => mem_alloc_pitch(
        out: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32);
    cuMemAllocManaged => mem_alloc_managed(out: Out<CUdeviceptr>, bytes: usize, flags: u32);
    cuMemFree_v2 => mem_free(ptr: CUdeviceptr);
    cuMemGetInfo_v2 => mem_get_info(free: Out<usize>, total: Out<usize>);
    cuMemGetAddressRange_v2 => mem_get_address_range(base: Out<CUdeviceptr>, bytes: Out<usize>, ptr: CUdeviceptr);
}
