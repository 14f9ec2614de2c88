// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays: boxes of texels in device memory, rows one after the other. (Hardware lays them out otherwise, and hides it.)
//! Those that get their memory later have it in parts ([`super::parts`]).

use std::sync::Arc;

use thiserror::Error;

use super::compressed::Compression;
use super::format::Format;
use super::parts::{Lay, Located, Parts, Rows, TILE_BYTES, padded_bytes, tile_units};
use crate::memory::{Memory, RangeKind};

/// Rows begin at multiples of this many bytes.
const ROW_ALIGN: u64 = 16;

/// The addressing of an array or a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// One coordinate.
    D1,
    /// Two coordinates.
    D2,
    /// Three coordinates.
    D3,
    /// A layer and one coordinate.
    D1Layered,
    /// A layer and two coordinates.
    D2Layered,
    /// A direction.
    Cube,
    /// A layer (six faces each) and a direction.
    CubeLayered,
}

/// Texels in each direction, at least 1 each. Layers and faces count as depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The number of texels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Slices, layers or faces.
    pub depth: u32,
}

impl Extent {
    /// All three.
    pub(super) fn sizes(self) -> [u32; 3] {
        [self.width, self.height, self.depth]
    }
}

/// The unit in which copies of an array count: an element, or a block of a compressed format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Its bytes, a power of two up to 16.
    pub bytes: u32,
    /// Texels in a row of it, and rows.
    pub side: u32,
}

impl Unit {
    /// Returns the bytes per row, the rows and the slices.
    pub fn bounds(self, extent: Extent) -> Option<[u64; 3]> {
        let row = u64::from(extent.width.div_ceil(self.side)).checked_mul(self.bytes.into())?;
        Some([row, extent.height.div_ceil(self.side).into(), extent.depth.into()])
    }
}

/// The type of the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// A texel; of compressed formats, as it is read.
    pub format: Format,
    /// The compression of texels.
    pub compression: Option<Compression>,
}

impl Element {
    /// Returns the unit in which copies count.
    pub fn unit(self) -> Unit {
        match self.compression {
            Some(compression) => Unit { bytes: compression.block_bytes(), side: 4 },
            None => Unit { bytes: self.format.bytes(), side: 1 },
        }
    }
}

impl From<Format> for Element {
    fn from(format: Format) -> Element {
        Element { format, compression: None }
    }
}

/// The tiles of a sparse array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Texels of a tile in each direction.
    pub tile: [u32; 3],
    /// The first level that is no larger than a tile in some direction.
    pub first_tail_level: u32,
    /// Bytes of the tail: of each layer, or of all if `single`.
    pub tail_bytes: u64,
    /// All levels are in one tail for all layers.
    pub single: bool,
}

/// The array does not fit into device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no device memory for the array")]
pub struct NoMemory;

/// The layout of the texels of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The address of the first texel.
    pub base: u64,
    /// Its size in texels.
    pub extent: Extent,
    /// From row to row, bytes.
    pub pitch: u64,
    /// From slice to slice, bytes.
    pub slice: u64,
}

impl Level {
    fn new(extent: Extent, unit: Unit) -> Option<Level> {
        let [row, rows, _] = unit.bounds(extent)?;
        let pitch = row.checked_next_multiple_of(ROW_ALIGN)?;
        let slice = pitch.checked_mul(rows)?;
        slice.checked_mul(extent.depth.into())?;
        Some(Level { base: 0, extent, pitch, slice })
    }

    fn bytes(&self) -> u64 {
        self.slice * u64::from(self.extent.depth)
    }

    /// The address of a texel that is inside.
    #[inline(always)]
    pub(super) fn address(&self, x: u32, y: u32, z: u32, texel: u32) -> u64 {
        debug_assert!(x < self.extent.width && y < self.extent.height && z < self.extent.depth);
        self.base + u64::from(z) * self.slice + u64::from(y) * self.pitch + u64::from(x) * u64::from(texel)
    }
}

