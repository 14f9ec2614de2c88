// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Implementations of calls of [`crate::pool`] and [`crate::memory::alloc`] for host pools.

use std::sync::Arc;

use cuda_abi::CUmemLocation;
use virtio_cuda_client::protocol::MemoryPoolId;
use virtio_cuda_client::{CudaError, calls};

use crate::api::PER_THREAD;
use crate::entry::Api;
use crate::ffi::HostPtr;
use crate::pool::default_pool;
use crate::state::host_pools::mark::Mark;
use crate::state::host_pools::space::StreamKey;
use crate::state::host_pools::table::{Home, is_managed};
use crate::state::host_pools::{CHUNK_BYTES, HostPool, MAX_BYTES};
use crate::state::memory::ranges::{HostKind, HostRange};

/// `CU_MEM_LOCATION_TYPE_*`.
const LOCATION_NONE: u32 = 0;
const LOCATION_DEVICE: u32 = 1;
const LOCATION_HOST: u32 = 2;
const LOCATION_NUMA: u32 = 3;
/// `CU_MEM_ACCESS_FLAGS_PROT_*`.
const ACCESS_NONE: u32 = 0;
const ACCESS_READ: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;
/// `CU_MEMPOOL_ATTR_*`.
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED_CURRENT: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED_CURRENT: i32 = 7;
const USED_HIGH: i32 = 8;

/// Refuses calls that other threads' captures forbid, and invalidates those captures, as the device does.
pub fn check_captures(api: Api) -> Result<(), CudaError> {
    if !api.driver.captures.any() {
        return Ok(());
    }
    // This is a call that captures forbid and that changes nothing.
    let pool = MemoryPoolId(default_pool(api, 0)?);
    calls::cuMemPoolTrimTo(&mut api.call(), pool, u64::MAX)
}

