// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Managed memory. Long allocations move between the program and the GPU ([`moving`]). Others, and those for which
//! there is no device memory, are pinned memory in the address window. They are always coherent, and a prefetch has no
//! effect.
//!
//! [`moving`]: crate::memory::moving

use std::iter::repeat;

use cuda_abi::CUmemLocation;
use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::memory::host::allocate_managed;
use crate::state::advice::Page;
use crate::state::devices::LOCATION_DEVICE;
use crate::state::memory::window::PAGE_BYTES;
use crate::state::moving::Uses;

/// `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH_FLAGS: [u32; 2] = [1, 2];
/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const DEVICE_CPU: i32 = -1;
const DEVICE_INVALID: i32 = -2;

/// `CU_MEM_LOCATION_TYPE_HOST` and `CU_MEM_LOCATION_TYPE_HOST_NUMA`; another NUMA variant follows.
pub const LOCATION_HOST: u32 = 2;
const LOCATION_NUMA: u32 = 3;
/// The largest `CU_MEM_LOCATION_TYPE_*`.
const MAX_LOCATION: u32 = 4;
/// `CU_MEM_ADVISE_*` values are 1 to this.
const MAX_ADVICE: i32 = 6;

/// `CU_MEM_RANGE_ATTRIBUTE_*`.
const RANGE_READ_MOSTLY: i32 = 1;
const RANGE_PREFERRED_LOCATION: i32 = 2;
const RANGE_ACCESSED_BY: i32 = 3;
const RANGE_LAST_PREFETCH_LOCATION: i32 = 4;
const RANGE_PREFERRED_LOCATION_TYPE: i32 = 5;
const RANGE_PREFERRED_LOCATION_ID: i32 = 6;
const RANGE_LAST_PREFETCH_LOCATION_TYPE: i32 = 7;
const RANGE_LAST_PREFETCH_LOCATION_ID: i32 = 8;

