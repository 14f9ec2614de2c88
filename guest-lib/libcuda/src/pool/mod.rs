// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory pools: those of this library ([`local_pool`]), and those of the device's driver.

pub mod local_pool;

use std::collections::BTreeSet;
use std::os::fd::IntoRawFd;

use cuda_abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemPoolPtrExportData};
use virtio_cuda_client::protocol::{DeviceOrdinal, DevicePtr, MemoryPoolId, PoolProperties};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::handles::{Kind, new_handle};
use crate::memory::alloc::allocate_from;
use crate::pool::local_pool::api::is_local;
use crate::state::local_pools::LocalPool;
use crate::state::local_pools::table::Home;
use crate::tokens::{HANDLE_TYPE_FILE, file_of, handle_of, token_in, token_of_handle};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST_NUMA`, and `_CURRENT`, the largest.
const LOCATION_NUMA: u32 = 3;
const LAST_LOCATION: u32 = 4;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const ACCESS_READ_WRITE: u32 = 3;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const TYPE_MANAGED: u32 = 2;
/// `CU_MEMPOOL_ATTR_*`: the first three are `int`, the others `cuuint64_t`.
const LAST_INT_ATTRIBUTE: i32 = 3;
const LAST_ATTRIBUTE: i32 = 8;

/// `CU_MEM_HANDLE_TYPE_FABRIC`.
const HANDLE_TYPE_FABRIC: u32 = 8;
/// Maximum bytes of a pool; more than any device has.
const MAX_POOL: usize = 1 << 47;

/// Returns the pool of `cuMemAllocAsync`: the current one of the stream's device.
pub fn pool_in_use(api: Api, stream: u64) -> Result<u64, CudaError> {
    let device = api.driver.contexts.device_of(api.context_of_stream(stream)?)?;
    current_pool(api, device as i32)
}

/// Returns a device's default pool.
fn default_pool(api: Api, device: i32) -> Result<u64, CudaError> {
    let number = api.driver.devices.check(device)?.on_wire();
    if is_local(api, device, 0, 0)? {
        return Ok(api.driver.local_pools.default_of(Home::of_device(device)));
    }
    Ok(drivers_pool(api, number)?.0)
}

/// Returns the default pool of the device's driver.
pub fn drivers_pool(api: Api, device: DeviceOrdinal) -> Result<MemoryPoolId, CudaError> {
    // Locked during the query, so that the pool gets only one handle.
    let mut tables = api.driver.pools.lock();
    if let Some(&pool) = tables.defaults.get(&device.0) {
        return Ok(MemoryPoolId(pool));
    }
    let pool = new_handle(Kind::Pool);
    calls::cuDeviceGetDefaultMemPool(&mut api.call(), device, MemoryPoolId(pool))?;
    tables.defaults.insert(device.0, pool);
    Ok(MemoryPoolId(pool))
}

/// Calls `allocate` with the pool of the driver's that serves in place of one of this library, with the same access: in graphs, and before
/// the pool's device has a context. `None`: that of `cuMemAllocAsync`.
///
/// Errors: the driver's, and those of `allocate`.
pub fn with_drivers_pool<T>(
    api: Api,
    pool: &LocalPool,
    allocate: impl FnOnce(Option<MemoryPoolId>) -> Result<T, CudaError>,
) -> Result<T, CudaError> {
    let (home, devices) = (pool.home, &api.driver.devices);
    if devices.count() == 1 || !home.is_device_memory() {
        return allocate(None);
    }
    let own = devices.check(home.id)?.on_wire();
    let (twin, wanted) = (drivers_pool(api, own)?, pool.lock().devices.clone());
    // Locked during the calls: pools with other access have the same one of the driver's.
    let mut tables = api.driver.pools.lock();
    let granted = tables.granted.entry(own.0).or_insert_with(|| BTreeSet::from([home.id]));
    let set = |device, flags| {
        let location = devices.to_worker(CUmemLocation { kind: LOCATION_DEVICE, id: device });
        api.with_capture_relaxed(|| calls::cuMemPoolSetAccess(&mut api.call(), twin, location, flags))
    };
    for &device in wanted.difference(&granted.clone()) {
        set(device, ACCESS_READ_WRITE)?;
        granted.insert(device);
    }
    for device in granted.difference(&wanted).copied().collect::<Vec<_>>() {
        set(device, 0)?;
        granted.remove(&device);
    }
    allocate(Some(twin))
}

fn current_pool(api: Api, device: i32) -> Result<u64, CudaError> {
    api.driver.devices.check(device)?;
    let chosen = api.driver.pools.lock().current.get(&(device as u32)).copied();
    chosen.map_or_else(|| default_pool(api, device), Ok)
}

fn set_current_pool(api: Api, device: i32, pool: u64) -> Result<(), CudaError> {
    let number = api.driver.devices.check(device)?.on_wire();
    if let Some(pool) = api.driver.local_pools.get(pool) {
        if pool.home != Home::of_device(device) {
            return Err(CudaError::INVALID_VALUE);
        }
    } else {
        let id = api.driver.pools.check(pool)?;
        calls::cuDeviceSetMemPool(&mut api.call(), number, id)?;
    }
    api.driver.pools.lock().current.insert(device as u32, pool);
    Ok(())
}

/// Returns the home of a location's pools.
fn home_of(api: Api, location: In<CUmemLocation>, kind: u32) -> Result<Home, CudaError> {
    let location = location.get()?;
    if location.kind > LOCATION_NUMA {
        return Err(CudaError::NOT_SUPPORTED);
    }
    Home::of(&api.driver.devices, kind, location)
}

entry_points! {
    /// Creates a pool.
    call cuMemPoolCreate(api, pool: Out<u64>, poolProps: In<CUmemPoolProps>) {
        pool.check()?;
        let props = poolProps.get()?;
        let known = matches!(props.handle_types, 0 | HANDLE_TYPE_FILE | HANDLE_TYPE_FABRIC);
        if !known || props.reserved.iter().any(|&byte| byte != 0) {
            return Err(CudaError::INVALID_VALUE);
        }
        if props.kind == TYPE_MANAGED && props.handle_types == 0 && props.location.kind > LAST_LOCATION {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let home = Home::of(&api.driver.devices, props.kind, props.location)?;
        if !home.is_device_memory() {
            let (most, shareable) = (props.max_bytes as u64, props.handle_types != 0);
            return pool.set(local_pool::api::create(api, home, most, props.usage, shareable)?);
        }
        if props.handle_types == HANDLE_TYPE_FABRIC {
            return Err(CudaError::NOT_SUPPORTED);
        }
        if props.max_bytes > MAX_POOL {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        api.driver.devices.check(props.location.id).map_err(|_| CudaError::INVALID_VALUE)?;
        if is_local(api, props.location.id, props.handle_types, props.usage)? {
            return pool.set(local_pool::api::create(api, home, props.max_bytes as u64, 0, false)?);
        }
        let handle = new_handle(Kind::Pool);
        let properties = PoolProperties {
            kind: props.kind,
            location: api.driver.devices.to_worker(props.location),
            max_bytes: props.max_bytes as u64,
            usage: props.usage.into(),
        };
        if props.handle_types == 0 {
            calls::cuMemPoolCreate(&mut api.call(), MemoryPoolId(handle), properties)?;
        } else {
            calls::pool_create_shareable(&mut api.call(), MemoryPoolId(handle), properties)?;
        }
        api.driver.pools.lock().made.insert(handle);
        pool.set(handle)
    }

    /// Exports a pool to other processes, as a file descriptor.
    call cuMemPoolExportToShareableHandle(api, handle_out: Out<i32>, pool: u64, handleType: u32, flags: u64) {
        handle_out.check()?;
        // Pools of this library cannot be shared: `check` refuses them.
        let id = api.driver.pools.check(pool)?;
        if handleType != HANDLE_TYPE_FILE || flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let token = calls::cuMemPoolExportToShareableHandle(&mut api.call(), id)?;
        handle_out.set(file_of(token).map_err(|_| CudaError::OUT_OF_MEMORY)?.into_raw_fd())
    }

    /// Opens a pool that another process has exported. The file descriptor stays the program's.
    call cuMemPoolImportFromShareableHandle(api, pool_out: Out<u64>, handle: HostPtr, handleType: u32, flags: u64) {
        pool_out.check()?;
        if handleType != HANDLE_TYPE_FILE || flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let token = token_in(handle.address() as i32)?;
        let name = new_handle(Kind::Pool);
        calls::cuMemPoolImportFromShareableHandle(&mut api.call(), MemoryPoolId(name), token)?;
        api.driver.pools.lock().made.insert(name);
        pool_out.set(name)
    }

    /// Exports an allocation of an exported pool.
    call cuMemPoolExportPointer(api, shareData_out: Out<CUmemPoolPtrExportData>, ptr: u64) {
        shareData_out.check()?;
        if api.driver.local_pools.contain(ptr) {
            return Err(CudaError::INVALID_VALUE);
        }
        shareData_out.set(handle_of(calls::cuMemPoolExportPointer(&mut api.in_context()?, DevicePtr(ptr))?))
    }

    /// Opens an allocation of a pool that another process has exported.
    call cuMemPoolImportPointer(api, ptr_out: Out<u64>, pool: u64, shareData: In<CUmemPoolPtrExportData>) {
        ptr_out.check()?;
        let id = api.driver.pools.check(pool)?;
        let token = token_of_handle(&shareData.get()?)?;
        let (dptr, bytes) = calls::cuMemPoolImportPointer(&mut api.in_context()?, id, token)?;
        api.track_pooled(dptr.0, bytes, pool)?;
        ptr_out.set(dptr.0)
    }

    /// Destroys a pool. Devices whose current pool it is return to their default pool.
    call cuMemPoolDestroy(api, pool: u64) {
        if let Some(local) = api.driver.local_pools.get(pool) {
            api.driver.local_pools.destroy_pool(api, &local)?;
            api.driver.pools.lock().current.retain(|_, current| *current != pool);
            return Ok(());
        }
        let id = api.driver.pools.check(pool)?;
        calls::cuMemPoolDestroy(&mut api.call(), id)?;
        let mut tables = api.driver.pools.lock();
        tables.made.remove(&pool);
        tables.current.retain(|_, current| *current != pool);
        Ok(())
    }

    /// Returns a device's default pool. The handle is the same each time.
    call cuDeviceGetDefaultMemPool(api, pool_out: Out<u64>, dev: i32) {
        pool_out.check()?;
        pool_out.set(default_pool(api, dev)?)
    }

    /// Returns the current pool of a device.
    call cuDeviceGetMemPool(api, pool: Out<u64>, dev: i32) {
        pool.check()?;
        api.driver.devices.check(dev).map_err(|_| CudaError::INVALID_VALUE)?;
        pool.set(current_pool(api, dev)?)
    }

    /// Makes a pool the current one of a device, for device memory or managed memory according to the pool.
    call cuDeviceSetMemPool(api, dev: i32, pool: u64) {
        api.driver.devices.check(dev).map_err(|_| CudaError::INVALID_VALUE)?;
        if let Some(pool) = api.driver.local_pools.get(pool).filter(|pool| !pool.home.is_device_memory()) {
            let here = Home { kind: TYPE_MANAGED, place: LOCATION_DEVICE, id: dev };
            return api.driver.local_pools.set_current(here, pool);
        }
        set_current_pool(api, dev, pool)
    }

    /// Returns the default pool of a location.
    call cuMemGetDefaultMemPool(api, pool_out: Out<u64>, location: In<CUmemLocation>, r#type: u32) {
        pool_out.check()?;
        pool_out.set(match home_of(api, location, r#type)? {
            home if home.is_device_memory() => default_pool(api, home.id)?,
            home => api.driver.local_pools.default_of(home),
        })
    }

    /// Returns the current pool of a location.
    call cuMemGetMemPool(api, pool: Out<u64>, location: In<CUmemLocation>, r#type: u32) {
        pool.check()?;
        pool.set(match home_of(api, location, r#type)? {
            home if home.is_device_memory() => current_pool(api, home.id)?,
            home => api.driver.local_pools.current_of(home),
        })
    }

    /// Makes a pool the current one of a location.
    call cuMemSetMemPool(api, location: In<CUmemLocation>, r#type: u32, pool: u64) {
        let home = home_of(api, location, r#type)?;
        if home.is_device_memory() {
            return set_current_pool(api, home.id, pool);
        }
        let pool = api.driver.local_pools.get(pool).ok_or(CudaError::INVALID_VALUE)?;
        api.driver.local_pools.set_current(home, pool)
    }

    /// Returns an attribute of a pool.
    call cuMemPoolGetAttribute(api, pool: u64, attr: i32, value: HostPtr) {
        if value.address() == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let answer = if let Some(pool) = api.driver.local_pools.get(pool) {
            local_pool::api::attribute(&pool, attr)?
        } else {
            let id = api.driver.pools.check(pool)?;
            if !(1..=LAST_ATTRIBUTE).contains(&attr) {
                return Err(CudaError::INVALID_VALUE);
            }
            calls::cuMemPoolGetAttribute(&mut api.call(), id, attr)?
        };
        // SAFETY: the first attributes are an `int`, the others a `cuuint64_t`.
        let (int, long) = unsafe { (value.as_out::<u32>(), value.as_out::<u64>()) };
        if attr <= LAST_INT_ATTRIBUTE { int.set(answer as u32) } else { long.set(answer) }
    }

    /// Sets an attribute of a pool.
    call cuMemPoolSetAttribute(api, pool: u64, attr: i32, value: HostPtr) {
        if let Some(pool) = api.driver.local_pools.get(pool) {
            return local_pool::api::set_attribute(&pool, attr, value);
        }
        let id = api.driver.pools.check(pool)?;
        // SAFETY: the first attributes are an `int`, the others a `cuuint64_t`.
        let (int, long) = unsafe { (value.as_in::<u32>(), value.as_in::<u64>()) };
        let wanted = match attr {
            1..=LAST_INT_ATTRIBUTE => int.get()?.into(),
            ..=LAST_ATTRIBUTE if attr > 0 => long.get()?,
            _ => return Err(CudaError::INVALID_VALUE),
        };
        calls::cuMemPoolSetAttribute(&mut api.call(), id, attr, wanted)
    }

    /// Returns the access of a location to a pool's memory.
    call cuMemPoolGetAccess(api, flags: Out<u32>, memPool: u64, location: In<CUmemLocation>) {
        flags.check()?;
        if let Some(pool) = api.driver.local_pools.get(memPool) {
            return flags.set(local_pool::api::access(api, &pool, location.get()?)?);
        }
        let id = api.driver.pools.check(memPool)?;
        let place = location.get()?;
        if !(LOCATION_DEVICE..=LOCATION_NUMA).contains(&place.kind) {
            return Err(CudaError::INVALID_VALUE);
        }
        if place.kind != LOCATION_DEVICE {
            // The host has no access to device memory.
            return flags.set(0);
        }
        api.driver.devices.check(place.id).map_err(|_| CudaError::INVALID_VALUE)?;
        flags.set(calls::cuMemPoolGetAccess(&mut api.call(), id, api.driver.devices.to_worker(place))?)
    }

    /// Sets the access of locations to a pool's memory.
    call cuMemPoolSetAccess(api, pool: u64, map: In<CUmemAccessDesc>, count: usize) {
        if count == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        if let Some(pool) = api.driver.local_pools.get(pool) {
            return (0..count).try_for_each(|index| {
                let CUmemAccessDesc { location, flags } = map.at(index)?;
                local_pool::api::set_access(api, &pool, location, flags)
            });
        }
        let id = api.driver.pools.check(pool)?;
        for index in 0..count {
            let CUmemAccessDesc { location, flags } = map.at(index)?;
            let location = api.driver.devices.to_worker(location);
            calls::cuMemPoolSetAccess(&mut api.call(), id, location, flags)?;
        }
        Ok(())
    }

    /// Releases unused memory of a pool.
    call cuMemPoolTrimTo(api, pool: u64, minBytesToKeep: usize) {
        if let Some(pool) = api.driver.local_pools.get(pool) {
            return local_pool::api::trim(api, &pool, minBytesToKeep as u64);
        }
        let id = api.driver.pools.check(pool)?;
        calls::cuMemPoolTrimTo(&mut api.call(), id, minBytesToKeep as u64)
    }

    /// Allocates from a pool in stream order.
    call cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz (api, dptr: Out<u64>, bytesize: usize, pool: u64, hStream: u64) {
        dptr.check()?;
        dptr.set(allocate_from(api, pool, bytesize as u64, hStream)?)
    }
}
