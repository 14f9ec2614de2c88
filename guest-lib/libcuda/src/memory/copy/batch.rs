// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Batches of copies.

use std::ops::RangeInclusive;

use cuda_abi::CUmemcpyAttributes;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::lane::INLINE_BYTES;
use virtio_cuda_client::protocol::StreamId;

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::memory::copy::plan::Timing;
use crate::memory::place::Place;
use crate::state::memory::ranges::HostKind;

/// This stream and 0 are the default streams.
const LEGACY: u64 = 1;

/// `CU_MEM_LOCATION_TYPE_*`, including 0 for no location.
const PLACES: RangeInclusive<u32> = 0..=4;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`.
const PREFER_OVERLAP: u32 = 1;

/// Checks the common properties of a batch of copies: a batch must not use a default stream, and must have copies.
pub fn check_batch(stream: u64, count: usize) -> Result<(), CudaError> {
    if stream <= LEGACY || count == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

/// The time at which a copy reads its source (`CU_MEMCPY_SRC_ACCESS_ORDER_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In stream order.
    Stream,
    /// Before the call returns, in any order with the stream's work: the program may then overwrite it.
    DuringCall,
    /// At any time before the copy is complete.
    Any,
}

impl SourceOrder {
    /// Reads the source access order of a copy. Only the flag for overlap may be set.
    pub fn new(access_order: u32, flags: u32) -> Result<Self, CudaError> {
        match access_order {
            _ if flags & !PREFER_OVERLAP != 0 => Err(CudaError::INVALID_VALUE),
            1 => Ok(Self::Stream),
            2 => Ok(Self::DuringCall),
            3 => Ok(Self::Any),
            _ => Err(CudaError::INVALID_VALUE),
        }
    }
}

/// The sources of a batch of copies in a stream, which are read as their access orders say.
pub struct Sources {
    api: Api,
    stream: StreamId,
    captures: bool,
    /// True if the work before the batch is done.
    had_turn: bool,
    /// True if the GPU reads a source that the call must have read when it returns.
    read_later: bool,
}

impl Sources {
    /// Begins a batch.
    pub fn new(api: Api, stream: StreamId) -> Self {
        // The copies of a capture run, and read, when the graph does.
        Self { api, stream, captures: api.captures(stream), had_turn: false, read_later: false }
    }

    /// Prepares a copy from `src`.
    pub fn read(&mut self, src: Place, order: SourceOrder) -> Result<(), CudaError> {
        if self.captures {
            return Ok(());
        }
        match order {
            // The call itself reads pageable memory.
            SourceOrder::Stream if src.is_pageable() && !self.had_turn => {
                if !self.api.is_idle() {
                    self.api.wait_for_turn(self.stream)?;
                }
                self.had_turn = true;
            }
            SourceOrder::DuringCall => self.read_later |= !src.is_pageable(),
            _ => {}
        }
        Ok(())
    }

    /// Like [`Self::read`], for `bytes` contiguous bytes to `dst`. Returns the place from which they must be copied.
    fn read_contiguous(
        &mut self,
        dst: Place,
        src: Place,
        bytes: usize,
        order: SourceOrder,
    ) -> Result<Place, CudaError> {
        let is_program_memory = |host| {
            let range = self.api.driver.memory.ranges.host_of(host, bytes as u64);
            let kinds = [HostKind::Allocated, HostKind::Registered, HostKind::Managed];
            range.is_some_and(|range| kinds.contains(&range.kind))
        };
        match (order, dst, src) {
            // Sent with the call, as pageable memory is, so that the call need not wait for the stream.
            (SourceOrder::DuringCall, Place::Device(_), Place::Pinned { host, .. })
                if bytes <= INLINE_BYTES && !self.captures && is_program_memory(host) =>
            {
                Ok(Place::Pageable(host))
            }
            _ => self.read(src, order).map(|()| src),
        }
    }

    /// Ends the batch. Waits until all sources are read that the call must have read.
    pub fn end(self) -> Result<(), CudaError> {
        if self.read_later { self.api.wait_for_stream(self.stream) } else { Ok(()) }
    }
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

/// Checks the attributes. Each applies from the copy of its index on, and the first index must be 0. Returns the source
/// access orders with these indices; the rest of the attributes are hints.
fn orders(attributes: &Attributes, count: usize) -> Result<Vec<(usize, SourceOrder)>, CudaError> {
    if attributes.count == 0 || attributes.count > count {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut orders: Vec<(usize, SourceOrder)> = Vec::new();
    for index in 0..attributes.count {
        let (of, first) = (attributes.attributes.at(index)?, attributes.indices.at(index)?);
        let in_order = orders.last().map_or(first == 0, |&(before, _)| first > before && first < count);
        let places = [of.source_hint, of.destination_hint];
        if !in_order || !places.iter().all(|place| PLACES.contains(&place.kind)) {
            return Err(CudaError::INVALID_VALUE);
        }
        orders.push((first, SourceOrder::new(of.access_order, of.flags)?));
    }
    Ok(orders)
}

/// Copies one after the other, which CUDA permits for a batch. Errors: also the index of the failed copy, or
/// `usize::MAX` for the whole batch.
fn batch(api: Api, copies: Copies, attributes: Attributes, stream: u64) -> Result<(), (usize, CudaError)> {
    let Copies { dsts, srcs, sizes, count } = copies;
    let whole = |error| (usize::MAX, error);
    check_batch(stream, count).map_err(whole)?;
    let orders = orders(&attributes, count).map_err(whole)?;
    let stream = api.stream(stream).map_err(whole)?;
    let mut sources = Sources::new(api, stream);
    let mut copy = |index, order| {
        let (dst, src) = (api.unified_place(dsts.at(index)?), api.unified_place(srcs.at(index)?));
        match sizes.at(index)? {
            0 => Err(CudaError::INVALID_VALUE),
            bytes => {
                let src = sources.read_contiguous(dst, src, bytes, order)?;
                api.copy(dst, src, bytes, Timing::Stream(stream))
            }
        }
    };
    let mut order = SourceOrder::Any;
    let mut changes = orders.into_iter().peekable();
    let copied = (0..count).try_for_each(|index| {
        if let Some((_, next)) = changes.next_if(|&(first, _)| first == index) {
            order = next;
        }
        copy(index, order).map_err(|error| (index, error))
    });
    // Also after an error: the copies before it read their sources.
    let read = sources.end().map_err(whole);
    copied.and(read)
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