/// Checks a range of managed memory. It does not wrap around.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` for other memory, and an empty range.
pub fn check_range(api: Api, address: u64, bytes: usize) -> Result<(), CudaError> {
    let range = api.driver.memory.ranges.host_of(address, bytes as u64).ok_or(CudaError::INVALID_VALUE)?;
    if range.kind.is_managed() && bytes > 0 { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

fn check_device(api: Api, device: i32) -> Result<(), CudaError> {
    if device == DEVICE_CPU { Ok(()) } else { api.driver.devices.check(device).map(|_| ()) }
}

fn check_location(api: Api, location: CUmemLocation) -> Result<(), CudaError> {
    match location.kind {
        LOCATION_DEVICE => api.driver.devices.check(location.id).map(|_| ()),
        LOCATION_HOST..=MAX_LOCATION => Ok(()),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

fn check_advice(advice: i32) -> Result<(), CudaError> {
    if (1..=MAX_ADVICE).contains(&advice) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Returns the common value of all pages, if they are equal.
fn common<T: Copy + PartialEq>(pages: &[Page], of: impl Fn(&Page) -> Option<T>) -> Option<T> {
    let first = pages.first().and_then(&of)?;
    pages.iter().all(|page| of(page) == Some(first)).then_some(first)
}

/// Converts a location to the device number that CUDA 8's attributes use.
fn as_device(location: Option<CUmemLocation>) -> i32 {
    match location {
        Some(CUmemLocation { kind: LOCATION_DEVICE, id }) => id,
        Some(CUmemLocation { kind: LOCATION_HOST | LOCATION_NUMA, .. }) => DEVICE_CPU,
        _ => DEVICE_INVALID,
    }
}

/// Returns an attribute of a validated range.
fn range_attribute(
    api: Api,
    data: Out<i32>,
    bytes: usize,
    attribute: i32,
    address: u64,
    count: usize,
) -> Result<(), CudaError> {
    let words = bytes / size_of::<i32>();
    if words == 0 || !bytes.is_multiple_of(size_of::<i32>()) || (attribute != RANGE_ACCESSED_BY && words != 1)
    {
        return Err(CudaError::INVALID_VALUE);
    }
    let pages = api.driver.memory.advice.said(address, count as u64);
    let pool = api.driver.memory.ranges.host(address).and_then(|range| range.pool.clone());
    let preferred = match pool {
        Some(pool) => pool.home.preferred(),
        None => common(&pages, |page| page.preferred),
    };
    let prefetched = common(&pages, |page| page.prefetched);
    let value = match attribute {
        RANGE_READ_MOSTLY => pages.iter().all(|page| page.read_mostly).into(),
        RANGE_PREFERRED_LOCATION => as_device(preferred),
        RANGE_LAST_PREFETCH_LOCATION => as_device(prefetched),
        RANGE_PREFERRED_LOCATION_TYPE => preferred.map_or(0, |location| location.kind as i32),
        RANGE_LAST_PREFETCH_LOCATION_TYPE => prefetched.map_or(0, |location| location.kind as i32),
        RANGE_PREFERRED_LOCATION_ID => preferred.map_or(0, |location| location.id),
        RANGE_LAST_PREFETCH_LOCATION_ID => prefetched.map_or(0, |location| location.id),
        RANGE_ACCESSED_BY => {
            let by_all = |device: &i32| pages.iter().all(|page| page.accessed_by.contains(device));
            let devices = pages[0].accessed_by.iter().copied().filter(by_all);
            for (index, device) in devices.chain(repeat(DEVICE_INVALID)).take(words).enumerate() {
                data.set_at(index, device)?;
            }
            return Ok(());
        }
        _ => return Err(CudaError::INVALID_VALUE),
    };
    data.set(value)
}

/// Stores advice on a validated range.
fn advise(
    api: Api,
    address: u64,
    count: usize,
    advice: i32,
    location: CUmemLocation,
) -> Result<(), CudaError> {
    // The pool determines the location of its memory.
    if api.driver.memory.ranges.host(address).is_some_and(|range| range.pool.is_some()) {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let device = as_device(Some(location));
    api.driver.memory.advice.say(address, count as u64, |page| match advice {
        1 | 2 => page.read_mostly = advice == 1,
        3 => page.preferred = Some(location),
        4 => page.preferred = None,
        5 => {
            page.accessed_by.insert(device);
        }
        _ => {
            page.accessed_by.remove(&device);
        }
    });
    if let 3 | 4 = advice {
        prefer(api, address, count, advice == 3 && device == DEVICE_CPU);
    }
    Ok(())
}

/// Follows the preferred location of a validated range, if it is all of an allocation that moves: device memory is mapped
/// as a whole.
fn prefer(api: Api, address: u64, count: usize, host: bool) {
    let Some(range) = api.driver.memory.ranges.host(address) else { return };
    let Some(moving) = &range.moving else { return };
    let end = range.start + range.bytes;
    let reached = address.saturating_add(count as u64).next_multiple_of(PAGE_BYTES);
    if address / PAGE_BYTES == range.start / PAGE_BYTES && reached >= end {
        api.prefer(moving, host);
    }
}

/// Moves a validated range to a location.
fn prefetch(api: Api, address: u64, count: usize, location: CUmemLocation) -> Result<(), CudaError> {
    let memory = &api.driver.memory;
    memory.advice.say(address, count as u64, |page| page.prefetched = Some(location));
    let Some(moving) = memory.moving.at(address) else { return Ok(()) };
    if location.kind == LOCATION_DEVICE {
        api.send_managed(Uses::Memory([(address, count as u64), (0, 0)])).map(drop)
    } else {
        // Queued work may write the memory, so it must end first, and its errors are the program's. Waiting would end a
        // capture: in that case nothing is done, since a prefetch is only a hint.
        if api.wait_unless_capturing(&mut api.in_context()?)? {
            api.fetch_managed(&moving, address - moving.address, count as u64)?;
        }
        Ok(())
    }
}

/// Converts a device number of the calls before CUDA 13 to a location.
fn location_of(device: i32) -> CUmemLocation {
    let kind = if device == DEVICE_CPU { LOCATION_HOST } else { LOCATION_DEVICE };
    CUmemLocation { kind, id: device.max(0) }
}

/// Checks each range of a batch, and each location if there are any.
fn check_batch(
    api: Api,
    addresses: In<u64>,
    sizes: In<usize>,
    count: usize,
    locations: Option<(In<CUmemLocation>, In<usize>, usize)>,
    flags: u64,
) -> Result<(), CudaError> {
    api.context()?;
    if count == 0 || flags != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    if let Some((locations, indices, count_of_locations)) = locations {
        // The first location applies to the ranges from 0 on, each further one from its index on.
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
    (0..count).try_for_each(|index| check_range(api, addresses.at(index)?, sizes.at(index)?))?;
    let Some((locations, indices, count_of_locations)) = locations else { return Ok(()) };
    let mut which = 0;
    for index in 0..count {
        if which + 1 < count_of_locations && indices.at(which + 1)? == index {
            which += 1;
        }
        prefetch(api, addresses.at(index)?, sizes.at(index)?, locations.at(which)?)?;
    }
    Ok(())
}

entry_points! {
    /// Moves ranges to where they will be used.
    call cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize,
        prefetchLocs: In<CUmemLocation>, prefetchLocIdxs: In<usize>, numPrefetchLocs: usize, flags: u64, _hStream: u64) {
        check_batch(api, dptrs, sizes, count, Some((prefetchLocs, prefetchLocIdxs, numPrefetchLocs)), flags)
    }

    /// Leaves the ranges unchanged, which is valid because their contents are undefined afterwards.
    call cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize, flags: u64, _hStream: u64) {
        check_batch(api, dptrs, sizes, count, None, flags)
    }

    /// Moves ranges to where they will be used; their contents are not discarded.
    call cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz (api, dptrs: In<u64>, sizes: In<usize>, count: usize,
        prefetchLocs: In<CUmemLocation>, prefetchLocIdxs: In<usize>, numPrefetchLocs: usize, flags: u64, _hStream: u64) {
        check_batch(api, dptrs, sizes, count, Some((prefetchLocs, prefetchLocIdxs, numPrefetchLocs)), flags)
    }

    /// Allocates memory that has the same address for the program and the GPU.
    call cuMemAllocManaged(api, dptr: Out<u64>, bytesize: usize, flags: u32) {
        dptr.check()?;
        if !ATTACH_FLAGS.contains(&flags) {
            return Err(CudaError::INVALID_VALUE);
        }
        let address = allocate_managed(api, bytesize, flags)?;
        api.driver.memory.advice.forget(address, bytesize as u64);
        dptr.set(address)
    }

    /// Moves a range to where it will be used.
    call cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz (api, devPtr: u64, count: usize, dstDevice: i32, _hStream: u64) {
        api.context()?;
        check_device(api, dstDevice)?;
        check_range(api, devPtr, count)?;
        prefetch(api, devPtr, count, location_of(dstDevice))
    }

    /// Moves a range to where it will be used.
    call cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz (api, devPtr: u64, count: usize, location: CUmemLocation, flags: u32, _hStream: u64) {
        api.context()?;
        if flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        check_location(api, location)?;
        check_range(api, devPtr, count)?;
        prefetch(api, devPtr, count, location)
    }

    /// Stores advice, which can be queried, and follows the preferred location.
    call cuMemAdvise(api, devPtr: u64, count: usize, advice: i32, device: i32) {
        check_advice(advice)?;
        check_device(api, device)?;
        check_range(api, devPtr, count)?;
        advise(api, devPtr, count, advice, location_of(device))
    }

    /// Stores advice, which can be queried, and follows the preferred location.
    call cuMemAdvise_v2(api, devPtr: u64, count: usize, advice: i32, location: CUmemLocation) {
        check_advice(advice)?;
        // Read-mostly advice ignores the location.
        if advice > 2 {
            check_location(api, location)?;
        }
        check_range(api, devPtr, count)?;
        advise(api, devPtr, count, advice, location)
    }

    /// Returns an attribute of a range.
    call cuMemRangeGetAttribute(api, data: Out<i32>, dataSize: usize, attribute: i32, devPtr: u64, count: usize) {
        check_range(api, devPtr, count)?;
        range_attribute(api, data, dataSize, attribute, devPtr, count)
    }

    /// Returns attributes of a range.
    call cuMemRangeGetAttributes(api, data: In<Out<i32>>, dataSizes: In<usize>, attributes: In<i32>, numAttributes: usize, devPtr: u64, count: usize) {
        check_range(api, devPtr, count)?;
        for index in 0..numAttributes {
            range_attribute(api, data.at(index)?, dataSizes.at(index)?, attributes.at(index)?, devPtr, count)?;
        }
        Ok(())
    }
}
