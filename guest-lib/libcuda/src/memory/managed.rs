// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Managed memory: pinned memory in the address window. It is coherent at all times and does not migrate, so
//! prefetching and advice are checked and then have nothing to do.

use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::memory::host::allocate;
use crate::memory::ranges::HostKind;

/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH_FLAGS: [u32; 2] = [1, 2];
/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const DEVICE_CPU: i32 = -1;
const DEVICE_INVALID: i32 = -2;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemLocation {
    /// `CU_MEM_LOCATION_TYPE_*`.
    pub kind: u32,
    /// Ordinal of the device.
    pub id: i32,
}
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`; the NUMA variants follow.
const LOCATION_HOST: u32 = 2;
/// The greatest `CU_MEM_LOCATION_TYPE_*`.
const MAX_LOCATION: u32 = 4;
/// `CU_MEM_ADVISE_*` run from 1 to this.
const MAX_ADVICE: i32 = 6;

/// `CU_MEM_RANGE_ATTRIBUTE_*`.
const RANGE_READ_MOSTLY: i32 = 1;
const RANGE_PREFERRED_LOCATION: i32 = 2;
const RANGE_ACCESSED_BY: i32 = 3;
const RANGE_LAST_PREFETCH_LOCATION: i32 = 4;

fn check_range(api: Api, address: u64, bytes: usize) -> Result<(), CudaError> {
    let range = api.driver.memory.ranges.host_of(address, bytes as u64).ok_or(CudaError::INVALID_VALUE)?;
    match range.kind {
        HostKind::Managed | HostKind::ManagedVariable if bytes > 0 => Ok(()),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

fn check_device(api: Api, device: i32) -> Result<(), CudaError> {
    if device == DEVICE_CPU { Ok(()) } else { api.driver.devices.check(device).map(|_| ()) }
}

fn check_location(api: Api, location: MemLocation) -> Result<(), CudaError> {
    match location.kind {
        LOCATION_DEVICE => api.driver.devices.check(location.id).map(|_| ()),
        LOCATION_HOST..=MAX_LOCATION => Ok(()),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

fn check_advice(advice: i32) -> Result<(), CudaError> {
    if (1..=MAX_ADVICE).contains(&advice) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// No advice is kept, so every range has none.
fn range_attribute(data: HostPtr, bytes: usize, attribute: i32) -> Result<(), CudaError> {
    let words = bytes / size_of::<i32>();
    let value = match attribute {
        RANGE_READ_MOSTLY => 0,
        RANGE_PREFERRED_LOCATION | RANGE_LAST_PREFETCH_LOCATION | RANGE_ACCESSED_BY => DEVICE_INVALID,
        _ => return Err(CudaError::INVALID_VALUE),
    };
    if words == 0 || !bytes.is_multiple_of(size_of::<i32>()) || (attribute != RANGE_ACCESSED_BY && words != 1)
    {
        return Err(CudaError::INVALID_VALUE);
    }
    (0..words).try_for_each(|index| data.as_out::<i32>().set_at(index, value))
}

/// Checks each range of a batch, and the location of each if it has any.
fn check_batch(
    api: Api,
    (addresses, sizes, count): (In<u64>, In<usize>, usize),
    locations: Option<(In<MemLocation>, In<usize>, usize)>,
    flags: u64,
) -> Result<(), CudaError> {
    api.context()?;
    if count == 0 || flags != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    if let Some((locations, indices, count_of_locations)) = locations {
        // The first location is for the ranges from 0 on, each further one from its index on.
        let in_order = |index: usize| -> Result<bool, CudaError> {
            let from = indices.at(index)?;
            Ok(from < count && if index == 0 { from == 0 } else { from > indices.at(index - 1)? })
        };
        if count_of_locations == 0 || count_of_locations > count {
            return Err(CudaError::INVALID_VALUE);
        }
        for index in 0..count_of_locations {
            check_location(api, locations.at(index)?)?;
            if !in_order(index)? {
                return Err(CudaError::INVALID_VALUE);
            }
        }
    }
    (0..count).try_for_each(|index| check_range(api, addresses.at(index)?, sizes.at(index)?))
}

entry_points! {
    /// Nothing migrates.
    call cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize,
        prefetchLocs: In<MemLocation>, prefetchLocIdxs: In<usize>, numPrefetchLocs: usize, flags: u64, _hStream: u64) {
        check_batch(api, (dptrs, sizes, count), Some((prefetchLocs, prefetchLocIdxs, numPrefetchLocs)), flags)
    }

    /// What the ranges hold may be anything afterwards, so also what it was.
    call cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize, flags: u64, _hStream: u64) {
        check_batch(api, (dptrs, sizes, count), None, flags)
    }

    /// Both: nothing migrates, nothing is discarded.
    call cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize,
        prefetchLocs: In<MemLocation>, prefetchLocIdxs: In<usize>, numPrefetchLocs: usize, flags: u64, _hStream: u64) {
        check_batch(api, (dptrs, sizes, count), Some((prefetchLocs, prefetchLocIdxs, numPrefetchLocs)), flags)
    }

    /// Allocates memory with one address for the program and the GPU.
    call cuMemAllocManaged(api, dptr: Out<u64>, bytesize: usize, flags: u32) {
        dptr.check()?;
        if !ATTACH_FLAGS.contains(&flags) {
            return Err(CudaError::INVALID_VALUE);
        }
        dptr.set(allocate(api, bytesize, HostKind::Managed, flags)?)
    }

    /// Nothing migrates.
    call cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz (api, devPtr: u64, count: usize, dstDevice: i32, _hStream: u64) {
        api.context()?;
        check_device(api, dstDevice)?;
        check_range(api, devPtr, count)
    }

    /// Nothing migrates.
    call cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz (api, devPtr: u64, count: usize, location: MemLocation, flags: u32, _hStream: u64) {
        api.context()?;
        if flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        check_location(api, location)?;
        check_range(api, devPtr, count)
    }

    /// Nothing migrates.
    call cuMemAdvise(api, devPtr: u64, count: usize, advice: i32, device: i32) {
        check_advice(advice)?;
        check_device(api, device)?;
        check_range(api, devPtr, count)
    }

    /// Nothing migrates.
    call cuMemAdvise_v2(api, devPtr: u64, count: usize, advice: i32, location: MemLocation) {
        check_advice(advice)?;
        // Read-mostly advice ignores the location.
        if advice > 2 {
            check_location(api, location)?;
        }
        check_range(api, devPtr, count)
    }

    /// An attribute of a range.
    call cuMemRangeGetAttribute(api, data: HostPtr, dataSize: usize, attribute: i32, devPtr: u64, count: usize) {
        check_range(api, devPtr, count)?;
        range_attribute(data, dataSize, attribute)
    }

    /// Attributes of a range.
    call cuMemRangeGetAttributes(api, data: In<HostPtr>, dataSizes: In<usize>, attributes: In<i32>, numAttributes: usize, devPtr: u64, count: usize) {
        check_range(api, devPtr, count)?;
        for index in 0..numAttributes {
            range_attribute(data.at(index)?, dataSizes.at(index)?, attributes.at(index)?)?;
        }
        Ok(())
    }
}
