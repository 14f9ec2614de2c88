// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Batches of copies.

use std::ops::RangeInclusive;

use cuda_abi::CUmemcpyAttributes;
use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::memory::copy::plan::Timing;

/// This stream and 0 are the default streams.
const LEGACY: u64 = 1;

/// `CU_MEMCPY_SRC_ACCESS_ORDER_*`.
const ACCESS_ORDERS: RangeInclusive<u32> = 1..=3;
/// `CU_MEM_LOCATION_TYPE_*`, including 0 for no location.
const PLACES: RangeInclusive<u32> = 0..=4;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`.
const PREFER_OVERLAP: u32 = 1;

/// Checks the common properties of a batch of copies: a batch must not use a default stream, and must have copies.
pub fn check_batch(stream: u64, count: usize) -> Result<(), CudaError> {
    if stream <= LEGACY || count == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

/// Checks the hints of a batch: the source access order must be a known one, and only this flag may be set.
pub fn check_hints(access_order: u32, flags: u32) -> Result<(), CudaError> {
    let known = ACCESS_ORDERS.contains(&access_order) && flags & !PREFER_OVERLAP == 0;
    if known { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// The attributes of a batch.
struct Attributes {
    attributes: In<CUmemcpyAttributes>,
    /// The index of the first copy for each element.
    indices: In<usize>,
    count: usize,
}

/// The copies of a batch.
struct Copies {
    dsts: In<u64>,
    srcs: In<u64>,
    sizes: In<usize>,
    count: usize,
}

/// Checks the attributes. Each applies from the copy of its index on, and the first index must be 0. Each is only a
/// hint, but must be valid.
fn check_attributes(attributes: &Attributes, count: usize) -> Result<(), CudaError> {
    if attributes.count == 0 || attributes.count > count {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut before = None;
    for index in 0..attributes.count {
        let (of, first) = (attributes.attributes.at(index)?, attributes.indices.at(index)?);
        let in_order = before.map_or(first == 0, |before| first > before && first < count);
        let places = [of.source_hint, of.destination_hint];
        if !in_order || !places.iter().all(|place| PLACES.contains(&place.kind)) {
            return Err(CudaError::INVALID_VALUE);
        }
        check_hints(of.access_order, of.flags)?;
        before = Some(first);
    }
    Ok(())
}

/// Copies one after the other, which CUDA permits for a batch. Errors: also the index of the failed copy, or
/// `usize::MAX` for the whole batch.
fn batch(api: Api, copies: Copies, attributes: Attributes, stream: u64) -> Result<(), (usize, CudaError)> {
    let Copies { dsts, srcs, sizes, count } = copies;
    let whole = |error| (usize::MAX, error);
    check_batch(stream, count).map_err(whole)?;
    check_attributes(&attributes, count).map_err(whole)?;
    let timing = Timing::Stream(api.stream(stream));
    for index in 0..count {
        let copy = || {
            let (dst, src) = (api.unified_place(dsts.at(index)?), api.unified_place(srcs.at(index)?));
            match sizes.at(index)? {
                0 => Err(CudaError::INVALID_VALUE),
                bytes => api.copy(dst, src, bytes, timing),
            }
        };
        copy().map_err(|error| (index, error))?;
    }
    Ok(())
}

entry_points! {
    /// Runs many copies in stream order. This version, of CUDA 12.8, returns the index of an invalid copy.
    call cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz (api, dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attrs: In<CUmemcpyAttributes>, attrsIdxs: In<usize>, numAttrs: usize, failIdx: Out<usize>, hStream: u64) {
        failIdx.check()?;
        let attributes = Attributes { attributes: attrs, indices: attrsIdxs, count: numAttrs };
        batch(api, Copies { dsts, srcs, sizes, count }, attributes, hStream).map_err(|(index, error)| {
            failIdx.set_if_wanted(index);
            error
        })
    }

    /// Runs many copies in stream order. The attributes are hints.
    call cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz (api, dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attrs: In<CUmemcpyAttributes>, attrsIdxs: In<usize>, numAttrs: usize, hStream: u64) {
        let attributes = Attributes { attributes: attrs, indices: attrsIdxs, count: numAttrs };
        batch(api, Copies { dsts, srcs, sizes, count }, attributes, hStream).map_err(|(_, error)| error)
    }
}
