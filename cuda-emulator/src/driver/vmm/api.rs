// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of virtual memory management.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use cuda_abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use super::AllocationProperties as _;
use crate::driver::capture;
use crate::driver::context;
use crate::driver::device::{self, CUdeviceptr, device};
use crate::driver::ffi::{In, Out};
use crate::driver::pool::home as pool_home;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::vmm::{self, CUmemGenericAllocationHandle, GRANULARITY, Reader};
use crate::memory::RangeKind;

/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const FILE_DESCRIPTOR: u32 = 1;
/// CU_MEM_ACCESS_FLAGS_PROT_READWRITE
const READ_WRITE: u64 = 3;
/// The maximum number of devices in one cuMemSetAccess.
const MAX_DESCRIPTIONS: usize = 64;

fn check_flags(flags: u64) -> CuResult<()> {
    if flags == 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn create(
    out: Out<CUmemGenericAllocationHandle>,
    bytes: usize,
    prop: In<CUmemAllocationProp>,
    flags: u64,
) -> CuResult<()> {
    out.check()?;
    check_flags(flags)?;
    capture::check_safe()?;
    out.set_if_wanted(vmm::create(bytes as u64, prop.get()?)?);
    Ok(())
}

fn release(handle: CUmemGenericAllocationHandle) -> CuResult<()> {
    vmm::release(handle)
}

fn address_reserve(
    out: Out<CUdeviceptr>,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> CuResult<()> {
    out.check()?;
    check_flags(flags)?;
    out.set_if_wanted(vmm::reserve(bytes as u64, alignment as u64, hint)?);
    Ok(())
}

fn address_free(ptr: CUdeviceptr, bytes: usize) -> CuResult<()> {
    vmm::free(ptr, bytes as u64)
}

fn map(
    ptr: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CuResult<()> {
    check_flags(flags)?;
    vmm::map(ptr, bytes as u64, offset as u64, handle)
}

fn unmap(ptr: CUdeviceptr, bytes: usize) -> CuResult<()> {
    capture::check_safe()?;
    context::wait_all_idle();
    vmm::unmap(ptr, bytes as u64)
}

fn set_access(
    ptr: CUdeviceptr,
    bytes: usize,
    descriptions: In<CUmemAccessDesc>,
    count: usize,
) -> CuResult<()> {
    if count == 0 || count > MAX_DESCRIPTIONS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut access = Vec::with_capacity(count);
    for index in 0..count {
        let description = descriptions.at(index)?;
        // None, read, read and write.
        if !matches!(description.flags, 0 | 1 | 3) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let reader = match description.location {
            CUmemLocation { kind: pool_home::DEVICE, id } => Reader::Device(device(id)?.ordinal),
            location if pool_home::is_host(location) => Reader::Host,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        access.push((reader, description.flags));
    }
    vmm::set_access(ptr, bytes as u64, &access)
}

fn get_access(flags: Out<u64>, location: In<CUmemLocation>, ptr: CUdeviceptr) -> CuResult<()> {
    flags.check()?;
    let location = location.get()?;
    if ptr == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if pool_home::is_host(location) && vmm::is_host(ptr) {
        flags.set_if_wanted(vmm::access(ptr, Reader::Host)?.into());
        return Ok(());
    }
    let mapping = device::range_of(ptr).is_some_and(|(_, range)| range.kind == RangeKind::Mapped);
    if pool_home::is_host(location) && mapping {
        // The host is not guaranteed access to a device's memory.
        flags.set_if_wanted(0);
        return Ok(());
    }
    if location.kind != 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let device = device(location.id)?;
    if device::range_of(ptr).is_some_and(|(_, range)| range.kind == RangeKind::External) {
        flags.set_if_wanted(0);
        return Ok(());
    }
    let mapped = vmm::access(ptr, Reader::Device(device.ordinal));
    // Memory of cuMemAlloc belongs to its device.
    let owned = device::range_of(ptr)
        .is_some_and(|(owner, range)| range.kind == RangeKind::Device && owner.ordinal == device.ordinal);
    flags.set_if_wanted(if owned { READ_WRITE } else { mapped?.into() });
    Ok(())
}

fn get_granularity(out: Out<usize>, prop: In<CUmemAllocationProp>, option: u32) -> CuResult<()> {
    out.check()?;
    prop.get()?.device()?;
    if option > 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(GRANULARITY as usize);
    Ok(())
}

fn get_properties(prop: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle) -> CuResult<()> {
    prop.check()?;
    prop.set_if_wanted(vmm::find(handle)?.prop);
    Ok(())
}

fn retain_handle(out: Out<CUmemGenericAllocationHandle>, ptr: *mut c_void) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(vmm::retain(ptr as u64)?);
    Ok(())
}

fn export(out: *mut c_void, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64) -> CuResult<()> {
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    check_flags(flags)?;
    let physical = vmm::find(handle)?;
    if kind != FILE_DESCRIPTOR || physical.prop.handle_types & FILE_DESCRIPTOR == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let copy = physical.file.try_clone().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    // SAFETY: the caller's pointer, valid for writing a handle of the kind that it asks for, which is a descriptor.
    unsafe { Out::new(out.cast::<i32>()) }.set_if_wanted(copy.into_raw_fd());
    Ok(())
}

fn import(out: Out<CUmemGenericAllocationHandle>, shared: *mut c_void, kind: u32) -> CuResult<()> {
    out.check()?;
    match kind {
        FILE_DESCRIPTOR => {}
        // Windows and fabric handles.
        2 | 4 | 8 => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    // The descriptor itself is passed in the pointer.
    let descriptor = i32::try_from(shared as usize).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    out.set_if_wanted(vmm::import(descriptor)?);
    Ok(())
}

/// Refuses the arguments that NVIDIA's driver refuses, too. Valid handles would be for other devices of the machine.
fn get_range_handle(out: Out<i32>, ptr: CUdeviceptr, bytes: usize, kind: u32, flags: u64) -> CuResult<()> {
    /// The granularity of addresses and sizes, in bytes.
    const UNIT: u64 = 4096;
    out.check()?;
    let whole = ptr.is_multiple_of(UNIT) && bytes > 0 && (bytes as u64).is_multiple_of(UNIT);
    let range = device::range_of(ptr).map(|(_, range)| range.kind);
    let of_device = matches!(range, Some(RangeKind::Device | RangeKind::Mapped));
    if !whole || kind != 1 || flags > 1 || !of_device {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

crate::driver::ffi::entries! { after_init
    cuMemGetHandleForAddressRange => get_range_handle(
        out: Out<i32>, ptr: CUdeviceptr, bytes: usize, kind: u32, flags: u64);
    cuMemCreate => create(
        out: Out<CUmemGenericAllocationHandle>, bytes: usize, prop: In<CUmemAllocationProp>, flags: u64);
    cuMemRelease => release(handle: CUmemGenericAllocationHandle);
    cuMemAddressReserve => address_reserve(
        out: Out<CUdeviceptr>, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64);
    cuMemAddressFree => address_free(ptr: CUdeviceptr, bytes: usize);
    cuMemMap => map(
        ptr: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    cuMemUnmap => unmap(ptr: CUdeviceptr, bytes: usize);
    cuMemSetAccess => set_access(
        ptr: CUdeviceptr, bytes: usize, descriptions: In<CUmemAccessDesc>, count: usize);
    cuMemGetAccess => get_access(flags: Out<u64>, location: In<CUmemLocation>, ptr: CUdeviceptr);
    cuMemGetAllocationGranularity => get_granularity(out: Out<usize>, prop: In<CUmemAllocationProp>, option: u32);
    cuMemGetAllocationPropertiesFromHandle => get_properties(
        prop: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle => retain_handle(out: Out<CUmemGenericAllocationHandle>, ptr: *mut c_void);
    cuMemExportToShareableHandle => export(
        out: *mut c_void, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64);
    cuMemImportFromShareableHandle => import(
        out: Out<CUmemGenericAllocationHandle>, shared: *mut c_void, kind: u32);
}
