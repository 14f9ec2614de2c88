// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuPointerGetAttribute(s): queries of an address.

use std::ffi::c_void;

use super::host as host_memory;
use crate::driver::context::{self, CUcontext};
use crate::driver::device::{self, CUdeviceptr, Device, Owner};
use crate::driver::ffi::{In, Out};
use crate::driver::handle::Handle;
use crate::driver::ipc;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::vmm as virtual_memory;
use crate::memory::{Range, RangeKind};

/// CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE
const HOST: u32 = 1;
const DEVICE: u32 = 2;
/// CU_DEVICE_INVALID
const NO_DEVICE: i32 = -2;
/// CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
const READ_WRITE: u32 = 3;

/// A valid address.
struct Found {
    device: &'static Device,
    range: Range,
    owner: Option<Owner>,
}

impl Found {
    fn new(ptr: u64) -> Option<Found> {
        let (device, range) = device::range_of(ptr)?;
        let mapped = if range.kind == RangeKind::Mapped { virtual_memory::device_of(ptr) } else { None };
        let device = mapped.unwrap_or(device);
        let owner = device.owner(range.base);
        // Host or managed memory that the program has freed in stream order no longer belongs to it, though the
        // stream may still use it. Device memory belongs to it until then.
        let is_freed = owner.is_none() && range.kind.is_everywhere();
        (!is_freed).then_some(Found { device, range, owner })
    }

    fn is_host(&self) -> bool {
        matches!(
            self.range.kind,
            RangeKind::HostAllocated
                | RangeKind::HostRegistered
                | RangeKind::HostPooled
                | RangeKind::HostMapped
        )
    }

    /// Returns whether the current device may access it, according to attributes. Only external memory belongs to one
    /// context, and only host pools to certain devices. All other memory counts as accessible.
    fn is_reached(&self) -> bool {
        if self.range.kind == RangeKind::External {
            return context::current_handle() == Some(self.context());
        }
        let pool = self.owner.as_ref().and_then(|owner| owner.pool.as_ref());
        let ordinal = device::current_or_first().map_or(0, |device| device.ordinal);
        self.range.kind != RangeKind::HostPooled || pool.is_none_or(|pool| pool.is_reached_by(ordinal))
    }

    fn context(&self) -> CUcontext {
        match &self.owner {
            // Memory of a pool belongs to no context.
            Some(owner) if owner.pool.is_some() => Handle::NULL,
            Some(owner) => owner.context,
            None => host_memory::context_of(self.range.base).unwrap_or(Handle::NULL),
        }
    }
}

/// Stores one attribute. For an address that does not belong to CUDA (`found` is `None`), stores the value of
/// NVIDIA's driver.
fn store(data: *mut c_void, attribute: u32, ptr: u64, found: Option<&Found>) -> CuResult<()> {
    // SAFETY: used for attributes of four bytes only, for which the caller's pointer is valid for writing as many.
    let word = |value: u32| unsafe { Out::new(data.cast::<u32>()) }.set_if_wanted(value);
    // SAFETY: used for attributes of eight bytes only, for which the caller's pointer is valid for writing as many.
    let wide = |value: u64| unsafe { Out::new(data.cast::<u64>()) }.set_if_wanted(value);
    // NVIDIA's driver stores booleans in four bytes.
    let flag = |value: bool| word(value.into());
    let managed = found.is_some_and(|found| found.range.kind == RangeKind::Managed);
    let host = found.is_some_and(Found::is_host);
    match attribute {
        1 => wide(found.map_or(0, |found| found.context().0 as u64)), // CONTEXT
        2 => word(found.map_or(0, |_| if host { HOST } else { DEVICE })), // MEMORY_TYPE
        3 => wide(found.filter(|found| found.is_reached()).map_or(0, |_| ptr)), // DEVICE_POINTER
        4 => wide(if found.is_none() || host || managed { ptr } else { 0 }), // HOST_POINTER
        6 => word(u32::from(found.is_some() && !host)),               // SYNC_MEMOPS
        7 => wide(found.map_or(0, |found| found.owner.as_ref().map_or(found.range.base, |owner| owner.id))), // BUFFER_ID
        8 => flag(managed), // IS_MANAGED
        9 => word(found.map_or(NO_DEVICE, |found| found.device.ordinal).cast_unsigned()), // DEVICE_ORDINAL
        10 => flag(found.is_some_and(|found| ipc::can_share(&found.range, found.owner.as_ref()))), // IS_LEGACY_CUDA_IPC_CAPABLE
        15 => flag(false), // IS_GPU_DIRECT_RDMA_CAPABLE
        11 | 19 => wide(found.map_or(0, |found| found.range.base)), // RANGE_START_ADDR, MAPPING_BASE_ADDR
        12 | 18 => wide(found.map_or(0, |found| found.range.bytes)), // RANGE_SIZE, MAPPING_SIZE
        13 => flag(found.is_some()), // MAPPED
        14 => wide(0),     // ALLOWED_HANDLE_TYPES
        16 => word(if found.is_some() { READ_WRITE } else { 0 }), // ACCESS_FLAGS
        17 => {
            let pool = found.and_then(|found| found.owner.as_ref()?.pool.as_ref());
            wide(pool.map_or(0, |pool| pool.publish().0 as u64)); // MEMPOOL_HANDLE
        }
        20 => wide(found.map_or(0, |found| found.range.base)), // MEMORY_BLOCK_ID
        5 => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),   // P2P_TOKENS
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn pointer_get_attribute(data: *mut c_void, attribute: u32, ptr: CUdeviceptr) -> CuResult<()> {
    if data.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let found = Found::new(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if attribute == 4 && found.range.kind == RangeKind::Device || attribute == 3 && !found.is_reached() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    store(data, attribute, ptr, Some(&found))
}

fn pointer_get_attributes(
    count: u32,
    attributes: In<u32>,
    data: In<*mut c_void>,
    ptr: CUdeviceptr,
) -> CuResult<()> {
    let found = Found::new(ptr);
    for index in 0..count as usize {
        let place = data.at(index)?;
        if place.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        store(place, attributes.at(index)?, ptr, found.as_ref())?;
    }
    Ok(())
}

fn pointer_set_attribute(value: In<u32>, attribute: u32, ptr: CUdeviceptr) -> CuResult<()> {
    value.get()?;
    Found::new(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: accepted without effect, because copies here are already as synchronous as it
    // requires.
    if attribute == 6 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

crate::driver::ffi::entries! { after_init
    cuPointerGetAttribute => pointer_get_attribute(data: *mut c_void, attribute: u32, ptr: CUdeviceptr);
    cuPointerGetAttributes => pointer_get_attributes(
        count: u32, attributes: In<u32>, data: In<*mut c_void>, ptr: CUdeviceptr);
    cuPointerSetAttribute => pointer_set_attribute(value: In<u32>, attribute: u32, ptr: CUdeviceptr);
}