/// A piece of device memory that belongs to arrays.
///
/// # Invariants
/// `base` is a live allocation of kind [`RangeKind::Array`] in `memory`, freed by nobody but this value's drop.
struct Storage {
    memory: &'static Memory,
    base: u64,
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.memory.free_array(self.base);
    }
}

/// A CUDA array. Its memory lives as long as somebody holds the array.
///
/// # Invariants
/// All texels of `level` lie inside the storage, or in the parts that its lay names.
pub struct Array {
    /// The addressing.
    pub dimension: Dimension,
    /// The format of a texel.
    pub format: Format,
    /// The compression of texels.
    pub compression: Option<Compression>,
    /// The layout of the texels, if the array has its own memory.
    pub level: Level,
    backing: Backing,
}

/// The memory of an array.
#[derive(Clone)]
enum Backing {
    /// Memory at the address of its level.
    Own {
        #[expect(dead_code, reason = "held for its drop")]
        storage: Arc<Storage>,
    },
    /// In parts, each of which has memory or has not.
    Later { parts: Arc<Parts>, lay: Lay },
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} array of {:?}, {:?}", self.dimension, self.format, self.level)
    }
}

impl Array {
    /// Allocates an array of zeros.
    pub fn new(
        memory: &'static Memory,
        dimension: Dimension,
        element: impl Into<Element>,
        extent: Extent,
    ) -> Result<Array, NoMemory> {
        let mut arrays = allocate(memory, dimension, element.into(), &[extent])?;
        arrays.pop().ok_or(NoMemory)
    }

    /// Returns the unit in which copies count.
    pub fn unit(&self) -> Unit {
        Element { format: self.format, compression: self.compression }.unit()
    }

    /// Returns the bytes per row, the rows and the slices, as copies count them.
    pub fn bounds(&self) -> [u64; 3] {
        // An array of more was not made.
        self.unit().bounds(self.level.extent).unwrap_or_default()
    }

    /// Returns whether its bytes are in the layout of its level.
    pub fn is_direct(&self) -> bool {
        matches!(self.backing, Backing::Own { .. })
    }

    /// Returns whether all of its memory is still to come.
    pub fn is_deferred_unmapped(&self) -> bool {
        match &self.backing {
            Backing::Later { parts, lay: Lay::Whole } => parts.address(0).is_none(),
            _ => false,
        }
    }

    /// The address of byte `x` of row `y` of slice `z`, if there is memory, and how many bytes of the row lie there. The
    /// caller has compared the place with [`Self::bounds`].
    pub(crate) fn bytes_at(&self, at: [u64; 3]) -> (Option<u64>, u64) {
        let Level { base, pitch, slice, .. } = self.level;
        let rows = Rows { base, pitch, slice };
        let row = self.bounds()[0];
        match &self.backing {
            Backing::Own { .. } => {
                let (_, address, bytes) = Lay::Whole.locate(rows, at, row);
                (Some(address), bytes)
            }
            Backing::Later { parts, lay } => {
                let (number, offset, bytes): Located = lay.locate(rows, at, row);
                (parts.address(number).map(|address| address + offset), bytes)
            }
        }
    }

    /// The tiles of a box of texels, of which each side begins with a tile and ends with one or with the level.
    pub fn tiles(&self, tiling: &Tiling, layer: u32, start: [u32; 3], size: [u32; 3]) -> Option<Tiles> {
        let Backing::Later { lay: Lay::Tiles { first, counts, .. }, .. } = &self.backing else { return None };
        let layered = self.dimension == Dimension::D2Layered;
        let Extent { width, height, depth } = self.level.extent;
        let (layers, depth) = if layered { (depth, 1) } else { (1, depth) };
        if layer >= layers {
            return None;
        }
        let (mut from, mut count) = ([0; 3], [0; 3]);
        for (axis, whole) in [width, height, depth].into_iter().enumerate() {
            let [tile, start, size, whole] =
                [tiling.tile[axis], start[axis], size[axis], whole].map(u64::from);
            let end = start + size;
            let ends = end.is_multiple_of(tile) && end <= whole || end == whole;
            if size == 0 || !start.is_multiple_of(tile) || !ends {
                return None;
            }
            (from[axis], count[axis]) = (start / tile, size.div_ceil(tile));
        }
        if layered {
            from[2] = layer.into();
        }
        Some(Tiles { first_part: *first, counts: *counts, start: from, size: count })
    }

