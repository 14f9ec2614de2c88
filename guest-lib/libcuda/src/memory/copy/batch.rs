// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Many copies in one call.

use std::ops::RangeInclusive;

use cuda_abi::CUmemcpyAttributes;
use virtio_cuda_client::CudaError;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::memory::copy::plan::Timing;

/// The default streams are this one and 0.
const LEGACY: u64 = 1;

/// `CU_MEMCPY_SRC_ACCESS_ORDER_*`.
const ACCESS_ORDERS: RangeInclusive<u32> = 1..=3;
/// `CU_MEM_LOCATION_TYPE_*`, none of them among them.
const PLACES: RangeInclusive<u32> = 0..=4;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`.
const PREFER_OVERLAP: u32 = 1;

/// Checks what copies of a batch have in common: a batch is not for the default streams, the order in which sources are
/// read must be a known one, and there are no more flags than this one.
pub fn check_batch(stream: u64, count: usize) -> Result<(), CudaError> {
    if stream <= LEGACY || count == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

/// As [`check_batch`].
pub fn check_hints(access_order: u32, flags: u32) -> Result<(), CudaError> {
    let known = ACCESS_ORDERS.contains(&access_order) && flags & !PREFER_OVERLAP == 0;
    if known { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// The attributes of a batch.
struct Attributes {
    attributes: In<CUmemcpyAttributes>,
    /// The first copy of each.
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

/// Attributes hold from the copy of their index on: the first from the first copy on. Each is a hint, but a valid one.
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

/// Copies one after the other, which a batch may do; answers which one failed, or `usize::MAX` for the whole.
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
    /// Many copies in stream order, as CUDA 12.8 had them: the index of a bad one is told.
    call cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz (api, dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attrs: In<CUmemcpyAttributes>, attrsIdxs: In<usize>, numAttrs: usize, failIdx: Out<usize>, hStream: u64) {
        failIdx.check()?;
        let attributes = Attributes { attributes: attrs, indices: attrsIdxs, count: numAttrs };
        batch(api, Copies { dsts, srcs, sizes, count }, attributes, hStream).map_err(|(index, error)| {
            failIdx.set_if_wanted(index);
            error
        })
    }

    /// Many copies in stream order. The attributes are hints.
    call cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz (api, dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize,
        attrs: In<CUmemcpyAttributes>, attrsIdxs: In<usize>, numAttrs: usize, hStream: u64) {
        let attributes = Attributes { attributes: attrs, indices: attrsIdxs, count: numAttrs };
        batch(api, Copies { dsts, srcs, sizes, count }, attributes, hStream).map_err(|(_, error)| error)
    }
}
