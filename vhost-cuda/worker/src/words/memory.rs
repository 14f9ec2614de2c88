// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for memory and memory pools.

use virtio_cuda_protocol::cuda::{DevicePtr, Location, PoolProperties};

use crate::call::CallContext;
use crate::gpu::{ACCESS_READ_WRITE, ALLOCATION_PINNED, HANDLE_TYPE_FILE};
use crate::gpu::{Checked, CuResult, CudaError, One, Opaque, RawAccess, RawPool, Ref};
use crate::resolve::{Ready, Resolve};

/// The access of a location.
pub struct Access(Location, u32);

/// Returns the access of a location.
///
/// Errors: as for [`Location`], and `CUDA_ERROR_INVALID_VALUE` for flags above the maximum.
pub fn granted(location: Location, flags: u32) -> Access {
    Access(location, flags)
}

impl Resolve<'_, RawAccess> for Access {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<RawAccess> {
        if self.1 > ACCESS_READ_WRITE {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(RawAccess { location: cx.resolve(self.0)?, flags: self.1 })
    }
}

impl Resolve<'_, Ref<RawAccess>> for Access {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Ref<RawAccess>> {
        self.resolve(cx).map(Ref)
    }
}

/// The length of an array of one element.
pub fn one() -> One {
    One
}

/// An address that the driver stores and does not follow.
pub fn opaque(address: u64) -> Opaque {
    Opaque(address)
}
impl Ready for One {}
impl Ready for Opaque {}

/// Memory of the session.
pub struct Memory(DevicePtr, Option<u64>);

/// `bytes` bytes of the session's memory; `None` if they overflow.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE`.
pub fn memory(start: DevicePtr, bytes: Option<u64>) -> Memory {
    Memory(start, bytes)
}

impl Resolve<'_, Checked> for Memory {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Checked> {
        cx.session.check(self.0.0, self.1.ok_or(CudaError::INVALID_VALUE)?)?;
        // SAFETY: the row states the bytes that the driver uses, and they are the session's.
        Ok(unsafe { Checked::new(self.0.0) })
    }
}

/// The description of a pool.
pub struct Pool(PoolProperties, u32);

/// The description of a pool for the process alone.
pub fn private(properties: PoolProperties) -> Pool {
    Pool(properties, 0)
}

/// The description of a pool that processes can share.
pub fn shareable(properties: PoolProperties) -> Pool {
    Pool(properties, HANDLE_TYPE_FILE)
}

impl Resolve<'_, Ref<RawPool>> for Pool {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Ref<RawPool>> {
        let location = cx.resolve(self.0.location)?;
        if self.0.kind != ALLOCATION_PINNED {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(Ref(RawPool::of_wire(&self.0, location, self.1)))
    }
}