    /// Returns the number of tails of a sparse array of these levels.
    pub fn tail_layers(&self, tiling: &Tiling) -> u32 {
        let layered = self.dimension == Dimension::D2Layered && !tiling.single;
        if layered { self.level.extent.depth } else { 1 }
    }

    /// Returns the address of `bytes` bytes at byte `x` of a row, if all of them are inside and have memory.
    pub(super) fn place(&self, x: u64, y: u32, z: u32, bytes: u32) -> Option<*mut u8> {
        let [row, rows, slices] = self.bounds();
        let inside = x.checked_add(bytes.into())? <= row && u64::from(y) < rows && u64::from(z) < slices;
        if !inside {
            return None;
        }
        let (address, there) = self.bytes_at([x, y.into(), z.into()]);
        (there >= u64::from(bytes)).then_some(address? as *mut u8)
    }
}

/// A mipmapped array: each level has half the size of the one before, but at least 1 texel in each direction.
#[derive(Debug)]
pub struct MipmappedArray {
    /// From large to small, at least one.
    pub levels: Vec<Arc<Array>>,
}

/// The memory of arrays that get it later.
pub struct Later {
    /// The mapped parts.
    pub parts: Arc<Parts>,
    /// The number of bytes, if all of it is mapped at once.
    pub bytes: u64,
    /// Bytes of these that levels lie in.
    pub used: u64,
    /// The tiles, if it is sparse.
    pub tiling: Option<Tiling>,
    /// The first part of the tails, those of all layers one after the other.
    pub first_tail_part: u64,
}

/// Tiles of a level: in each direction the first one, and how many.
pub struct Tiles {
    first_part: u64,
    counts: [u64; 2],
    start: [u64; 3],
    size: [u64; 3],
}

impl Tiles {
    /// The number of tiles.
    pub fn count(&self) -> u64 {
        self.size.iter().fold(1, |count, size| count.saturating_mul(*size))
    }

    /// Their parts, row by row.
    pub fn numbers(self) -> impl Iterator<Item = u64> + Send {
        let [width, height, depth] = self.size;
        let row = move |y: u64, z: u64| {
            let row = (self.start[2] + z) * self.counts[1] + self.start[1] + y;
            let first = self.first_part + row * self.counts[0] + self.start[0];
            first..first + width
        };
        (0..depth).flat_map(move |z| (0..height).flat_map(move |y| row(y, z)))
    }
}

impl MipmappedArray {
    /// Allocates all levels; more than the extent has are not made.
    pub fn new(
        memory: &'static Memory,
        dimension: Dimension,
        element: impl Into<Element>,
        extent: Extent,
        levels: u32,
    ) -> Result<MipmappedArray, NoMemory> {
        let levels = allocate(memory, dimension, element.into(), &halved(dimension, extent, levels))?;
        Ok(MipmappedArray { levels: levels.into_iter().map(Arc::new).collect() })
    }

    /// Creates all levels without memory.
    pub fn without_memory(
        dimension: Dimension,
        element: Element,
        extent: Extent,
        levels: u32,
        sparse: bool,
    ) -> Result<(MipmappedArray, Later), NoMemory> {
        let extents = halved(dimension, extent, levels);
        let (levels, later) = without_memory(dimension, element, &extents, sparse).ok_or(NoMemory)?;
        Ok((MipmappedArray { levels: levels.into_iter().map(Arc::new).collect() }, later))
    }
}

/// The sizes of up to so many levels.
fn halved(dimension: Dimension, extent: Extent, levels: u32) -> Vec<Extent> {
    let layered = !matches!(dimension, Dimension::D1 | Dimension::D2 | Dimension::D3);
    let mut extents = vec![extent];
    while (extents.len() as u32) < levels.max(1) {
        let last = extents[extents.len() - 1];
        let half = |size: u32| (size / 2).max(1);
        let depth = if layered { last.depth } else { half(last.depth) };
        let next = Extent { width: half(last.width), height: half(last.height), depth };
        if next == last {
            break;
        }
        extents.push(next);
    }
    extents
}

