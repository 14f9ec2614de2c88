// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls on pools themselves: queries, attributes and access to their memory.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use cuda_abi::{CUmemAccessDesc, CUmemLocation, CUmemPoolProps};

use super::home::{self, DEVICE as LOCATION_DEVICE, Home};
use super::shared::SharedPool;
use super::{CUmemoryPool, INVALID, POOLS, Pool, PoolProperties as _, find};
use crate::driver::device::{CUdevice, device};
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::{capture, context};

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;
/// CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE
const READ: u32 = 1;
const READ_WRITE: u32 = 3;

/// Returns the home of a call's device.
fn home_of(ordinal: CUdevice) -> CuResult<Home> {
    device(ordinal).map(|device| Home::of_device(device.ordinal))
}

fn get_default_mem_pool(out: Out<CUmemoryPool>, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(home::default_pool(home_of(ordinal)?)?.publish());
    Ok(())
}

fn get_mem_pool(out: Out<CUmemoryPool>, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(home::current_pool(home_of(ordinal).map_err(|_| INVALID)?)?.publish());
    Ok(())
}

fn set_mem_pool(ordinal: CUdevice, handle: CUmemoryPool) -> CuResult<()> {
    let own = home_of(ordinal).map_err(|_| INVALID)?;
    let pool = find(handle)?;
    // For managed memory, it becomes the pool for the device's managed memory.
    let home = if pool.home.is_managed() { Home::managed_of_device(ordinal) } else { own };
    home::set_current_pool(home, pool)
}

fn get_default_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(home::default_pool(Home::of_pools(kind, location.get()?)?)?.publish());
    Ok(())
}

fn get_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(home::current_pool(Home::of_pools(kind, location.get()?)?)?.publish());
    Ok(())
}

fn set_pool_of(location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool) -> CuResult<()> {
    home::set_current_pool(Home::of_pools(kind, location.get()?)?, find(pool)?)
}