/// Implements `cuMemPoolCreate`. `shareable` is set if handles for other processes were requested.
pub fn create(api: Api, home: Home, max_bytes: u64, usage: u16, shareable: bool) -> Result<u64, CudaError> {
    check_captures(api)?;
    let managed = is_managed(home.kind);
    if managed && (shareable || max_bytes != 0 || usage != 0) || shareable && home.place != LOCATION_NUMA {
        return Err(CudaError::INVALID_VALUE);
    }
    if shareable {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let most = match max_bytes.checked_next_multiple_of(CHUNK_BYTES) {
        None | Some(0) => u64::MAX,
        Some(MAX_BYTES..) => return Err(CudaError::OUT_OF_MEMORY),
        Some(most) => most,
    };
    Ok(api.driver.host_pools.create(home, most))
}

/// Returns the stream that a handle stands for in this thread.
fn key_of(api: Api, handle: u64) -> Result<StreamKey, CudaError> {
    /// `CU_STREAM_LEGACY`, for which 0 stands, too.
    const LEGACY: u64 = 1;
    let context = api.context_of_stream(handle)?;
    let stream = match api.stream(handle)?.0 {
        LEGACY => 0,
        stream => stream,
    };
    let thread = (stream == PER_THREAD).then(|| std::thread::current().id());
    Ok(StreamKey { context, stream, thread })
}

/// Implements `cuMemAllocFromPoolAsync`. Returns `None` if the device must allocate.
pub fn allocate(api: Api, pool: &Arc<HostPool>, bytes: u64, stream: u64) -> Result<Option<u64>, CudaError> {
    let key = key_of(api, stream)?;
    if api.captures(api.stream(stream)?) {
        return match pool.home.place {
            // Graphs use device memory instead.
            LOCATION_DEVICE => Ok(None),
            LOCATION_NONE => Err(CudaError::INVALID_VALUE),
            _ => Err(CudaError::NOT_SUPPORTED),
        };
    }
    check_captures(api)?;
    if bytes == 0 {
        return Ok(Some(0));
    }
    match pool.allocate_for(api, bytes, key) {
        Err(CudaError::OUT_OF_MEMORY) if api.take_back_freed() => {
            pool.allocate_for(api, bytes, key).map(Some)
        }
        allocated => allocated.map(Some),
    }
}

/// Returns the kind of the allocation that begins at `address`.
fn kind_of(api: Api, address: u64) -> Result<HostKind, CudaError> {
    let range = api.driver.memory.ranges.host(address).filter(|range| range.start == address);
    range.map(|range| range.kind).ok_or(CudaError::INVALID_VALUE)
}

/// Removes the allocation that begins at `address` from the table of addresses.
fn take(api: Api, address: u64) -> Result<(Arc<HostRange>, Arc<HostPool>), CudaError> {
    let kind = kind_of(api, address)?;
    let range = api.driver.memory.ranges.take_host(address, kind).ok_or(CudaError::INVALID_VALUE)?;
    let pool = range.pool.clone().ok_or(CudaError::UNKNOWN)?;
    Ok((range, pool))
}

/// Implements `cuMemFreeAsync` for memory from a host pool.
pub fn free_in_order(api: Api, address: u64, stream: u64) -> Result<(), CudaError> {
    let key = key_of(api, stream)?;
    // Graphs cannot free it.
    if api.captures(api.stream(stream)?) {
        return Err(CudaError::INVALID_VALUE);
    }
    check_captures(api)?;
    let (range, pool) = take(api, address)?;
    match Mark::record(api, key) {
        Ok(mark) => {
            pool.free_in_order(&range, key, mark);
            api.driver.host_pools.wait_for_streams();
        }
        Err(error) => {
            log::debug!("Marking stream {stream:#x}: {error}");
            calls::cuStreamSynchronize(&mut api.in_context_of(stream)?, api.stream(stream)?)?;
            pool.free_now(api, &range);
        }
    }
    Ok(())
}

/// Implements `cuMemFree` for memory from a host pool.
pub fn free(api: Api, address: u64) -> Result<(), CudaError> {
    check_captures(api)?;
    // Checked first, so that nothing is freed if the wait fails or the address is invalid.
    kind_of(api, address)?;
    let is_unused = api.wait_for_work()?;
    let (range, _) = take(api, address)?;
    api.take_back(range, is_unused);
    Ok(())
}

/// Implements `cuMemPoolTrimTo`.
pub fn trim(api: Api, pool: &HostPool, keep: u64) -> Result<(), CudaError> {
    check_captures(api)?;
    pool.trim_to(api, keep);
    Ok(())
}

/// Returns an attribute; all are 64 bits here.
pub fn attribute(pool: &HostPool, number: i32) -> Result<u64, CudaError> {
    let state = pool.lock();
    Ok(match number {
        1..=3 => state.policies[number as usize - 1].into(),
        RELEASE_THRESHOLD => state.threshold,
        RESERVED_CURRENT => state.reserved.now,
        RESERVED_HIGH => state.reserved.high,
        USED_CURRENT => state.used.now,
        USED_HIGH => state.used.high,
        _ => return Err(CudaError::INVALID_VALUE),
    })
}

/// Sets an attribute; high watermarks can only be reset.
pub fn set_attribute(pool: &HostPool, number: i32, value: HostPtr) -> Result<(), CudaError> {
    // SAFETY: the policies are an `int`, the others a `cuuint64_t`.
    let (int, long) = unsafe { (value.as_in::<u32>(), value.as_in::<u64>()) };
    let mut state = pool.lock();
    match number {
        1..=3 => state.policies[number as usize - 1] = int.get()? != 0,
        RELEASE_THRESHOLD => state.threshold = long.get()?,
        RESERVED_HIGH | USED_HIGH => {
            if long.get()? != 0 {
                return Err(CudaError::INVALID_VALUE);
            }
            let level = if number == USED_HIGH { &mut state.used } else { &mut state.reserved };
            level.high = level.now;
        }
        _ => return Err(CudaError::INVALID_VALUE),
    }
    Ok(())
}

/// Returns the access of a location, as the program has set it. The GPU can actually access all of the memory.
pub fn access(api: Api, pool: &HostPool, place: CUmemLocation) -> Result<u32, CudaError> {
    let state = pool.lock();
    let may = match place.kind {
        LOCATION_DEVICE => {
            api.driver.devices.check(place.id).map_err(|_| CudaError::INVALID_VALUE)?;
            state.devices.contains(&place.id)
        }
        LOCATION_HOST | LOCATION_NUMA => state.host,
        _ => return Err(CudaError::INVALID_VALUE),
    };
    Ok(if may { ACCESS_READ_WRITE } else { ACCESS_NONE })
}

/// Sets the access of a location.
pub fn set_access(api: Api, pool: &HostPool, place: CUmemLocation, flags: u32) -> Result<(), CudaError> {
    if flags == ACCESS_READ {
        return Err(CudaError::NOT_SUPPORTED);
    }
    if place.kind == LOCATION_DEVICE {
        api.driver.devices.check(place.id).map_err(|_| CudaError::INVALID_DEVICE)?;
    }
    let is_place = matches!(place.kind, LOCATION_DEVICE | LOCATION_HOST | LOCATION_NUMA);
    if !is_place || !matches!(flags, ACCESS_NONE | ACCESS_READ_WRITE) {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut state = pool.lock();
    match (place.kind, flags) {
        (LOCATION_DEVICE, ACCESS_NONE) => {
            state.devices.remove(&place.id);
        }
        (LOCATION_DEVICE, _) => {
            state.devices.insert(place.id);
        }
        // The host always has access to host memory.
        (_, ACCESS_NONE) if !pool.is_managed() => return Err(CudaError::NOT_SUPPORTED),
        _ => state.host = flags == ACCESS_READ_WRITE,
    }
    Ok(())
}

impl Api {
    /// Returns whether the program has enabled access of the current device to memory that both can reach. Only memory
    /// of a host pool requires that.
    pub fn is_reached(&self, range: &HostRange) -> bool {
        range.pool.as_ref().is_none_or(|pool| {
            let device = self.context().and_then(|context| self.driver.contexts.device_of(context.0));
            pool.is_reached_by(device.unwrap_or(range.device) as i32)
        })
    }
}