/// Levels that get their memory later.
fn without_memory(
    dimension: Dimension,
    element: Element,
    extents: &[Extent],
    sparse: bool,
) -> Option<(Vec<Array>, Later)> {
    let (unit, parts) = (element.unit(), Arc::new(Parts::default()));
    let tile = tile_units(dimension, unit);
    let whole_tiles = |extent: &Extent| {
        let sizes = [extent.width.div_ceil(unit.side), extent.height.div_ceil(unit.side), extent.depth];
        // Layers have no depth.
        (0..3).all(|axis| sizes[axis] >= tile[axis])
    };
    let tiled = if sparse { extents.iter().take_while(|extent| whole_tiles(extent)).count() } else { 0 };
    let (single, layers) = (tiled == 0, if dimension == Dimension::D2Layered { extents[0].depth } else { 1 });
    let of_tail =
        |extent: Extent| if single { extent } else { Extent { depth: extent.depth / layers, ..extent } };
    let mut tail_bytes = 0u64;
    for extent in &extents[tiled..] {
        tail_bytes = tail_bytes.checked_add(padded_bytes(dimension, unit, of_tail(*extent))?)?;
    }
    let used = tail_bytes;
    let tail_bytes = tail_bytes.checked_next_multiple_of(TILE_BYTES)?;
    let (mut next, mut offset, mut levels) = (0u64, 0u64, Vec::new());
    for (index, extent) in extents.iter().enumerate() {
        let level = Level { base: offset, ..Level::new(*extent, unit)? };
        let lay = if index < tiled {
            let [row, rows, slices] = unit.bounds(*extent)?;
            let sizes = [tile[0] * unit.bytes, tile[1], tile[2]].map(u64::from);
            let counts = [row.div_ceil(sizes[0]), rows.div_ceil(sizes[1])];
            let first = next;
            next += counts[0] * counts[1] * slices.div_ceil(sizes[2]);
            Lay::Tiles { first, tile: sizes, counts }
        } else {
            offset += if single { level.bytes() } else { level.bytes() / u64::from(layers) };
            // Tiles of all levels come first, so `next` no longer changes.
            let layer = if single { 0 } else { tail_bytes / TILE_BYTES };
            if sparse { Lay::Tail { first: next, layer } } else { Lay::Whole }
        };
        let backing = Backing::Later { parts: Arc::clone(&parts), lay };
        let Element { format, compression } = element;
        levels.push(Array { dimension, format, compression, level, backing });
    }
    let tiling = sparse.then(|| Tiling {
        tile: [tile[0] * unit.side, tile[1] * unit.side, tile[2]],
        first_tail_level: tiled as u32,
        tail_bytes,
        single,
    });
    Some((levels, Later { parts, bytes: tail_bytes, used, tiling, first_tail_part: next }))
}

/// Allocates arrays of these sizes, one after the other in one allocation.
fn allocate(
    memory: &'static Memory,
    dimension: Dimension,
    element: Element,
    extents: &[Extent],
) -> Result<Vec<Array>, NoMemory> {
    let mut levels = Vec::with_capacity(extents.len());
    let mut bytes = 0u64;
    for extent in extents {
        if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
            return Err(NoMemory);
        }
        let level = Level::new(*extent, element.unit()).ok_or(NoMemory)?;
        levels.push(Level { base: bytes, ..level });
        bytes = bytes.checked_add(level.bytes()).ok_or(NoMemory)?;
    }
    let base = memory.allocate_as(bytes, ROW_ALIGN, RangeKind::Array).map_err(|_| NoMemory)?;
    let storage = Arc::new(Storage { memory, base });
    let place = |level: Level| Level { base: base + level.base, ..level };
    let Element { format, compression } = element;
    let array = |level| {
        let backing = Backing::Own { storage: Arc::clone(&storage) };
        Array { dimension, format, compression, level: place(level), backing }
    };
    Ok(levels.into_iter().map(array).collect())
}
