// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The allocations that are mapped into parts of arrays. They count while an array holds them, even if they were released.

use std::collections::HashMap;

use virtio_cuda_protocol::cuda::ArrayMapInfo;

use crate::gpu::{CuResult, CudaError};

/// The maximum number of mapped parts, of all arrays together.
const MAX_PARTS: usize = 1 << 16;
/// Bytes of a tile.
const TILE_BYTES: u64 = 64 << 10;
/// `CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_*`.
const SPARSE_LEVEL: u32 = 0;
const MIP_TAIL: u32 = 1;

/// A box in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The unit of the coordinates: texels of a level and layer, or bytes of a layer's tail.
    place: (u32, u32, u32),
    start: [u64; 3],
    end: [u64; 3],
}

impl Part {
    /// All of an array with deferred mapping.
    pub const WHOLE: Self = Self { place: (u32::MAX, 0, 0), start: [0; 3], end: [1; 3] };

    /// Returns the part of a sparse array that a guest has described.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn of_sparse(map: &ArrayMapInfo) -> CuResult<Self> {
        let words = map.subresource;
        match map.subresource_kind {
            SPARSE_LEVEL => {
                let [level, layer, x, y, z, width, height, depth] = words;
                let start = [x, y, z].map(u64::from);
                let extent = [width, height, depth].map(u64::from);
                let end = std::array::from_fn(|axis| start[axis] + extent[axis]);
                Ok(Self { place: (SPARSE_LEVEL, level, layer), start, end })
            }
            MIP_TAIL => {
                let long = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
                let (offset, bytes) = (long(words[2], words[3]), long(words[4], words[5]));
                let end = offset.checked_add(bytes).ok_or(CudaError::INVALID_VALUE)?;
                Ok(Self { place: (MIP_TAIL, 0, words[0]), start: [offset, 0, 0], end: [end, 1, 1] })
            }
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// Returns the level and layer of a box of texels; `None` for a tail.
    pub fn level(&self) -> Option<(u32, u32)> {
        (self.place.0 == SPARSE_LEVEL).then_some((self.place.1, self.place.2))
    }

    /// Bytes of a box of texels, if it lies in a level of `size` texels that is cut into tiles.
    pub fn bytes_of_tiles(&self, size: [u64; 3], tile: [u32; 3]) -> Option<u64> {
        let mut bytes = TILE_BYTES;
        for axis in 0..3 {
            let tile = u64::from(tile[axis]).max(1);
            if self.end[axis] > size[axis] {
                return None;
            }
            let tiles = self.end[axis].div_ceil(tile) - self.start[axis] / tile;
            bytes = bytes.checked_mul(tiles)?;
        }
        Some(bytes)
    }

    /// Bytes of a part of a tail, if it lies in one of `all` bytes.
    pub fn bytes_of_tail(&self, all: u64) -> Option<u64> {
        (self.end[0] <= all).then(|| self.end[0] - self.start[0])
    }

    /// Returns the rest of this box when the other one is taken out: at most six boxes.
    fn without(&self, other: &Self) -> Option<Vec<Self>> {
        let apart =
            (0..3).any(|axis| self.end[axis] <= other.start[axis] || other.end[axis] <= self.start[axis]);
        if self.place != other.place || apart {
            return None;
        }
        let mut rest = Vec::new();
        let mut core = *self;
        for axis in 0..3 {
            let (from, to) = (core.start[axis].max(other.start[axis]), core.end[axis].min(other.end[axis]));
            if core.start[axis] < from {
                let mut low = core;
                low.end[axis] = from;
                rest.push(low);
            }
            if to < core.end[axis] {
                let mut high = core;
                high.start[axis] = to;
                rest.push(high);
            }
            (core.start[axis], core.end[axis]) = (from, to);
        }
        Some(rest)
    }
}

/// The parts of one array, each with the allocation that is mapped there.
#[derive(Debug, Default)]
struct Maps {
    context: u64,
    parts: Vec<(Part, u64)>,
}

/// The name of an array, and that of its context.
#[derive(Clone, Copy, Debug)]
pub struct ArrayName {
    /// The array's name.
    pub name: u64,
    /// The context's name.
    pub context: u64,
}

/// All arrays of a session that have mappings, by name.
#[derive(Debug, Default)]
pub struct ArrayMaps {
    arrays: HashMap<u64, Maps>,
    count: usize,
}

/// For each allocation: the number of parts that are mapped more or (negative) less than before.
pub type Changes = HashMap<u64, i64>;

impl ArrayMaps {
    /// Returns whether nothing is mapped into arrays.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// Returns an error if a session would have too many parts once `more` are mapped.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_room(&self, more: usize) -> CuResult<()> {
        // A map takes a part out of another, of which six are left.
        if self.count.saturating_add(more.saturating_mul(6)) > MAX_PARTS {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        Ok(())
    }

