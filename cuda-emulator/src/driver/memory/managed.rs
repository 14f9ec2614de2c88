// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The advice, prefetches and attributes of managed memory, stored for each allocation as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use cuda_abi::CUmemLocation;

use crate::driver::capture;
use crate::driver::context;
use crate::driver::device::{self, CUdevice, CUdeviceptr};
use crate::driver::ffi::{In, Out};
use crate::driver::pool::home as pool_home;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{self, CUstream};
use crate::memory::RangeKind;

/// CU_MEM_ADVISE_SET_READ_MOSTLY ..= CU_MEM_ADVISE_UNSET_ACCESSED_BY
const ADVICE: std::ops::RangeInclusive<u32> = 1..=6;
/// CU_DEVICE_CPU, CU_DEVICE_INVALID
const CPU: CUdevice = -1;
const NO_DEVICE: CUdevice = -2;
/// The maximum number of devices in one attribute.
const MAX_LISTED: usize = 64;

/// The advice for an allocation.
#[derive(Clone, Default)]
struct Advice {
    /// The id of its allocation. The address may later belong to another one.
    id: u64,
    read_mostly: bool,
    preferred: Option<CUmemLocation>,
    accessed_by: BTreeSet<CUdevice>,
    prefetched: Option<CUmemLocation>,
}

/// All advice by address.
static KNOWN: Mutex<BTreeMap<CUdeviceptr, Advice>> = Mutex::new(BTreeMap::new());

