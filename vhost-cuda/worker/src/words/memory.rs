// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for memory and memory pools.

use virtio_cuda_protocol::cuda::{DevicePtr, Location, PoolProperties};

use crate::call::CallContext;
use crate::gpu::{ACCESS_READ_WRITE, ALLOCATION_PINNED, HANDLE_TYPE_FILE};
use crate::gpu::{Checked, CuResult, CudaError, One, Opaque, RawAccess, RawPool, Ref};

/// The access of a location.
///
/// Errors: as for [`Location`], and `CUDA_ERROR_INVALID_VALUE` for flags above the maximum.
pub fn granted(cx: &CallContext<'_>, location: Location, flags: u32) -> CuResult<Ref<RawAccess>> {
    if flags > ACCESS_READ_WRITE {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(Ref(RawAccess { location: cx.resolve(location)?, flags }))
}

/// The length of an array of one element.
pub fn one(_cx: &CallContext<'_>) -> CuResult<One> {
    Ok(One)
}

/// An address that the driver stores and does not follow.
pub fn opaque(_cx: &CallContext<'_>, address: u64) -> CuResult<Opaque> {
    Ok(Opaque(address))
}

/// `bytes` bytes of the session's memory; `None` if they overflow.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`.
pub fn memory(cx: &CallContext<'_>, start: DevicePtr, bytes: Option<u64>) -> CuResult<Checked> {
    cx.session.check(start.0, bytes.ok_or(CudaError::INVALID_VALUE)?)?;
    // SAFETY: the row states the bytes that the driver uses, and they are the session's.
    Ok(unsafe { Checked::new(start.0) })
}

/// The description of a pool for the process alone.
pub fn private(cx: &CallContext<'_>, properties: PoolProperties) -> CuResult<Ref<RawPool>> {
    pool(cx, &properties, 0)
}

/// The description of a pool that processes can share.
pub fn shareable(cx: &CallContext<'_>, properties: PoolProperties) -> CuResult<Ref<RawPool>> {
    pool(cx, &properties, HANDLE_TYPE_FILE)
}

fn pool(cx: &CallContext<'_>, properties: &PoolProperties, handle_types: u32) -> CuResult<Ref<RawPool>> {
    let location = cx.resolve(properties.location)?;
    if properties.kind != ALLOCATION_PINNED {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(Ref(RawPool::of_wire(properties, location, handle_types)))
}
