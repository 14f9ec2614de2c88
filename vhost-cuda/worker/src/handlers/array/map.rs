// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of sparse arrays and of arrays with deferred mapping.
//!
//! NVIDIA's driver adds offsets and sizes without an overflow check. It would map memory before an allocation, or
//! beyond an array. Both are therefore checked here first.

use std::sync::Arc;

use virtio_cuda_protocol::cuda::{ARRAY_MAP_INFO_BYTES, ArrayMapInfo, MAX_ARRAY_MAP_INFOS, Reader, StreamId};

use crate::call::CallContext;
use crate::gpu::{CUarray, CUdevice, CUmipmappedArray, CuResult, CudaError, RawArrayMap, RawSparse};
use crate::memory::array_maps::{ArrayName, Part};
use crate::memory::reservations::Reservations;
use crate::objects::Object;
use crate::words::contents::take;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
/// `CU_MEM_OPERATION_TYPE_MAP`.
const MAP: u32 = 1;
/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const LAYERED: u32 = 1;
const DEFERRED_MAPPING: u32 = 0x80;

/// The change by [`cuMemMapArrayAsync`], applied once the driver has succeeded.
struct Change {
    array: ArrayName,
    part: Part,
    allocation: Option<u64>,
}

/// The driver's array or mipmapped array.
#[derive(Clone, Copy)]
enum Target {
    Array(CUarray),
    Levels(CUmipmappedArray),
}

impl Target {
    /// Returns a level. An array is its own only level.
    fn level(self, cx: &CallContext<'_>, number: u32) -> CuResult<CUarray> {
        match self {
            Self::Array(array) if number == 0 => Ok(array),
            Self::Array(_) => Err(CudaError::INVALID_VALUE),
            Self::Levels(mipmap) => Ok(cx.gpu().cuMipmappedArrayGetLevel(mipmap, number)?.0),
        }
    }

    fn sparse(self, cx: &CallContext<'_>) -> CuResult<RawSparse> {
        Ok(match self {
            Self::Array(array) => cx.gpu().cuArrayGetSparseProperties(array)?.0,
            Self::Levels(mipmap) => cx.gpu().cuMipmappedArrayGetSparseProperties(mipmap)?.0,
        })
    }

    /// Returns the bytes of an array with deferred mapping.
    fn bytes(self, cx: &CallContext<'_>, device: CUdevice) -> CuResult<u64> {
        let (needs,) = match self {
            Self::Array(array) => cx.gpu().cuArrayGetMemoryRequirements(array, device)?,
            Self::Levels(mipmap) => cx.gpu().cuMipmappedArrayGetMemoryRequirements(mipmap, device)?,
        };
        Ok(needs.bytes as u64)
    }

    /// Returns the requested part and its bytes.
    fn part(self, cx: &CallContext<'_>, map: &ArrayMapInfo, device: CUdevice) -> CuResult<(Part, u64)> {
        let (first,) = cx.gpu().cuArray3DGetDescriptor_v2(self.level(cx, 0)?)?;
        if first.flags & DEFERRED_MAPPING != 0 {
            return Ok((Part::WHOLE, self.bytes(cx, device)?));
        }
        let (tiles, part) = (self.sparse(cx)?, Part::of_sparse(map)?);
        let bytes = match part.level() {
            None => part.bytes_of_tail(tiles.tail_bytes),
            Some((level, layer)) => {
                let (of,) = cx.gpu().cuArray3DGetDescriptor_v2(self.level(cx, level)?)?;
                let layered = of.flags & LAYERED != 0;
                let layers = if layered { of.depth as u64 } else { 1 };
                let depth = if layered { 1 } else { of.depth.max(1) as u64 };
                let size = [of.width as u64, of.height.max(1) as u64, depth];
                part.bytes_of_tiles(size, tiles.tile).filter(|_| u64::from(layer) < layers)
            }
        };
        bytes.map(|bytes| (part, bytes)).ok_or(CudaError::INVALID_VALUE)
    }
}

fn target(cx: &CallContext<'_>, map: &ArrayMapInfo) -> CuResult<(Arc<Object>, Target)> {
    let objects = &cx.session.objects;
    let (object, target) = match map.resource_kind {
        ARRAY => {
            let object = objects.arrays.get(map.resource)?;
            (object.clone(), Target::Array(cx.held().keep(object)))
        }
        MIPMAPPED_ARRAY => {
            let object = objects.mipmaps.get(map.resource)?;
            (object.clone(), Target::Levels(cx.held().keep(object)))
        }
        _ => return Err(CudaError::INVALID_VALUE),
    };
    // A level or a plane has no memory of its own.
    if object.is_whole() { Ok((object, target)) } else { Err(CudaError::INVALID_VALUE) }
}

/// Converts one element of the list to the driver's types.
fn understand(
    cx: &CallContext<'_>,
    reservations: &Reservations,
    map: &ArrayMapInfo,
) -> CuResult<(RawArrayMap, Change)> {
    let (object, target) = target(cx, map)?;
    let mut mask = 0;
    let mut of_array = None;
    for ordinal in (0..u32::BITS).filter(|bit| map.device_mask & 1 << bit != 0) {
        let device = cx.session.device(ordinal).map_err(|_| CudaError::INVALID_VALUE)?;
        mask |= 1u32.checked_shl(device as u32).ok_or(CudaError::INVALID_VALUE)?;
        of_array.get_or_insert(device);
    }
    let device = of_array.ok_or(CudaError::INVALID_VALUE)?;
    let (part, bytes) = target.part(cx, map, device)?;
    let maps = map.operation == MAP;
    let mut memory = 0;
    if maps {
        let allocation = reservations.held(map.memory.0)?;
        if map.offset.checked_add(bytes).is_none_or(|end| end > allocation.bytes) {
            return Err(CudaError::INVALID_VALUE);
        }
        memory = allocation.raw;
    }
    let allocation = maps.then_some(map.memory.0);
    let raw = RawArrayMap::of_wire(map, object.raw::<u8>() as u64, memory, mask);
    let array = ArrayName { name: map.resource, context: object.context() };
    Ok((raw, Change { array, part, allocation }))
}

/// Maps allocations into arrays, or removes such mappings.
pub fn cuMemMapArrayAsync(cx: &mut CallContext<'_>, stream: StreamId) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let count = cx.bulk_in.bytes() as usize / ARRAY_MAP_INFO_BYTES;
    if count == 0 || count > MAX_ARRAY_MAP_INFOS {
        return Err(CudaError::INVALID_VALUE);
    }
    let contents = cx.bulk_in.contents()?;
    let mut reader = Reader::new(&contents);
    let mut reservations = cx.session.reservations();
    reservations.check_array_maps(count)?;
    let (mut maps, mut changes) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let (map, change) = understand(cx, &reservations, &take(&mut reader)?)?;
        maps.push(map);
        changes.push(change);
    }
    // SAFETY: the list has `count` elements and lives across the call; arrays and memory belong to the session, and
    // hold the parts.
    unsafe { cx.gpu().cuMemMapArrayAsync(maps.as_mut_ptr(), count as u32, stream) }?;
    for Change { array, part, allocation } in changes {
        let free = reservations.map_array(array, part, allocation);
        cx.session.allocations().discharge(free);
    }
    Ok(())
}
