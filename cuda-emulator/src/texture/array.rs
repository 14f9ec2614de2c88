// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays: boxes of texels in device memory, rows one after the other. (Hardware lays them out otherwise, and hides it.)

use std::sync::Arc;

use thiserror::Error;

use super::format::Format;
use crate::memory::{Memory, RangeKind};

/// Rows begin at multiples of this many bytes.
const ROW_ALIGN: u64 = 16;

/// How an array or a texture is addressed.
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
    /// Texels of a row.
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

/// The array does not fit into device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no device memory for the array")]
pub struct NoMemory;

/// Where the texels of a box lie.
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
    fn new(extent: Extent, texel: u32) -> Option<Level> {
        let row = u64::from(extent.width).checked_mul(texel.into())?;
        let pitch = row.checked_next_multiple_of(ROW_ALIGN)?;
        let slice = pitch.checked_mul(extent.height.into())?;
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
/// All texels of `level` lie inside `storage`.
pub struct Array {
    /// How it is addressed.
    pub dimension: Dimension,
    /// What a texel is.
    pub format: Format,
    /// Where the texels are.
    pub level: Level,
    #[expect(dead_code, reason = "held for its drop")]
    storage: Arc<Storage>,
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
        format: Format,
        extent: Extent,
    ) -> Result<Array, NoMemory> {
        let mut arrays = allocate(memory, dimension, format, &[extent])?;
        arrays.pop().ok_or(NoMemory)
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.level.bytes()
    }

    /// The array's address in device memory, for copies.
    pub fn address(&self) -> u64 {
        self.level.base
    }

    /// The address of `bytes` bytes at byte `x` of a row, if all of them are inside.
    pub(super) fn place(&self, x: u64, y: u32, z: u32, bytes: u32) -> Option<*mut u8> {
        let extent = self.level.extent;
        let row = u64::from(extent.width) * u64::from(self.format.bytes());
        let inside = x.checked_add(bytes.into())? <= row && y < extent.height && z < extent.depth;
        let row = self.level.address(0, y.min(extent.height - 1), z.min(extent.depth - 1), 1);
        inside.then_some((row + x) as *mut u8)
    }
}

/// A mipmapped array: each level half as large as the one before, at least 1 texel in each direction.
#[derive(Debug)]
pub struct MipmappedArray {
    /// From large to small, at least one.
    pub levels: Vec<Arc<Array>>,
}

impl MipmappedArray {
    /// Allocates all levels; more than the extent has are not made.
    pub fn new(
        memory: &'static Memory,
        dimension: Dimension,
        format: Format,
        extent: Extent,
        levels: u32,
    ) -> Result<MipmappedArray, NoMemory> {
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
        let levels = allocate(memory, dimension, format, &extents)?;
        Ok(MipmappedArray { levels: levels.into_iter().map(Arc::new).collect() })
    }

    /// The bytes that all levels take.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes()).sum()
    }
}

/// Arrays of these sizes, one behind the other in one allocation.
fn allocate(
    memory: &'static Memory,
    dimension: Dimension,
    format: Format,
    extents: &[Extent],
) -> Result<Vec<Array>, NoMemory> {
    let mut levels = Vec::with_capacity(extents.len());
    let mut bytes = 0u64;
    for extent in extents {
        if extent.width == 0 || extent.height == 0 || extent.depth == 0 {
            return Err(NoMemory);
        }
        let level = Level::new(*extent, format.bytes()).ok_or(NoMemory)?;
        levels.push(Level { base: bytes, ..level });
        bytes = bytes.checked_add(level.bytes()).ok_or(NoMemory)?;
    }
    let base = memory.allocate_as(bytes, ROW_ALIGN, RangeKind::Array).map_err(|_| NoMemory)?;
    let storage = Arc::new(Storage { memory, base });
    let place = |level: Level| Level { base: base + level.base, ..level };
    let array = |level| Array { dimension, format, level: place(level), storage: Arc::clone(&storage) };
    Ok(levels.into_iter().map(array).collect())
}
