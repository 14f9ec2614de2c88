// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of contiguous bytes.

use core::ffi::{c_uint, c_void};

use super::copy2d::{Area, copy_area};
use crate::abi::cudaStream_t;
use crate::abi::driver::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED};
use crate::abi::shared::{
    DEFAULT_STREAM, cudaMemcpyDefault, cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost,
    cudaMemcpyHostToDevice, cudaMemcpyHostToHost,
};
use crate::error::{Result, cudaErrorInvalidMemcpyDirection};
use crate::memory::address;
use crate::{driver, state};

/// `cudaMemcpyKind`, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// The driver derives the direction from the addresses.
    Default,
}

impl Direction {
    pub fn of(kind: c_uint) -> Result<Self> {
        match kind {
            cudaMemcpyHostToHost => Ok(Self::HostToHost),
            cudaMemcpyHostToDevice => Ok(Self::HostToDevice),
            cudaMemcpyDeviceToHost => Ok(Self::DeviceToHost),
            cudaMemcpyDeviceToDevice => Ok(Self::DeviceToDevice),
            cudaMemcpyDefault => Ok(Self::Default),
            _ => Err(cudaErrorInvalidMemcpyDirection),
        }
    }

    /// Returns the `CU_MEMORYTYPE_*` of the source.
    pub fn source(self) -> c_uint {
        match self {
            Self::HostToHost | Self::HostToDevice => CU_MEMORYTYPE_HOST,
            Self::DeviceToHost | Self::DeviceToDevice => CU_MEMORYTYPE_DEVICE,
            Self::Default => CU_MEMORYTYPE_UNIFIED,
        }
    }

    /// Returns the `CU_MEMORYTYPE_*` of the destination.
    pub fn destination(self) -> c_uint {
        match self {
            Self::HostToHost | Self::DeviceToHost => CU_MEMORYTYPE_HOST,
            Self::HostToDevice | Self::DeviceToDevice => CU_MEMORYTYPE_DEVICE,
            Self::Default => CU_MEMORYTYPE_UNIFIED,
        }
    }

    /// Returns the `cudaMemcpyKind` of two `CU_MEMORYTYPE_*` values. Arrays count as device memory.
    pub fn between(src: c_uint, dst: c_uint) -> c_uint {
        match (src, dst) {
            (CU_MEMORYTYPE_UNIFIED, _) | (_, CU_MEMORYTYPE_UNIFIED) => cudaMemcpyDefault,
            (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST) => cudaMemcpyHostToHost,
            (CU_MEMORYTYPE_HOST, _) => cudaMemcpyHostToDevice,
            (_, CU_MEMORYTYPE_HOST) => cudaMemcpyDeviceToHost,
            _ => cudaMemcpyDeviceToDevice,
        }
    }
}

/// Says when a copy returns, and on which stream it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Returns when the copy is done. The stream is one of the two default streams.
    Blocking(cudaStream_t),
    /// Returns at once.
    Queued(cudaStream_t),
}

impl Order {
    /// Returns the stream to queue on; `None` for blocking calls on the legacy stream, for which the driver has
    /// separate functions.
    pub fn queue(self) -> Option<cudaStream_t> {
        match self {
            Self::Blocking(stream) if stream == DEFAULT_STREAM => None,
            Self::Blocking(stream) | Self::Queued(stream) => Some(stream),
        }
    }

    /// Waits for a queued operation if the call is blocking.
    pub fn finish(self) -> Result {
        match self {
            // SAFETY: a default stream, which always exists.
            Self::Blocking(stream) if stream != DEFAULT_STREAM => unsafe {
                driver::cuStreamSynchronize(stream)
            },
            _ => Ok(()),
        }
    }
}

api! {
    fn cudaMemcpy, cudaMemcpy_ptds(
        dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint,
    ) on stream {} => checked(dst, src, size, kind, Order::Blocking(stream));

    fn cudaMemcpyAsync, cudaMemcpyAsync_ptsz(
        dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint, stream: cudaStream_t,
    ) per_thread stream {} => checked(dst, src, size, kind, Order::Queued(stream));
}

/// # Safety
/// The contract of [`linear`].
unsafe fn checked(dst: *mut c_void, src: *const c_void, size: usize, kind: c_uint, order: Order) -> Result {
    state::context()?;
    if size == 0 {
        return Ok(());
    }
    // SAFETY: both sides are valid for `size` bytes by this function's contract.
    unsafe { linear(dst, src, size, Direction::of(kind)?, order) }
}

/// Copies `size` bytes. Needs a context.
///
/// # Safety
/// Both pointers are valid for `size` bytes on the side that `direction` says, until the copy is done.
pub unsafe fn linear(
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    direction: Direction,
    order: Order,
) -> Result {
    if size == 0 {
        return Ok(());
    }
    let (dst_address, src_address) = (address(dst), address(src));
    // SAFETY: both sides are valid for `size` bytes by this function's contract, which is all that each call here
    // demands.
    unsafe {
        match (order.queue(), direction) {
            (_, Direction::HostToHost) => {
                let dst = Area::bytes(dst, size, CU_MEMORYTYPE_HOST);
                return copy_area(dst, Area::bytes(src, size, CU_MEMORYTYPE_HOST), size, 1, order);
            }
            (None, Direction::HostToDevice) => return driver::cuMemcpyHtoD_v2(dst_address, src, size),
            (None, Direction::DeviceToHost) => return driver::cuMemcpyDtoH_v2(dst, src_address, size),
            (None, Direction::DeviceToDevice) => {
                return driver::cuMemcpyDtoD_v2(dst_address, src_address, size);
            }
            (None, Direction::Default) => return driver::cuMemcpy(dst_address, src_address, size),
            (Some(stream), Direction::HostToDevice) => {
                driver::cuMemcpyHtoDAsync_v2(dst_address, src, size, stream)?
            }
            (Some(stream), Direction::DeviceToHost) => {
                driver::cuMemcpyDtoHAsync_v2(dst, src_address, size, stream)?
            }
            // The call need not wait for a copy that does not involve host memory.
            (Some(stream), Direction::DeviceToDevice) => {
                return driver::cuMemcpyDtoDAsync_v2(dst_address, src_address, size, stream);
            }
            (Some(stream), Direction::Default) => {
                driver::cuMemcpyAsync(dst_address, src_address, size, stream)?
            }
        }
    }
    order.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_out_of_range_are_a_wrong_direction() {
        assert_eq!(Direction::of(4), Ok(Direction::Default));
        assert_eq!(Direction::of(5), Err(cudaErrorInvalidMemcpyDirection));
        assert_eq!(Direction::of(u32::MAX), Err(cudaErrorInvalidMemcpyDirection));
    }

    #[test]
    fn kinds_survive_the_way_to_memory_types_and_back() {
        for kind in 0..=4 {
            let direction = Direction::of(kind).unwrap();
            assert_eq!(Direction::between(direction.source(), direction.destination()), kind);
        }
    }

    #[test]
    fn only_the_legacy_blocking_copy_has_no_queue() {
        assert_eq!(Order::Blocking(DEFAULT_STREAM).queue(), None);
        let per_thread = crate::abi::shared::PER_THREAD_STREAM;
        assert_eq!(Order::Blocking(per_thread).queue(), Some(per_thread));
        assert_eq!(Order::Queued(DEFAULT_STREAM).queue(), Some(DEFAULT_STREAM));
    }
}
