// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Implementations of calls of [`crate::pool`] and [`crate::memory::alloc`] for pools of this library.

use std::sync::Arc;

use cuda_abi::CUmemLocation;
use virtio_cuda_client::protocol::DeviceOrdinal;
use virtio_cuda_client::{CudaError, calls};

use crate::api::PER_THREAD;
use crate::entry::Api;
use crate::ffi::HostPtr;
use crate::pool::drivers_pool;
use crate::pool::local_pool::readers::has_readers;
use crate::state::local_pools::mark::Mark;
use crate::state::local_pools::space::StreamKey;
use crate::state::local_pools::table::Home;
use crate::state::local_pools::{CHUNK_BYTES, LocalPool, MAX_BYTES};
use crate::state::memory::ranges::{DeviceRange, HostKind, HostRange};

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
/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const MEMORY_POOLS_SUPPORTED: i32 = 115;

/// Returns whether this library manages the pools of a device that are made for handles of these types and for `usage`. The driver
/// manages those that other processes may open, those with a usage of their own, and those that other devices may access where the
/// worker cannot set that.
pub fn is_local(api: Api, device: i32, handle_types: u32, usage: u16) -> Result<bool, CudaError> {
    let is_supported = api.driver.device(device)?.attribute(MEMORY_POOLS_SUPPORTED) == Ok(1);
    Ok(is_supported
        && handle_types == 0
        && usage == 0
        && (api.driver.devices.count() == 1 || has_readers(api)))
}

/// Refuses calls that other threads' captures forbid, and invalidates those captures, as the device does.
pub fn check_captures(api: Api) -> Result<(), CudaError> {
    if !api.driver.captures.any() {
        return Ok(());
    }
    // This is a call that captures forbid and that changes nothing.
    calls::cuMemPoolTrimTo(&mut api.call(), drivers_pool(api, DeviceOrdinal(0))?, u64::MAX)
}

/// Makes the device refuse what it refuses for work in a stream beside captures, or in a broken context.
fn check_work(api: Api, stream: u64) -> Result<(), CudaError> {
    if !api.driver.captures.any() && !api.is_broken() {
        return Ok(());
    }
    let stream = api.stream(stream)?;
    let address = calls::cuMemAllocAsync(&mut api.in_context()?, 1, stream)?;
    calls::cuMemFreeAsync(&mut api.in_context()?, address, stream)
}

