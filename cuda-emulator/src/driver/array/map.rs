// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of sparse arrays and of arrays with deferred mapping: tiles of pools, mapped in stream order.

use std::any::Any;
use std::sync::Arc;

use cuda_abi::{CUDA_ARRAY_SPARSE_PROPERTIES, CUarrayMapInfo};

use crate::driver::array::{self, CUarray, CUmipmappedArray};
use crate::driver::capture;
use crate::driver::device;
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;
use crate::driver::vmm::{self, CUmemGenericAllocationHandle};
use crate::texture::{Array, Later, Part, Parts, TILE_BYTES};

/// CU_RESOURCE_TYPE_*
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
/// CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_*
const SPARSE_LEVEL: u32 = 0;
const MIP_TAIL: u32 = 1;
/// CU_MEM_OPERATION_TYPE_*
const MAP: u32 = 1;
const UNMAP: u32 = 2;
/// CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL
const SINGLE_TAIL: u32 = 1;
/// The maximum number of elements of a list.
const MAX_MAPS: u32 = 1 << 16;

/// Numbers of parts of an array.
type Numbers = Box<dyn Iterator<Item = u64> + Send>;

/// A list element in the form that the stream executes.
enum Change {
    Map(Arc<Parts>, Vec<(u64, Option<Part>)>),
    Unmap(Arc<Parts>, Numbers),
}

impl Change {
    fn make(self) {
        match self {
            Change::Map(parts, changes) => parts.change(changes),
            Change::Unmap(parts, numbers) => {
                // The memory is known only now. Parts without memory need no change, because a list can name far more
                // parts than exist.
                let mapped = numbers.filter(|number| parts.address(*number).is_some());
                let changes = mapped.map(|number| (number, None)).collect();
                parts.change(changes);
            }
        }
    }
}

fn sparse_properties(later: Option<&Later>, of_levels: bool) -> CuResult<CUDA_ARRAY_SPARSE_PROPERTIES> {
    let tiling = later.and_then(|later| later.tiling).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_ARRAY_SPARSE_PROPERTIES {
        tile: tiling.tile,
        first_level: if of_levels { tiling.first_tail_level } else { 0 },
        tail_bytes: tiling.tail_bytes,
        flags: if tiling.single { SINGLE_TAIL } else { 0 },
        reserved: [0; 4],
    })
}

fn array_get_sparse_properties(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, handle: CUarray) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(sparse_properties(array::find_not_null(handle)?.later.as_ref(), false)?);
    Ok(())
}

fn mipmapped_get_sparse_properties(
    out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>,
    handle: CUmipmappedArray,
) -> CuResult<()> {
    out.check()?;
    if handle == CUmipmappedArray::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(sparse_properties(array::find_mipmapped(handle)?.later.as_ref(), true)?);
    Ok(())
}

/// The parts of an array that a list element maps.
trait Mapping {
    /// Returns the named parts, in the order in which they take memory, and the bytes of each.
    fn parts(&self, later: &Later, levels: &[Arc<Array>]) -> CuResult<(Numbers, u64)>;
    /// Returns the number of tiles of the memory after the offset.
    fn most_tiles(&self) -> CuResult<u64>;
    fn understand(&self) -> CuResult<Change>;
}