    /// Maps `allocation` into a part of an array, or takes away the mapping there.
    pub fn set(&mut self, array: ArrayName, part: Part, allocation: Option<u64>) -> Changes {
        let mut changes = Changes::new();
        let maps = self.arrays.entry(array.name).or_default();
        maps.context = array.context;
        let before = maps.parts.len();
        let mut kept = Vec::with_capacity(before + 1);
        for (old, of) in maps.parts.drain(..) {
            match old.without(&part) {
                None => kept.push((old, of)),
                Some(rest) => {
                    *changes.entry(of).or_default() += rest.len() as i64 - 1;
                    kept.extend(rest.into_iter().map(|rest| (rest, of)));
                }
            }
        }
        if let Some(of) = allocation {
            *changes.entry(of).or_default() += 1;
            kept.push((part, of));
        }
        self.count = self.count - before + kept.len();
        maps.parts = kept;
        if maps.parts.is_empty() {
            self.arrays.remove(&array.name);
        }
        changes
    }

    /// Forgets an array that has ended.
    pub fn forget(&mut self, array: u64) -> Changes {
        let mut changes = Changes::new();
        for (_, of) in self.arrays.remove(&array).unwrap_or_default().parts {
            self.count -= 1;
            *changes.entry(of).or_default() -= 1;
        }
        changes
    }

    /// Returns the arrays of a context that have mappings.
    pub fn of_context(&self, context: u64) -> Vec<u64> {
        self.arrays.iter().filter(|(_, maps)| maps.context == context).map(|(&name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: ArrayName = ArrayName { name: 5, context: 9 };

    fn tiles(start: [u64; 2], end: [u64; 2]) -> Part {
        Part { place: (SPARSE_LEVEL, 0, 0), start: [start[0], start[1], 0], end: [end[0], end[1], 1] }
    }

    #[test]
    fn what_is_mapped_over_counts_no_more() {
        let mut maps = ArrayMaps::default();
        assert_eq!(maps.set(ARRAY, tiles([0, 0], [4, 4]), Some(1)), Changes::from([(1, 1)]));
        // A hole in the middle leaves four boxes.
        assert_eq!(maps.set(ARRAY, tiles([1, 1], [2, 2]), Some(2)), Changes::from([(1, 3), (2, 1)]));
        assert_eq!(maps.count, 5);
        assert_eq!(maps.set(ARRAY, tiles([0, 0], [4, 4]), None), Changes::from([(1, -4), (2, -1)]));
        assert!(maps.count == 0 && maps.arrays.is_empty());
    }

    #[test]
    fn other_levels_and_layers_stay() {
        let mut maps = ArrayMaps::default();
        maps.set(ARRAY, tiles([0, 0], [4, 4]), Some(1));
        let level = Part { place: (SPARSE_LEVEL, 1, 0), ..tiles([0, 0], [4, 4]) };
        assert!(maps.set(ARRAY, level, None).is_empty());
        assert!(maps.set(ARRAY, tiles([4, 0], [8, 4]), None).is_empty(), "beside it");
        assert_eq!(maps.of_context(9), [5]);
        assert_eq!(maps.forget(5), Changes::from([(1, -1)]));
        assert_eq!(maps.count, 0);
    }

    #[test]
    fn nothing_beyond_an_array_is_a_part_of_it() {
        let (size, tile) = ([200, 150, 1], [128, 128, 1]);
        let bytes = |start, end| tiles(start, end).bytes_of_tiles(size, tile);
        assert_eq!(bytes([0, 0], [128, 128]), Some(TILE_BYTES));
        assert_eq!(bytes([128, 0], [200, 150]), Some(2 * TILE_BYTES), "tiles that are cut");
        assert_eq!(bytes([128, 0], [256, 150]), None);
        assert_eq!(bytes([256, 0], [384, 128]), None);
        assert_eq!(bytes([0xffff_ff80, 0], [0x1_0000_0080, 128]), None, "NVIDIA's driver takes it for 128");
        let tail = |start, end| Part { place: (MIP_TAIL, 0, 0), start: [start, 0, 0], end: [end, 1, 1] };
        assert_eq!(tail(0, TILE_BYTES).bytes_of_tail(TILE_BYTES), Some(TILE_BYTES));
        assert_eq!(tail(TILE_BYTES, 2 * TILE_BYTES).bytes_of_tail(TILE_BYTES), None);
    }

    #[test]
    fn parts_are_read_as_the_union_lies() {
        let mut map = ArrayMapInfo { subresource: [2, 1, 128, 0, 0, 128, 128, 1], ..Default::default() };
        let part = Part::of_sparse(&map).unwrap();
        assert_eq!(part, Part { place: (0, 2, 1), start: [128, 0, 0], end: [256, 128, 1] });
        map.subresource_kind = MIP_TAIL;
        map.subresource = [1, 0, 0x1_0000, 0, 0, 1, 0, 0];
        let part = Part::of_sparse(&map).unwrap();
        assert_eq!((part.start[0], part.end[0]), (0x1_0000, 0x1_0001_0000));
        map.subresource = [u32::MAX; 8];
        assert_eq!(Part::of_sparse(&map), Err(CudaError::INVALID_VALUE));
    }
}
