// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory pools.

use std::sync::PoisonError;

use virtio_cuda_protocol::cuda::{
    DeviceOrdinal, DevicePtr, Location, MemoryPoolId, PoolProperties, StreamId,
};

use super::memory::allocate_async;
use crate::exchange::POOL;
use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, RawAccess, RawPool};
use crate::worker::objects::Object;
use crate::worker::pools;
use crate::worker::resolve::HANDLE_TYPE_FILE;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`, the greatest.
const MAX_ACCESS: u32 = 3;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;
/// Attributes before that one are `int`, from it on `cuuint64_t`; this is the last one.
const LAST_ATTRIBUTE: i32 = 8;

/// Who may do what.
///
/// Errors: as for [`Location`], and `CUDA_ERROR_INVALID_VALUE` for access that there is not.
pub fn access(cx: &CallContext<'_>, place: Location, flags: u32) -> CuResult<RawAccess> {
    if flags > MAX_ACCESS {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(RawAccess { location: cx.resolve(place)?, flags })
}

/// Creates a pool.
pub fn cuMemPoolCreate(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    properties: PoolProperties,
) -> CuResult<()> {
    create(cx, pool, &properties, 0)
}

/// Creates a pool that other processes may share.
pub fn pool_create_shareable(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    properties: PoolProperties,
) -> CuResult<()> {
    create(cx, pool, &properties, HANDLE_TYPE_FILE)
}

fn create(
    cx: &CallContext<'_>,
    pool: MemoryPoolId,
    properties: &PoolProperties,
    handle_types: u32,
) -> CuResult<()> {
    let location = cx.resolve(properties.location)?;
    if properties.kind != TYPE_PINNED {
        return Err(CudaError::INVALID_VALUE);
    }
    let reserved = cx.session.objects.pools.reserve(pool.0)?;
    // SAFETY: the properties live across the call.
    let (raw,) = unsafe { cx.gpu().cuMemPoolCreate(&RawPool::of_wire(properties, location, handle_types)) }?;
    let session = cx.session;
    cx.fill(reserved, cx.made_in(None, raw, move |_, raw| pools::destroy(session, raw)))
}

/// Destroys a pool; its memory goes as it is freed.
pub fn cuMemPoolDestroy(cx: &mut CallContext<'_>, pool: MemoryPoolId) -> CuResult<()> {
    if !cx.session.objects.pools.get(pool.0)?.is_whole() {
        // It is a device's.
        return Err(CudaError::INVALID_VALUE);
    }
    let object = cx.session.objects.pools.remove(pool.0)?;
    cx.session.sharing.end(POOL, pool.0);
    cx.session.thresholds.lock().unwrap_or_else(PoisonError::into_inner).remove(&pool.0);
    Object::destroy(object)
}

/// Names a device's default pool.
pub fn cuDeviceGetDefaultMemPool(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
    pool: MemoryPoolId,
) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let reserved = cx.session.objects.pools.reserve(pool.0)?;
    let (raw,) = cx.gpu().cuDeviceGetDefaultMemPool(device)?;
    cx.fill(reserved, Object::new(raw))
}

/// An attribute of a pool.
pub fn cuMemPoolGetAttribute(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    attribute: i32,
) -> CuResult<(u64,)> {
    let raw = cx.resolve(pool)?;
    if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
        return Err(CudaError::INVALID_VALUE);
    }
    if attribute == RELEASE_THRESHOLD {
        let thresholds = cx.session.thresholds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&threshold) = thresholds.get(&pool.0) {
            return Ok((threshold,));
        }
    }
    let mut value = 0u64;
    // SAFETY: the driver writes four or eight bytes there; the first four of a little-endian word are its value.
    unsafe { cx.gpu().cuMemPoolGetAttribute(raw, attribute, (&raw mut value).cast()) }?;
    Ok((value,))
}

/// Sets an attribute of a pool. Under a quota the release threshold is only remembered: memory that pools keep
/// is counted nowhere.
pub fn cuMemPoolSetAttribute(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    attribute: i32,
    mut value: u64,
) -> CuResult<()> {
    let raw = cx.resolve(pool)?;
    if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
        return Err(CudaError::INVALID_VALUE);
    }
    if attribute == RELEASE_THRESHOLD && cx.session.is_limited() {
        cx.session.thresholds.lock().unwrap_or_else(PoisonError::into_inner).insert(pool.0, value);
        return Ok(());
    }
    // SAFETY: the driver reads four or eight bytes there.
    unsafe { cx.gpu().cuMemPoolSetAttribute(raw, attribute, (&raw mut value).cast()) }
}

/// Sets what a location may do with a pool's memory.
pub fn cuMemPoolSetAccess(
    cx: &mut CallContext<'_>,
    pool: MemoryPoolId,
    place: Location,
    flags: u32,
) -> CuResult<()> {
    let (raw, access) = (cx.resolve(pool)?, access(cx, place, flags)?);
    // SAFETY: one description, which lives across the call.
    unsafe { cx.gpu().cuMemPoolSetAccess(raw, &access, 1) }
}

/// Allocates from a pool.
pub fn cuMemAllocFromPoolAsync(
    cx: &mut CallContext<'_>,
    bytesize: u64,
    pool: MemoryPoolId,
    stream: StreamId,
) -> CuResult<(DevicePtr,)> {
    let (pool, stream) = (cx.resolve(pool)?, cx.resolve(stream)?);
    let made = |bytes| Ok(cx.gpu().cuMemAllocFromPoolAsync(bytes, pool, stream)?.0);
    let known = if cx.session.is_limited() { pool as usize } else { 0 };
    Ok((allocate_async(cx, bytesize, known, made)?,))
}
