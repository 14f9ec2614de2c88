// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory pools.

pub mod share;

use virtio_cuda_protocol::cuda::{DevicePtr, MemoryPoolId, StreamId};

use crate::call::CallContext;
use crate::gpu::{CuResult, CudaError};
use crate::handlers::graph::capture::captures;
use crate::handlers::memory::{allocate_async, allocate_in_graph};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;
/// Attributes before this one are `int`, the others `cuuint64_t`. `LAST_ATTRIBUTE` is the last one.
const LAST_ATTRIBUTE: i32 = 8;

/// Returns an attribute of a pool.
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
        let thresholds = cx.session.thresholds.lock();
        if let Some(&threshold) = thresholds.get(&pool.0) {
            return Ok((threshold,));
        }
    }
    let mut value = 0u64;
    // SAFETY: the driver writes four or eight bytes there; the first four of a little-endian word are its value.
    unsafe { cx.gpu().cuMemPoolGetAttribute(raw, attribute, (&raw mut value).cast()) }?;
    Ok((value,))
}

/// Sets an attribute of a pool. Under a quota the release threshold is only remembered, because memory that pools
/// retain is not counted.
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
        cx.session.thresholds.lock().insert(pool.0, value);
        return Ok(());
    }
    // SAFETY: the driver reads four or eight bytes there.
    unsafe { cx.gpu().cuMemPoolSetAttribute(raw, attribute, (&raw mut value).cast()) }
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
    if captures(cx, stream) {
        return Ok((allocate_in_graph(cx, bytesize, stream, made)?,));
    }
    let known = if cx.session.is_limited() { pool as usize } else { 0 };
    Ok((allocate_async(cx, bytesize, known, made)?,))
}

/// Sets the devices that may access a chunk of a pool of the guest library.
pub fn pool_memory_readers(cx: &mut CallContext<'_>, dptr: DevicePtr, devices: u64) -> CuResult<()> {
    if !cx.session.placed.has_peers() {
        return Err(CudaError::NOT_SUPPORTED);
    }
    if dptr.0 == 0 {
        return Ok(());
    }
    let ordinals = (0..u64::BITS).filter(|ordinal| devices & (1 << ordinal) != 0);
    let readers = ordinals.map(|ordinal| cx.session.device(ordinal)).collect::<CuResult<_>>()?;
    cx.session.placed.set_readers(cx.gpu(), dptr.0, readers)
}
