// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Device memory.

use virtio_cuda_client::protocol::{DevicePtr, MemoryPoolId, StreamId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::Out;
use crate::memory::host;
use crate::pool::local_pool::{self, api::InDevice};
use crate::pool::{pool_in_use, with_drivers_pool};
use crate::state::externals::EXTERNAL;
use crate::state::local_pools::LocalPool;
use crate::state::memory::ranges::HostKind;

/// Owner of captured allocations: neither an object nor the program.
const IN_GRAPH: u64 = 1;

fn free(api: Api, dptr: u64) -> Result<(), CudaError> {
    if dptr == 0 {
        return Ok(());
    }
    let ranges = &api.driver.memory.ranges;
    match ranges.host(dptr).map(|range| range.kind) {
        Some(HostKind::Managed) => return host::free(api, dptr, HostKind::Managed),
        Some(kind) if kind.is_pooled() => return local_pool::api::free(api, dptr),
        _ => {}
    }
    if let Some(pooled) = InDevice::find(api, dptr)? {
        return pooled.free(api);
    }
    // The device refuses an address that is not an allocation. The entry is removed first: once the memory is free,
    // another thread can get the same address.
    let known = ranges.take_device(dptr, |range| matches!(range.owner, 0 | EXTERNAL));
    let freed = match &known {
        Some(range) if range.pool == 0 && range.owner == 0 => {
            api.free_or_keep(dptr, range.bytes, range.context)
        }
        _ => calls::cuMemFree_v2(&mut api.call(), DevicePtr(dptr)),
    };
    freed.inspect_err(|_| {
        if let Some(range) = known {
            ranges.add_device(range);
        }
    })
}

/// Allocates in stream order from a pool of the driver's, or from its current one.
fn allocate_by_driver(
    api: Api,
    bytes: u64,
    pool: Option<MemoryPoolId>,
    stream: StreamId,
) -> Result<u64, CudaError> {
    let call = &mut api.in_context()?;
    let allocated = match pool {
        Some(pool) => calls::cuMemAllocFromPoolAsync(call, bytes, pool, stream),
        None => calls::cuMemAllocAsync(call, bytes, stream),
    };
    Ok(allocated?.0)
}

/// Adds an allocation of device memory to a graph, as part of a capture, with the access of a pool of the driver's.
fn capture_allocation(
    api: Api,
    bytes: u64,
    pool: Option<MemoryPoolId>,
    stream: StreamId,
) -> Result<u64, CudaError> {
    let address = allocate_by_driver(api, bytes, pool, stream)?;
    // A graph frees and reuses its allocations: the address keeps its meaning.
    api.driver.kept.graphs_allocate();
    api.track_device(address, bytes, IN_GRAPH)?;
    Ok(address)
}

/// Returns the context in which a pool's memory for work of `context` is allocated: a context of the
/// pool's device. `None` if the program has no context there.
fn context_for(api: Api, pool: &LocalPool, context: u64) -> Option<u64> {
    let (home, contexts) = (pool.home, &api.driver.contexts);
    let is_here = |context: &u64| contexts.device_of(*context) == Ok(home.id as u32);
    if !home.is_device_memory() || api.driver.devices.count() == 1 || is_here(&context) {
        return Some(context);
    }
    let primary = contexts.primary(home.id).ok().filter(|primary| primary.active);
    let primary = primary.map(|primary| primary.context);
    primary.or_else(|| contexts.existing().into_iter().find(is_here))
}

/// Allocates from a pool in stream order.
pub fn allocate_from(api: Api, pool: u64, bytes: u64, stream_handle: u64) -> Result<u64, CudaError> {
    let stream = api.stream(stream_handle)?;
    let by_driver = |pool: Option<MemoryPoolId>, handle| {
        if api.captures(stream) {
            return capture_allocation(api, bytes, pool, stream);
        }
        let address = allocate_by_driver(api, bytes, pool, stream)?;
        api.track_pooled(address, bytes, handle)?;
        Ok(address)
    };
    if let Some(pool) = api.driver.local_pools.get(pool) {
        if let Some(context) = context_for(api, &pool, api.context_of_stream(stream_handle)?)
            && let Some(address) = local_pool::api::allocate(api, &pool, bytes, context, stream_handle)?
        {
            return Ok(address);
        }
        return with_drivers_pool(api, &pool, |pool| by_driver(pool, pool.map_or(0, |pool| pool.0)));
    }
    let id = api.driver.pools.check(pool)?;
    by_driver((pool_in_use(api, stream_handle)? != pool).then_some(id), pool)
}

/// Returns the driver's error for an address that it does not know.
fn not_found(error: CudaError) -> CudaError {
    if error == CudaError::INVALID_VALUE { CudaError::NOT_FOUND } else { error }
}

entry_points! {
    /// Allocates device memory.
    call cuMemAlloc_v2(api, dptr: Out<u64>, bytesize: usize) {
        dptr.check()?;
        if bytesize == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let address = api.allocate(bytesize as u64)?;
        api.track_device(address, bytesize as u64, 0)?;
        dptr.set(address)
    }

    /// Allocates rows padded to the device's pitch.
    call cuMemAllocPitch_v2(api, dptr: Out<u64>, pPitch: Out<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) {
        dptr.check()?;
        pPitch.check()?;
        let (width, height) = (WidthInBytes as u64, Height as u64);
        // A longer row overflows when it is rounded up.
        if width.checked_next_multiple_of(512).is_none() {
            return Err(CudaError::INVALID_VALUE);
        }
        let (address, pitch) = calls::cuMemAllocPitch_v2(&mut api.in_context()?, width, height, ElementSizeBytes)?;
        api.track_device(address.0, pitch.saturating_mul(height), 0)?;
        pPitch.set(pitch as usize)?;
        dptr.set(address.0)
    }

    /// Frees device or managed memory. NULL is accepted.
    call cuMemFree_v2(api, dptr: u64) {
        free(api, dptr)
    }

    /// Allocates in stream order.
    call cuMemAllocAsync / cuMemAllocAsync_ptsz (api, dptr: Out<u64>, bytesize: usize, hStream: u64) {
        dptr.check()?;
        api.stream(hStream)?;
        let pool = pool_in_use(api, hStream)?;
        dptr.set(allocate_from(api, pool, bytesize as u64, hStream)?)
    }

    /// Frees in stream order.
    call cuMemFreeAsync / cuMemFreeAsync_ptsz (api, dptr: u64, hStream: u64) {
        if dptr == 0 {
            return Ok(());
        }
        let ranges = &api.driver.memory.ranges;
        match ranges.host(dptr) {
            Some(range) if range.kind == HostKind::Managed && range.start == dptr => {
                return Err(CudaError::NOT_SUPPORTED);
            }
            Some(range) if range.kind.is_pooled() => {
                return local_pool::api::free_in_order(api, dptr, hStream);
            }
            _ => {}
        }
        if ranges.device(dptr).is_some_and(|range| range.start == dptr && range.owner == EXTERNAL) {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let stream = api.stream(hStream)?;
        if let Some(pooled) = InDevice::find(api, dptr)? {
            return pooled.free_in_order(api, hStream);
        }
        let known = ranges.take_device(dptr, |range| range.owner == 0);
        calls::cuMemFreeAsync(&mut api.in_context()?, DevicePtr(dptr), stream).inspect_err(|_| {
            if let Some(range) = known {
                ranges.add_device(range);
            }
        })
    }

    /// Returns the free and the total device memory in bytes.
    call cuMemGetInfo_v2(api, free: Out<usize>, total: Out<usize>) {
        // Freeing memory would end a capture.
        if !api.driver.captures.any() {
            api.give_back_ready(false);
        }
        let (free_bytes, total_bytes) = calls::cuMemGetInfo_v2(&mut api.in_context()?)?;
        free.set_if_wanted(free_bytes as usize);
        total.set_if_wanted(total_bytes as usize);
        Ok(())
    }

    /// Returns the allocation that contains an address.
    call cuMemGetAddressRange_v2(api, pbase: Out<u64>, psize: Out<usize>, dptr: u64) {
        let ranges = &api.driver.memory.ranges;
        let (base, bytes) = if let Some(range) = ranges.host(dptr).or_else(|| ranges.alias(dptr)) {
            if !api.is_reached(&range) {
                return Err(CudaError::NOT_FOUND);
            }
            (range.device_address, range.bytes)
        } else if let Some(range) = ranges.device(dptr) {
            (range.start, range.bytes)
        } else if api.driver.local_pools.contain(dptr) {
            return Err(CudaError::NOT_FOUND);
        } else {
            let found = calls::cuMemGetAddressRange_v2(&mut api.in_context()?, DevicePtr(dptr));
            let (base, bytes) = found.map_err(not_found)?;
            (base.0, bytes)
        };
        pbase.set_if_wanted(base);
        psize.set_if_wanted(bytes as usize);
        Ok(())
    }
}