fn pool_create(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CuResult<()> {
    out.check()?;
    let props = props.get()?;
    let home = props.home()?;
    if !home.is_of_device() {
        capture::check_safe()?;
        out.set_if_wanted(Arc::new(props.of_host(home)?).publish());
        return Ok(());
    }
    let ordinal = props.device_ordinal()?;
    let shared = if props.is_shareable() { Some(SharedPool::new()?) } else { None };
    let pool = Pool { default: false, most: props.most()?, shared, ..Pool::new(Home::of_device(ordinal)) };
    out.set_if_wanted(Arc::new(pool).publish());
    Ok(())
}

fn pool_destroy(handle: CUmemoryPool) -> CuResult<()> {
    let pool = find(handle)?;
    if pool.default {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    POOLS.remove(handle);
    home::forget(&pool)
}

fn pool_trim_to(handle: CUmemoryPool, _keep: usize) -> CuResult<()> {
    // Freed memory is never retained.
    capture::check_safe()?;
    find(handle).map(|_| ())
}

fn pool_set_attribute(handle: CUmemoryPool, attribute: u32, value: *const c_void) -> CuResult<()> {
    let pool = find(handle)?;
    // SAFETY: used for attributes of four bytes only, for which the caller's pointer is NULL or valid for reading as many.
    let word = || unsafe { In::new(value.cast::<u32>()) }.get();
    // SAFETY: used for attributes of eight bytes only, for which the caller's pointer is NULL or valid for reading as many.
    let wide = || unsafe { In::new(value.cast::<u64>()) }.get();
    match attribute {
        1..=3 => {
            pool.policies[attribute as usize - 1].store(word()?, Ordering::Relaxed);
        }
        RELEASE_THRESHOLD => {
            pool.threshold.store(wide()?, Ordering::Relaxed);
        }
        RESERVED_HIGH | USED_HIGH => {
            // The high water marks can only be reset.
            if wide()? != 0 {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            pool.reset_high();
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn pool_get_attribute(handle: CUmemoryPool, attribute: u32, value: *mut c_void) -> CuResult<()> {
    let pool = find(handle)?;
    if value.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: used for attributes of four bytes only, for which the caller's pointer is valid for writing as many.
    let word = |result: u32| unsafe { Out::new(value.cast::<u32>()) }.set_if_wanted(result);
    // SAFETY: used for attributes of eight bytes only, for which the caller's pointer is valid for writing as many.
    let wide = |result: u64| unsafe { Out::new(value.cast::<u64>()) }.set_if_wanted(result);
    match attribute {
        1..=3 => word(pool.policies[attribute as usize - 1].load(Ordering::Relaxed)),
        RELEASE_THRESHOLD => wide(pool.threshold.load(Ordering::Relaxed)),
        RESERVED_CURRENT | USED_CURRENT => wide(pool.usage().used),
        RESERVED_HIGH | USED_HIGH => wide(pool.usage().high),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn pool_set_access(handle: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize) -> CuResult<()> {
    let pool = find(handle)?;
    if count == 0 {
        return Err(INVALID);
    }
    (0..count).try_for_each(|index| {
        let access = access.at(index)?;
        if pool.home.is_of_device() { set_peer_access(&pool, access) } else { set_access(&pool, access) }
    })
}

/// Access to memory of a device.
fn set_peer_access(pool: &Pool, access: CUmemAccessDesc) -> CuResult<()> {
    let own = device(pool.home.id)?;
    if access.location.kind == LOCATION_DEVICE && access.flags == READ {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if access.location.kind != LOCATION_DEVICE || !matches!(access.flags, 0 | READ_WRITE) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let other = device(access.location.id)?;
    if other.ordinal == own.ordinal {
        // The device itself always has access.
        return if access.flags == 0 { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) } else { Ok(()) };
    }
    let mut peers = pool.peers.lock().unwrap_or_else(PoisonError::into_inner);
    // All memory of the device becomes accessible, not only the pool's.
    if access.flags == READ_WRITE && peers.insert(other.ordinal) {
        other.memory.add_peer(&own.memory);
    } else if access.flags == 0 && peers.remove(&other.ordinal) {
        context::wait_all_idle();
        other.memory.remove_peer(&own.memory);
    }
    Ok(())
}

/// Sets the access to host and managed memory. It is only stored, because all devices can access it.
fn set_access(pool: &Pool, access: CUmemAccessDesc) -> CuResult<()> {
    let CUmemAccessDesc { location, flags } = access;
    if flags == READ {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let of_device = location.kind == LOCATION_DEVICE;
    if of_device {
        device(location.id)?;
    }
    if !of_device && !home::is_host(location) || !matches!(flags, 0 | READ_WRITE) {
        return Err(INVALID);
    }
    if of_device {
        let mut peers = pool.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if flags == 0 {
            peers.remove(&location.id)
        } else {
            peers.insert(location.id)
        };
    } else if flags == 0 && !pool.home.is_managed() {
        // The host always has access to host memory.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    } else {
        pool.host.store(flags == READ_WRITE, Ordering::Relaxed);
    }
    Ok(())
}

fn pool_get_access(flags: Out<u32>, handle: CUmemoryPool, location: In<CUmemLocation>) -> CuResult<()> {
    flags.check()?;
    let pool = find(handle)?;
    let location = location.get()?;
    if home::is_host(location) {
        flags.set_if_wanted(if pool.host.load(Ordering::Relaxed) { READ_WRITE } else { 0 });
        return Ok(());
    }
    if location.kind != LOCATION_DEVICE {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let ordinal = device(location.id).map_err(|_| INVALID)?.ordinal;
    let given = pool.peers.lock().unwrap_or_else(PoisonError::into_inner).contains(&ordinal);
    flags.set_if_wanted(if given || pool.home == Home::of_device(ordinal) { READ_WRITE } else { 0 });
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemGetDefaultMemPool => get_default_pool_of(
        out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
    cuMemGetMemPool => get_pool_of(out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
    cuMemSetMemPool => set_pool_of(location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool);
    cuDeviceGetDefaultMemPool => get_default_mem_pool(out: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceGetMemPool => get_mem_pool(out: Out<CUmemoryPool>, device: CUdevice);
    cuDeviceSetMemPool => set_mem_pool(device: CUdevice, pool: CUmemoryPool);
    cuMemPoolCreate => pool_create(out: Out<CUmemoryPool>, props: In<CUmemPoolProps>);
    cuMemPoolDestroy => pool_destroy(pool: CUmemoryPool);
    cuMemPoolTrimTo => pool_trim_to(pool: CUmemoryPool, keep: usize);
    cuMemPoolSetAttribute => pool_set_attribute(pool: CUmemoryPool, attribute: u32, value: *const c_void);
    cuMemPoolGetAttribute => pool_get_attribute(pool: CUmemoryPool, attribute: u32, value: *mut c_void);
    cuMemPoolSetAccess => pool_set_access(pool: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize);
    cuMemPoolGetAccess => pool_get_access(flags: Out<u32>, pool: CUmemoryPool, location: In<CUmemLocation>);
}