/// Implements `cuMemPoolCreate`. `shareable` is set if handles for other processes were requested.
pub fn create(api: Api, home: Home, max_bytes: u64, usage: u16, shareable: bool) -> Result<u64, CudaError> {
    check_captures(api)?;
    if home.is_managed() && (shareable || max_bytes != 0 || usage != 0)
        || shareable && home.place != LOCATION_NUMA
    {
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
    Ok(api.driver.local_pools.create(home, most))
}

/// Returns the stream that a handle stands for in this thread.
pub fn key_of(api: Api, handle: u64) -> Result<StreamKey, CudaError> {
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

/// Implements `cuMemAllocFromPoolAsync`, in a context of the pool's device. Returns `None` if the device must allocate.
pub fn allocate(
    api: Api,
    pool: &Arc<LocalPool>,
    bytes: u64,
    context: u64,
    stream: u64,
) -> Result<Option<u64>, CudaError> {
    let key = key_of(api, stream)?;
    if api.captures(api.stream(stream)?) {
        return match pool.home.place {
            // Graphs use memory of their own instead.
            LOCATION_DEVICE => Ok(None),
            LOCATION_NONE => Err(CudaError::INVALID_VALUE),
            _ => Err(CudaError::NOT_SUPPORTED),
        };
    }
    if pool.home.is_device_memory() {
        check_work(api, stream)?;
    } else {
        check_captures(api)?;
    }
    if bytes == 0 {
        return Ok(Some(0));
    }
    match pool.allocate_for(api, bytes, context, key) {
        Err(CudaError::OUT_OF_MEMORY) if !pool.home.is_device_memory() && api.take_back_freed() => {
            pool.allocate_for(api, bytes, context, key).map(Some)
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
fn take(api: Api, address: u64) -> Result<(Arc<HostRange>, Arc<LocalPool>), CudaError> {
    let kind = kind_of(api, address)?;
    let range = api.driver.memory.ranges.take_host(address, kind).ok_or(CudaError::INVALID_VALUE)?;
    let pool = range.pool.clone().ok_or(CudaError::UNKNOWN)?;
    Ok((range, pool))
}

/// The device memory of a pool of this library that begins at an address.
pub struct InDevice {
    range: DeviceRange,
    pool: Arc<LocalPool>,
}

impl InDevice {
    /// Returns the memory that begins at `address`. `None` for all other memory.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for other addresses in memory of these pools: the worker would take the first one of a chunk
    /// for that of an allocation.
    pub fn find(api: Api, address: u64) -> Result<Option<Self>, CudaError> {
        let pools = &api.driver.local_pools;
        let range = api.driver.memory.ranges.device(address);
        if let Some(range) = range.filter(|range| range.start == address) {
            let pool = if range.pool == 0 { None } else { pools.find(range.pool) };
            return Ok(pool.map(|pool| Self { range, pool }));
        }
        if pools.contain(address) { Err(CudaError::INVALID_VALUE) } else { Ok(None) }
    }

    /// Removes the memory from the table of addresses. Another thread may have freed it.
    fn take(&self, api: Api) -> Result<(), CudaError> {
        let is_it = |range: &DeviceRange| range.id == self.range.id;
        let taken = api.driver.memory.ranges.take_device(self.range.start, is_it);
        taken.map(drop).ok_or(CudaError::INVALID_VALUE)
    }

    /// Implements `cuMemFreeAsync`.
    pub fn free_in_order(&self, api: Api, stream: u64) -> Result<(), CudaError> {
        let key = key_of(api, stream)?;
        // Graphs free their own memory only.
        if api.captures(api.stream(stream)?) {
            return Err(CudaError::INVALID_VALUE);
        }
        check_work(api, stream)?;
        // Another thread cannot record a mark in the default stream of this one.
        let mark = key.thread.map(|_| Mark::record(api, key)).transpose()?;
        self.take(api)?;
        let DeviceRange { start, bytes, context, .. } = self.range;
        let number = api.driver.local_pools.next_free();
        self.pool.free_in_order(start..start + bytes, context, key, number, mark);
        api.driver.local_pools.wait_for_streams();
        Ok(())
    }

    /// Implements `cuMemFree`.
    pub fn free(&self, api: Api) -> Result<(), CudaError> {
        check_captures(api)?;
        let is_unused = api.is_idle() || api.wait_for_work()? && api.wait_for_others()?;
        self.take(api)?;
        let DeviceRange { start, bytes, context, .. } = self.range;
        self.pool.free_now(api, start..start + bytes, context, is_unused);
        api.driver.local_pools.wait_for_streams();
        Ok(())
    }
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
            let (place, number) =
                (range.start..range.start + range.bytes, api.driver.local_pools.next_free());
            pool.free_in_order(place, range.context, key, number, Some(mark));
            api.driver.local_pools.wait_for_streams();
        }
        Err(error) => {
            log::debug!("Marking stream {stream:#x}: {error}");
            calls::cuStreamSynchronize(&mut api.in_context_of(stream)?, api.stream(stream)?)?;
            pool.free_now(api, range.start..range.start + range.bytes, range.context, true);
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
pub fn trim(api: Api, pool: &LocalPool, keep: u64) -> Result<(), CudaError> {
    check_captures(api)?;
    pool.trim_to(api, keep);
    Ok(())
}

/// Returns an attribute; all are 64 bits here.
pub fn attribute(pool: &LocalPool, number: i32) -> Result<u64, CudaError> {
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
pub fn set_attribute(pool: &LocalPool, number: i32, value: HostPtr) -> Result<(), CudaError> {
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

/// Returns the access of a location, as the program has set it. All GPUs can actually access memory of the host.
pub fn access(api: Api, pool: &LocalPool, place: CUmemLocation) -> Result<u32, CudaError> {
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
pub fn set_access(api: Api, pool: &LocalPool, place: CUmemLocation, flags: u32) -> Result<(), CudaError> {
    // Of device memory, only the access of devices can be set.
    if flags == ACCESS_READ || pool.home.is_device_memory() && place.kind != LOCATION_DEVICE {
        return Err(CudaError::NOT_SUPPORTED);
    }
    if place.kind == LOCATION_DEVICE {
        api.driver.devices.check(place.id).map_err(|_| CudaError::INVALID_DEVICE)?;
    }
    let is_place = matches!(place.kind, LOCATION_DEVICE | LOCATION_HOST | LOCATION_NUMA);
    if !is_place || !matches!(flags, ACCESS_NONE | ACCESS_READ_WRITE) {
        return Err(CudaError::INVALID_VALUE);
    }
    if pool.home.is_device_memory() {
        return pool.set_reader(api, place.id, flags == ACCESS_READ_WRITE);
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