/// Returns the start and the id of the allocation around an address.
fn allocation(ptr: CUdeviceptr) -> CuResult<(CUdeviceptr, u64)> {
    let (device, range) = device::range_of(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok((range.base, device.owner(range.base).map_or(0, |owner| owner.id)))
}

fn change(ptr: CUdeviceptr, change: impl FnOnce(&mut Advice)) -> CuResult<()> {
    let (base, id) = allocation(ptr)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Forgets the advice for allocations that have ended.
    known.retain(|base, advice| allocation(*base) == Ok((*base, advice.id)));
    change(known.entry(base).or_insert_with(|| Advice { id, ..Advice::default() }));
    Ok(())
}

fn advice(ptr: CUdeviceptr) -> CuResult<Advice> {
    let (base, id) = allocation(ptr)?;
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut said = known.get(&base).filter(|advice| advice.id == id).cloned().unwrap_or_default();
    if let Some(pool) = pool_home::pool_of(ptr) {
        said.preferred = pool.home.preferred();
    }
    Ok(said)
}

/// Returns the identifier of a location in the older attributes.
fn ordinal_of(location: CUmemLocation) -> CUdevice {
    if location.kind == 1 { location.id } else { CPU }
}

/// Checks a range of managed memory.
fn check_managed(ptr: CUdeviceptr, bytes: usize) -> CuResult<()> {
    let found = device::range_of(ptr).filter(|(_, range)| range.kind == RangeKind::Managed);
    let inside = found.is_some_and(|(_, range)| bytes > 0 && range.holds(ptr, bytes as u64));
    if inside { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// CU_MEM_LOCATION_TYPE_DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT
fn check_location(location: CUmemLocation) -> CuResult<()> {
    match location.kind {
        1 => device::device(location.id).map(|_| ()),
        2..=4 => Ok(()),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Returns the location of a device ordinal of the older calls; CU_DEVICE_CPU is -1.
fn location_of(ordinal: CUdevice) -> CUmemLocation {
    CUmemLocation { kind: if ordinal == -1 { 2 } else { 1 }, id: ordinal.max(0) }
}

fn mem_advise_v2(ptr: CUdeviceptr, bytes: usize, advice: u32, location: CUmemLocation) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, bytes)?;
    if !ADVICE.contains(&advice) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SET_READ_MOSTLY and UNSET_READ_MOSTLY, UNSET_PREFERRED_LOCATION take no location.
    if !matches!(advice, 1 | 2 | 4) {
        check_location(location)?;
    }
    // The location of memory from a pool is that of the pool.
    if pool_home::pool_of(ptr).is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    change(ptr, |known| match advice {
        1 | 2 => known.read_mostly = advice == 1,
        3 => known.preferred = Some(location),
        4 => known.preferred = None,
        5 => {
            known.accessed_by.insert(ordinal_of(location));
        }
        _ => {
            known.accessed_by.remove(&ordinal_of(location));
        }
    })
}

fn mem_advise(ptr: CUdeviceptr, bytes: usize, advice: u32, ordinal: CUdevice) -> CuResult<()> {
    mem_advise_v2(ptr, bytes, advice, location_of(ordinal))
}

fn mem_prefetch_async_v2(
    ptr: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, bytes)?;
    check_location(location)?;
    stream::with_stream(stream)?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // All processors can access managed memory where it is, so nothing moves.
    change(ptr, |known| known.prefetched = Some(location))
}

fn mem_prefetch_async(ptr: CUdeviceptr, bytes: usize, ordinal: CUdevice, stream: CUstream) -> CuResult<()> {
    mem_prefetch_async_v2(ptr, bytes, location_of(ordinal), 0, stream)
}

fn stream_attach_mem_async(stream: CUstream, ptr: CUdeviceptr, bytes: usize, flags: u32) -> CuResult<()> {
    capture::place_work(stream)?;
    check_managed(ptr, bytes.max(1))?;
    if pool_home::pool_of(ptr).is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // CU_MEM_ATTACH_GLOBAL, HOST or SINGLE; access is never restricted.
    if matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// All managed memory is host memory here.
fn get_location_info(
    ptr: CUdeviceptr,
    bytes: usize,
    summary: usize,
    sampling: usize,
    locations: Out<CUmemLocation>,
) -> CuResult<()> {
    context::current()?;
    locations.check()?;
    if summary == 0 || summary > bytes || sampling > summary {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    check_managed(ptr, bytes)?;
    for index in 0..bytes.div_ceil(summary) {
        locations.set_at(index, CUmemLocation { kind: 2, id: 0 })?;
    }
    Ok(())
}

fn store(data: *mut c_void, bytes: usize, attribute: u32, advice: &Advice) -> CuResult<()> {
    if data.is_null() || bytes == 0 || !bytes.is_multiple_of(4) || attribute != 3 && bytes != 4 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's pointer, valid for writing `bytes` bytes, which are at least four.
    let word = unsafe { Out::new(data.cast::<i32>()) };
    let ordinal = |location: Option<CUmemLocation>| location.map_or(NO_DEVICE, ordinal_of);
    let kind = |location: Option<CUmemLocation>| location.map_or(0, |location| location.kind as i32);
    let id = |location: Option<CUmemLocation>| location.map_or(0, |location| location.id);
    match attribute {
        1 => word.set_if_wanted(advice.read_mostly.into()),
        2 => word.set_if_wanted(ordinal(advice.preferred)),
        3 => {
            let devices = advice.accessed_by.iter().copied().chain(std::iter::repeat(NO_DEVICE));
            for (index, device) in devices.take((bytes / 4).min(MAX_LISTED)).enumerate() {
                // SAFETY: less than `bytes / 4`, as many words as the caller says that there are.
                unsafe { word.element(index) }.set_if_wanted(device);
            }
        }
        4 => word.set_if_wanted(ordinal(advice.prefetched)),
        5 => word.set_if_wanted(kind(advice.preferred)),
        6 => word.set_if_wanted(id(advice.preferred)),
        7 => word.set_if_wanted(kind(advice.prefetched)),
        8 => word.set_if_wanted(id(advice.prefetched)),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn range_get_attribute(
    data: *mut c_void,
    bytes: usize,
    attribute: u32,
    ptr: CUdeviceptr,
    count: usize,
) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, count)?;
    store(data, bytes, attribute, &advice(ptr)?)
}

fn range_get_attributes(
    data: In<*mut c_void>,
    bytes: In<usize>,
    attributes: In<u32>,
    number: usize,
    ptr: CUdeviceptr,
    count: usize,
) -> CuResult<()> {
    context::current()?;
    check_managed(ptr, count)?;
    let advice = advice(ptr)?;
    (0..number).try_for_each(|index| store(data.at(index)?, bytes.at(index)?, attributes.at(index)?, &advice))
}

/// The ranges of a batch, each managed memory.
fn batch(
    ptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> CuResult<()> {
    capture::place_work(stream)?;
    if flags != 0 || count == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    (0..count).try_for_each(|index| check_managed(ptrs.at(index)?, sizes.at(index)?))
}

/// Discarded content is undefined, so keeping it is correct.
fn discard_batch(
    ptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> CuResult<()> {
    batch(ptrs, sizes, count, flags, stream)
}

/// The targets of ranges, each with the index of the first range that goes there.
struct Targets {
    locations: In<CUmemLocation>,
    first: In<usize>,
    number: usize,
}

fn prefetch_batch(
    ptrs: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
    Targets { locations, first, number }: Targets,
    flags: u64,
    stream: CUstream,
) -> CuResult<()> {
    batch(ptrs, sizes, count, flags, stream)?;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    if number == 0 || number > count || first.at(0)? != 0 {
        return Err(invalid);
    }
    let mut next = 0;
    for index in 0..count {
        while next + 1 < number && first.at(next + 1)? <= index {
            next += 1;
        }
        let location = locations.at(next)?;
        check_location(location)?;
        change(ptrs.at(index)?, |known| known.prefetched = Some(location))?;
    }
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuMemAdvise => mem_advise(ptr: CUdeviceptr, bytes: usize, advice: u32, device: CUdevice);
    cuMemAdvise_v2 => mem_advise_v2(ptr: CUdeviceptr, bytes: usize, advice: u32, location: CUmemLocation);
    cuMemPrefetchAsync + cuMemPrefetchAsync_ptsz => mem_prefetch_async(
        ptr: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_v2 + cuMemPrefetchAsync_v2_ptsz => mem_prefetch_async_v2(
        ptr: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream);
    cuStreamAttachMemAsync + cuStreamAttachMemAsync_ptsz => stream_attach_mem_async(
        stream: CUstream, ptr: CUdeviceptr, bytes: usize, flags: u32);
    cuMemGetLocationInfo => get_location_info(
        ptr: CUdeviceptr, bytes: usize, summary: usize, sampling: usize, locations: Out<CUmemLocation>);
    cuMemRangeGetAttribute => range_get_attribute(
        data: *mut c_void, bytes: usize, attribute: u32, ptr: CUdeviceptr, count: usize);
    cuMemRangeGetAttributes => range_get_attributes(
        data: In<*mut c_void>, bytes: In<usize>, attributes: In<u32>, number: usize, ptr: CUdeviceptr, count: usize);
    cuMemDiscardBatchAsync + cuMemDiscardBatchAsync_ptsz => discard_batch(
        ptrs: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: u64, stream: CUstream);
    cuMemPrefetchBatchAsync + cuMemPrefetchBatchAsync_ptsz => prefetch_batch(
        ptrs: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>, first: In<usize>,
        number: usize, flags: u64, stream: CUstream) as (
        ptrs, sizes, count, Targets { locations, first, number }, flags, stream);
    cuMemDiscardAndPrefetchBatchAsync + cuMemDiscardAndPrefetchBatchAsync_ptsz => prefetch_batch(
        ptrs: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>, first: In<usize>,
        number: usize, flags: u64, stream: CUstream) as (
        ptrs, sizes, count, Targets { locations, first, number }, flags, stream);
}
