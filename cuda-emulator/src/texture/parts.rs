// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that arrays get later: all together (deferred mapping), or tile by tile (sparse arrays).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::array::{Dimension, Extent, Unit};

/// Bytes of a tile, and what memory requirements are a multiple of.
pub const TILE_BYTES: u64 = 65_536;

/// Memory at a part of an array.
///
/// # Invariants
/// The part's bytes at `address` can be read and written for as long as the process lives; whose they are then is up to
/// `keeper`.
#[derive(Clone)]
pub struct Part {
    /// The first byte.
    pub address: u64,
    /// Held for as long as the part is mapped.
    pub keeper: Arc<dyn Any + Send + Sync>,
}

/// The parts of an array that have memory, by number.
#[derive(Default)]
pub struct Parts(RwLock<BTreeMap<u64, Part>>);

impl Parts {
    /// The address of a part's memory.
    pub fn address(&self, number: u64) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&number).map(|part| part.address)
    }

    /// Maps and unmaps parts, all together.
    pub fn change(&self, changes: Vec<(u64, Option<Part>)>) {
        let mut removed = Vec::new();
        let mut parts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (number, part) in changes {
            removed.push(match part {
                Some(part) => parts.insert(number, part),
                None => parts.remove(&number),
            });
        }
        // Dropped outside of the lock: it may free memory.
        drop(parts);
        drop(removed);
    }
}

/// The layout of an array in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lay {
    /// In the layout of its level, in the only part.
    Whole,
    /// In tiles, one part each.
    Tiles {
        /// The part of the first one.
        first: u64,
        /// The bytes per row, the rows and the slices of a tile.
        tile: [u64; 3],
        /// The number of tiles per row, and of rows of tiles.
        counts: [u64; 2],
    },
    /// In the layout of its level, in parts one after the other.
    Tail {
        /// The first one.
        first: u64,
        /// Parts from layer to layer; 0: all layers are in the same.
        layer: u64,
    },
}

/// The rows of a level: its first byte in the memory that it shares with others, and the bytes from row to row and from slice to
/// slice.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub base: u64,
    pub pitch: u64,
    pub slice: u64,
}

/// A byte of an array: the part, the byte in it, and how many bytes of the row follow there.
pub(super) type Located = (u64, u64, u64);

impl Lay {
    /// Returns the position of byte `x` of row `y` of slice `z` of a level, whose rows have `row` bytes.
    pub(super) fn locate(&self, Rows { base, pitch, slice }: Rows, [x, y, z]: [u64; 3], row: u64) -> Located {
        match *self {
            Lay::Whole => (0, base + z * slice + y * pitch + x, row - x),
            Lay::Tiles { first, tile: [width, height, depth], counts } => {
                let number = ((z / depth) * counts[1] + y / height) * counts[0] + x / width;
                let offset = ((z % depth) * height + y % height) * width + x % width;
                (first + number, offset, (width - x % width).min(row - x))
            }
            Lay::Tail { first, layer } => {
                let (first, z) = if layer > 0 { (first + z * layer, 0) } else { (first, z) };
                let at = base + z * slice + y * pitch + x;
                (first + at / TILE_BYTES, at % TILE_BYTES, (TILE_BYTES - at % TILE_BYTES).min(row - x))
            }
        }
    }
}

/// Returns the tiles of a sparse array: the units (elements or blocks) per row, the rows and the slices of a tile.
pub(super) fn tile_units(dimension: Dimension, unit: Unit) -> [u32; 3] {
    let log = unit.bytes.trailing_zeros() as usize;
    if dimension == Dimension::D3 {
        return [[64, 32, 32], [32, 32, 32], [32, 32, 16], [32, 16, 16], [16, 16, 16]][log.min(4)];
    }
    [[256, 256, 1], [256, 128, 1], [128, 128, 1], [128, 64, 1], [64, 64, 1]][log.min(4)]
}

/// Bytes that an H200 needs for a level: rows are padded to its own blocks of memory.
pub(super) fn padded_bytes(dimension: Dimension, unit: Unit, extent: Extent) -> Option<u64> {
    let [row, rows, depth] = unit.bounds(extent)?;
    if dimension == Dimension::D3 {
        let depth = depth.next_multiple_of(depth.next_power_of_two().min(16));
        return row.next_multiple_of(64).checked_mul(rows.next_multiple_of(8))?.checked_mul(depth);
    }
    let block = rows.div_ceil(8).next_power_of_two().min(16) * 8;
    row.next_multiple_of(64).checked_mul(rows.next_multiple_of(block))?.checked_mul(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(width: u32, height: u32, depth: u32) -> Extent {
        Extent { width, height, depth }
    }

    /// As an H200 answers (cuArrayGetMemoryRequirements), rounded up to 64 KiB.
    #[test]
    fn as_much_memory_is_needed_as_on_an_h200() {
        let floats = Unit { bytes: 4, side: 1 };
        for (dimension, size, needed) in [
            (Dimension::D2, extent(1000, 1000, 1), 4_128_768),
            (Dimension::D2, extent(129, 129, 1), 196_608),
            (Dimension::D2, extent(63, 1000, 1), 262_144),
            (Dimension::D2Layered, extent(200, 200, 7), 1_507_328),
            (Dimension::D3, extent(100, 50, 30), 851_968),
            (Dimension::D3, extent(200, 200, 17), 5_373_952),
            (Dimension::Cube, extent(64, 64, 6), 131_072),
            (Dimension::D1, extent(64, 1, 1), 65_536),
        ] {
            let bytes = padded_bytes(dimension, floats, size).unwrap().next_multiple_of(TILE_BYTES);
            assert_eq!(bytes, needed, "{dimension:?} {size:?}");
        }
    }

    #[test]
    fn every_byte_of_a_tile_is_another() {
        let lay = Lay::Tiles { first: 5, tile: [512, 128, 1], counts: [4, 4] };
        let at = |x, y| lay.locate(Rows { base: 0, pitch: 0, slice: 0 }, [x, y, 0], 2048);
        assert_eq!(at(0, 0), (5, 0, 512));
        assert_eq!(at(600, 130), (5 + 5, 2 * 512 + 88, 424));
        assert_eq!(at(2047, 511), (20, TILE_BYTES - 1, 1));
        let tail = Lay::Tail { first: 9, layer: 2 };
        assert_eq!(tail.locate(Rows { base: 65_000, pitch: 256, slice: 0 }, [16, 3, 1], 256), (12, 248, 240));
    }
}
