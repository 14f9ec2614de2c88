// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Virtual memory management. The worker manages device memory. This process manages host memory ([`host`]) and most
//! reservations ([`places`]).

mod host;
pub mod parked;
mod places;

use cuda_abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};
use virtio_cuda_client::protocol::{AllocationId, AllocationProperties, DevicePtr};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::handles::{Kind, new_handle};
use crate::state::devices::LOCATION_DEVICE;
use crate::state::externals::EXTERNAL;
use crate::state::memory::ranges::DeviceRange;
use crate::state::reservations::{Bound, Part, Reader, State};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST` and `CU_MEM_LOCATION_TYPE_HOST_NUMA`.
const HOST_LOCATIONS: [u32; 2] = [2, 3];
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;
/// `CU_MEM_HANDLE_TYPE_WIN32`, which does not exist on this system.
const HANDLE_TYPE_WIN32: u32 = 2;
/// `CU_MEM_HANDLE_TYPE_FABRIC`, which needs a fabric of GPUs; and all valid types.
const HANDLE_TYPE_FABRIC: u32 = 8;
const HANDLE_TYPES: u32 = 0xf;
/// Maximum number of locations per call; more than a machine has.
const MAX_DESCRIPTIONS: usize = 1024;
/// Sizes are multiples of at least this many bytes.
const ALLOCATION_UNIT: usize = 4096;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD` and `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const RANGE_HANDLE_DMA_BUF: u32 = 1;
const RANGE_FLAG_MAPPING_PCIE: u64 = 1;

/// Refuses properties that are invalid for every device.
fn check(properties: &CUmemAllocationProp) -> Result<(), CudaError> {
    let known =
        (1..=3).contains(&properties.location.kind) && properties.handle_types & HANDLE_TYPE_WIN32 == 0;
    if !known || properties.compression > 1 || properties.reserved != [0; 4] {
        return Err(CudaError::INVALID_VALUE);
    }
    if properties.handle_types & HANDLE_TYPE_FABRIC != 0 {
        return Err(CudaError::NOT_PERMITTED);
    }
    Ok(())
}

fn on_wire(api: Api, properties: &CUmemAllocationProp) -> AllocationProperties {
    AllocationProperties {
        kind: properties.kind,
        // NVIDIA's driver ignores bits without a meaning.
        handle_types: properties.handle_types & HANDLE_TYPES,
        location: api.driver.devices.to_worker(properties.location),
        compression: properties.compression.into(),
        gpu_direct_rdma: properties.gpu_direct_rdma.into(),
        usage: properties.usage.into(),
    }
}

/// Refuses managed memory: only this library may change the mapping of its device memory.
fn not_managed(api: Api, address: u64) -> Result<(), CudaError> {
    if api.driver.memory.moving.at(address).is_none() { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Returns the properties of an allocation, which may differ from the requested ones.
///
/// Errors: `CUDA_ERROR_INVALID_DEVICE` if it is on a device that the program does not see.
pub fn of_allocation(api: Api, handle: u64) -> Result<CUmemAllocationProp, CudaError> {
    if let Some(allocation) = api.driver.vmm.host(handle) {
        return Ok(allocation.properties);
    }
    let from = calls::cuMemGetAllocationPropertiesFromHandle(&mut api.call(), AllocationId(handle))?;
    Ok(CUmemAllocationProp {
        kind: from.kind,
        handle_types: from.handle_types,
        location: api.driver.devices.to_program(from.location)?,
        win32_metadata: 0,
        compression: from.compression as u8,
        gpu_direct_rdma: from.gpu_direct_rdma as u8,
        usage: from.usage as u16,
        reserved: [0; 4],
    })
}

/// Maps device memory.
fn map_device(
    api: Api,
    address: u64,
    bytes: u64,
    offset: u64,
    handle: u64,
    flags: u64,
) -> Result<(), CudaError> {
    let mut state = api.driver.vmm.lock();
    if let Some((base, reserved)) = state.around(address) {
        // The worker has reserved the rest of the slot, too, so it would not refuse this.
        if address.checked_add(bytes).is_none_or(|end| end > base + reserved.bytes) {
            return Err(CudaError::INVALID_VALUE);
        }
        places::bind(api, &mut state, base, Bound::Device)?;
    }
    let (call, name) = (&mut api.call(), AllocationId(handle));
    let location = calls::cuMemMap(call, DevicePtr(address), bytes, offset, name, flags)?;
    let location = api.driver.devices.to_program(location)?;
    let ranges = &api.driver.memory.ranges;
    ranges.add_device(DeviceRange {
        start: address,
        bytes,
        // The mapping belongs to no context, and cannot be freed with cuMemFree.
        context: 0,
        device: location.id as u32,
        id: ranges.next_id(),
        owner: handle,
        pool: 0,
        reachable: false,
    });
    Ok(())
}

/// Unmaps memory.
fn unmap(api: Api, address: u64, bytes: u64) -> Result<(), CudaError> {
    let mut state = api.driver.vmm.lock();
    for part in state.parts(address, bytes)? {
        match part {
            Part::Host(bases) => host::unmap(api, &mut state, &bases)?,
            Part::Worker(places) => {
                let bytes = places.end - places.start;
                calls::cuMemUnmap(&mut api.call(), DevicePtr(places.start), bytes)?;
                api.driver.memory.ranges.remove_device_in(places);
            }
            Part::Empty(_) => {}
        }
    }
    Ok(())
}

/// Sets the access of locations to mappings.
fn set_access(api: Api, address: u64, bytes: u64, access: &[CUmemAccessDesc]) -> Result<(), CudaError> {
    let mut state = api.driver.vmm.lock();
    let parts = state.parts(address, bytes)?;
    if parts.iter().any(|part| matches!(part, Part::Empty(_))) {
        return Err(CudaError::INVALID_VALUE);
    }
    for part in parts {
        match part {
            Part::Host(bases) => {
                bases.iter().try_for_each(|&base| host::set_access(api, &mut state, base, access))?;
            }
            Part::Worker(places) => {
                access.iter().try_for_each(|one| set_device_access(api, places.clone(), *one))?;
            }
            Part::Empty(_) => {}
        }
    }
    Ok(())
}

/// Sets the access of a location to mappings of device memory.
fn set_device_access(
    api: Api,
    places: std::ops::Range<u64>,
    access: CUmemAccessDesc,
) -> Result<(), CudaError> {
    let CUmemAccessDesc { location, flags } = access;
    let (at, bytes) = (DevicePtr(places.start), places.end - places.start);
    calls::cuMemSetAccess(&mut api.call(), at, bytes, api.driver.devices.to_worker(location), flags)?;
    if location.kind == LOCATION_DEVICE {
        api.driver.memory.ranges.set_reachable(places, location.id as u32, flags == READ_WRITE);
    }
    Ok(())
}

/// Returns the access of a location to host memory of `cuMemCreate`, if some is mapped at the address.
fn host_access(state: &State, location: CUmemLocation, address: u64) -> Option<u64> {
    let (_, map) = state.map_at(address)?;
    Some(map.access.get(&Reader::at(location)).copied().unwrap_or(0).into())
}

entry_points! {
    /// Reserves addresses.
    call cuMemAddressReserve(api, ptr: Out<u64>, size: usize, alignment: usize, addr: u64, flags: u64) {
        ptr.check()?;
        if !addr.is_multiple_of(ALLOCATION_UNIT as u64) {
            return Err(CudaError::INVALID_VALUE);
        }
        if let Some(at) = places::reserve(api, size as u64, alignment as u64, addr, flags) {
            return ptr.set(at);
        }
        let call = &mut api.call();
        let at = calls::cuMemAddressReserve(call, size as u64, alignment as u64, DevicePtr(addr), flags)?.0;
        api.driver.memory.claims.claim(at, size as u64);
        ptr.set(at)
    }

    /// Allocates memory without an address.
    call cuMemCreate(api, handle: Out<u64>, size: usize, prop: In<CUmemAllocationProp>, flags: u64) {
        handle.check()?;
        let wanted = prop.get()?;
        check(&wanted)?;
        if !size.is_multiple_of(ALLOCATION_UNIT) {
            return Err(CudaError::INVALID_VALUE);
        }
        if HOST_LOCATIONS.contains(&wanted.location.kind) {
            return handle.set(host::create(api, size as u64, wanted, flags)?);
        }
        let properties = on_wire(api, &wanted);
        let name = new_handle(Kind::Other);
        calls::cuMemCreate(&mut api.call(), AllocationId(name), size as u64, properties, flags)?;
        handle.set(name)
    }

    /// Frees reserved addresses.
    call cuMemAddressFree(api, ptr: u64, size: usize) {
        if places::free(api, ptr, size as u64)? {
            return Ok(());
        }
        calls::cuMemAddressFree(&mut api.call(), DevicePtr(ptr), size as u64)
    }

    /// Releases one reference to an allocation.
    call cuMemRelease(api, handle: u64) {
        if api.driver.vmm.any_host() && api.driver.vmm.lock().release(handle) {
            return Ok(());
        }
        calls::cuMemRelease(&mut api.call(), AllocationId(handle))
    }

    /// Maps an allocation at reserved addresses.
    call cuMemMap(api, ptr: u64, size: usize, offset: usize, handle: u64, flags: u64) {
        let map = if api.driver.vmm.host(handle).is_some() { host::map } else { map_device };
        map(api, ptr, size as u64, offset as u64, handle, flags)
    }

    /// Unmaps memory.
    call cuMemUnmap(api, ptr: u64, size: usize) {
        not_managed(api, ptr)?;
        unmap(api, ptr, size as u64)
    }

    /// Sets the access of locations to mappings.
    call cuMemSetAccess(api, ptr: u64, size: usize, desc: In<CUmemAccessDesc>, count: usize) {
        if count == 0 || count > MAX_DESCRIPTIONS {
            return Err(CudaError::INVALID_VALUE);
        }
        not_managed(api, ptr)?;
        let mut access = Vec::with_capacity(count);
        for index in 0..count {
            let one = desc.at(index)?;
            if !(1..=4).contains(&one.location.kind) {
                return Err(CudaError::INVALID_VALUE);
            }
            if one.location.kind == LOCATION_DEVICE {
                api.driver.devices.check(one.location.id).map_err(|_| CudaError::INVALID_VALUE)?;
            }
            access.push(one);
        }
        set_access(api, ptr, size as u64, &access)
    }

    /// Returns the access of a location to the memory at an address.
    call cuMemGetAccess(api, flags: Out<u64>, location: In<CUmemLocation>, ptr: u64) {
        flags.check()?;
        if ptr == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let place = location.get()?;
        let mapped = api.driver.memory.ranges.device(ptr).is_some_and(|range| range.owner != 0);
        if HOST_LOCATIONS.contains(&place.kind) && mapped {
            // The host has no access to device memory.
            return flags.set(0);
        }
        if !(1..=4).contains(&place.kind) {
            return Err(CudaError::INVALID_DEVICE);
        }
        if place.kind == LOCATION_DEVICE {
            api.driver.devices.check(place.id)?;
        }
        if let Some(access) = host_access(&api.driver.vmm.lock(), place, ptr) {
            return flags.set(access);
        }
        flags.set(calls::cuMemGetAccess(&mut api.call(), api.driver.devices.to_worker(place), DevicePtr(ptr))?)
    }

    /// Returns the granularity of sizes and addresses.
    call cuMemGetAllocationGranularity(api, granularity: Out<usize>, prop: In<CUmemAllocationProp>, option: u32) {
        granularity.check()?;
        // The granularity is the same for all properties, so they are not examined.
        let wanted = prop.get()?;
        let location = CUmemLocation { kind: LOCATION_DEVICE, id: 0 };
        let asked = CUmemAllocationProp { kind: TYPE_PINNED, handle_types: 0, location, ..wanted };
        let properties = on_wire(api, &asked);
        granularity.set(calls::cuMemGetAllocationGranularity(&mut api.call(), properties, option)? as usize)
    }

    /// Returns the properties of an allocation, which may differ from the requested ones.
    call cuMemGetAllocationPropertiesFromHandle(api, prop: Out<CUmemAllocationProp>, handle: u64) {
        prop.check()?;
        prop.set(of_allocation(api, handle)?)
    }

    /// Refuses memory that NVIDIA's driver refuses. Handles of other memory are not supported: they would be for other
    /// devices of the host.
    call cuMemGetHandleForAddressRange(api, handle: HostPtr, dptr: u64, size: usize, handleType: u32, flags: u64) {
        let unit = ALLOCATION_UNIT as u64;
        let whole = dptr.is_multiple_of(unit) && size > 0 && size.is_multiple_of(ALLOCATION_UNIT);
        let known = handleType == RANGE_HANDLE_DMA_BUF && flags <= RANGE_FLAG_MAPPING_PCIE;
        let range = api.driver.memory.ranges.device(dptr).filter(|range| range.owner != EXTERNAL);
        if handle.address() == 0 || !whole || !known || range.is_none() {
            return Err(CudaError::INVALID_VALUE);
        }
        Err(CudaError::NOT_SUPPORTED)
    }

    /// Adds a reference to the allocation at an address.
    call cuMemRetainAllocationHandle(api, handle: Out<u64>, addr: HostPtr) {
        handle.check()?;
        let address = DevicePtr(addr.address() as u64);
        not_managed(api, address.0)?;
        if let Some(name) = api.driver.vmm.lock().retain(address.0) {
            return handle.set(name);
        }
        handle.set(calls::cuMemRetainAllocationHandle(&mut api.call(), address)?.0)
    }
}