impl Mapping for CUarrayMapInfo {
    fn parts(&self, later: &Later, levels: &[Arc<Array>]) -> CuResult<(Numbers, u64)> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let Some(tiling) = later.tiling else { return Ok((Box::new(0..1), later.bytes)) };
        let [_, first, second, x, y, z, width, height, depth] = self.subresource;
        let parts: Numbers = match self.subresource_kind {
            SPARSE_LEVEL => {
                let level = levels.get(first as usize).ok_or(invalid)?;
                let tiles = level.tiles(&tiling, second, [x, y, z], [width, height, depth]).ok_or(invalid)?;
                if self.operation == MAP && tiles.count() > self.most_tiles()? {
                    return Err(invalid);
                }
                Box::new(tiles.numbers())
            }
            MIP_TAIL => {
                let long = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
                let (offset, bytes) = (long(x, y), long(z, width));
                let end = offset.checked_add(bytes).ok_or(invalid)?;
                let aligned = offset.is_multiple_of(TILE_BYTES) && bytes.is_multiple_of(TILE_BYTES);
                let layers = levels[0].tail_layers(&tiling);
                if !aligned || bytes == 0 || end > tiling.tail_bytes || first >= layers {
                    return Err(invalid);
                }
                let tail = later.first_tail_part + u64::from(first) * (tiling.tail_bytes / TILE_BYTES);
                Box::new(tail + offset / TILE_BYTES..tail + end / TILE_BYTES)
            }
            _ => return Err(invalid),
        };
        Ok((parts, TILE_BYTES))
    }

    fn most_tiles(&self) -> CuResult<u64> {
        let bytes = vmm::find(CUmemGenericAllocationHandle::new(self.memory as usize))?.bytes();
        Ok(bytes.saturating_sub(self.offset) / TILE_BYTES)
    }

    fn understand(&self) -> CuResult<Change> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if self.flags != 0
            || self.reserved != [0; 2]
            || self.operation == MAP && self.handle_kind != 0
            || !matches!(self.operation, MAP | UNMAP)
            || self.resource == 0
        {
            return Err(invalid);
        }
        // Only existing devices, and at least one.
        let ordinals = (0..32).filter(|bit| self.device_mask & 1 << bit != 0);
        if self.device_mask == 0 || ordinals.into_iter().any(|bit| device::device(bit).is_err()) {
            return Err(invalid);
        }
        let (parts, numbers, bytes) = match self.resource_kind {
            ARRAY => {
                let object = array::find(CUarray::new(self.resource as usize))?;
                let later = object.later.as_ref().ok_or(invalid)?;
                let (numbers, bytes) = self.parts(later, std::slice::from_ref(&object.array))?;
                (Arc::clone(&later.parts), numbers, bytes)
            }
            MIPMAPPED_ARRAY => {
                let object = array::find_mipmapped(CUmipmappedArray::new(self.resource as usize))?;
                let later = object.later.as_ref().ok_or(invalid)?;
                let (numbers, bytes) = self.parts(later, &object.array.levels)?;
                (Arc::clone(&later.parts), numbers, bytes)
            }
            _ => return Err(invalid),
        };
        if self.operation == UNMAP {
            return Ok(Change::Unmap(parts, numbers));
        }
        let numbers: Vec<u64> = numbers.collect();
        let physical = vmm::find(CUmemGenericAllocationHandle::new(self.memory as usize))?;
        let all = bytes.checked_mul(numbers.len() as u64).and_then(|all| all.checked_add(self.offset));
        if !self.offset.is_multiple_of(TILE_BYTES) || all.is_none_or(|end| end > physical.bytes()) {
            return Err(invalid);
        }
        let base = physical.tiles()? + self.offset;
        let keeper: Arc<dyn Any + Send + Sync> = physical;
        let part = |(index, number)| {
            (number, Some(Part { address: base + index as u64 * bytes, keeper: Arc::clone(&keeper) }))
        };
        Ok(Change::Map(parts, numbers.into_iter().enumerate().map(part).collect()))
    }
}

fn map_array_async(list: In<CUarrayMapInfo>, count: u32, stream: CUstream) -> CuResult<()> {
    if list.is_null() || count == 0 || count > MAX_MAPS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = capture::place_work(stream)?;
    capture::refuse(&stream)?;
    // Nothing is done if one element is invalid.
    let changes = (0..count as usize).map(|index| list.at(index)?.understand());
    let changes = changes.collect::<CuResult<Vec<Change>>>()?;
    context.submit_work(&stream, move |_| {
        changes.into_iter().for_each(Change::make);
        Ok(())
    });
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuArrayGetSparseProperties => array_get_sparse_properties(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUarray);
    cuMipmappedArrayGetSparseProperties => mipmapped_get_sparse_properties(
        out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUmipmappedArray);
    cuMemMapArrayAsync + cuMemMapArrayAsync_ptsz => map_array_async(
        list: In<CUarrayMapInfo>, count: u32, stream: CUstream);
}
