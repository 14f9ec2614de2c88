// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture objects and how they are read: `tex`, `tld4`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::{AddressMode, floor, index_of};
use super::array::{Array, Dimension, Level};
use super::compressed::{Compression, READ};
use super::cube;
use super::format::{Channel, Format};
use super::sampler::Sampler;
use crate::memory::{Memory, OutOfRange};

/// The coordinates of a read: as many as the dimension has, 0 for the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coordinates {
    /// The layer of layered textures, else 0.
    pub layer: u32,
    /// The place.
    pub point: Point,
    /// The mipmap level.
    pub detail: Detail,
}

/// A place in a texture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// According to the sampler: 0..1, or texels. In cubemaps a direction.
    Float([f32; 3]),
    /// Texels, without filtering (`.s32` coordinates).
    Integer([i32; 3]),
}

/// The level of detail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Detail {
    /// `tex` without more, `tex.base`
    Base,
    /// `tex.level`
    Level(f32),
    /// `tex.grad`: the coordinates' derivatives.
    Gradient([f32; 3], [f32; 3]),
}

/// The source of the texels.
#[derive(Debug)]
pub(super) enum Source {
    /// One array or the levels of a mipmapped one.
    Arrays(Vec<Arc<Array>>),
    /// Device memory that others may free.
    Linear(Linear),
}

/// Device memory as a texture.
#[derive(Debug)]
pub(super) struct Linear {
    memory: &'static Memory,
    level: Level,
    bytes: u64,
    /// Bound by CU_RESOURCE_TYPE_LINEAR: outside it reads as zeros.
    pub(super) buffer: bool,
    /// One more than the memory's generation at which the whole range was valid.
    checked: AtomicU64,
}

impl Linear {
    pub(super) fn check(&self) -> Result<(), OutOfRange> {
        let generation = self.memory.generation().wrapping_add(1);
        if self.checked.load(Ordering::Relaxed) != generation {
            self.memory.check(self.level.base, self.bytes)?;
            self.checked.store(generation, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A texture object.
#[derive(Debug)]
pub struct Texture {
    pub(super) source: Source,
    /// The format of the bytes of a texel.
    pub(super) format: Format,
    /// The format in which texels are returned.
    pub(super) read: Format,
    pub(super) dimension: Dimension,
    pub(super) sampler: Sampler,
    /// The number of coordinates that select texels.
    pub(super) rank: usize,
    /// The address modes as they count.
    pub(super) modes: [AddressMode; 3],
    /// The compression of the array's texels, or of its elements as a view has them.
    compression: Option<Compression>,
    /// The levels as a view of blocks has them, where it is one.
    viewed: Vec<Level>,
    /// True if texels are in the layout of their levels.
    direct: bool,
}

/// A level, and the array that it is of, if it has to be asked for its texels.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    level: &'a Level,
    array: Option<&'a Array>,
}

impl Texture {
    /// A texture on the levels of an array, `levels` not empty. `view` overrides the array's format, of the same size.
    pub fn of_arrays(levels: Vec<Arc<Array>>, sampler: Sampler, view: Option<Format>) -> Option<Texture> {
        let (dimension, format) = levels.first().map(|array| (array.dimension, array.format))?;
        let (compression, direct) = levels.first().map(|array| (array.compression, array.is_direct()))?;
        let format = view.filter(|view| view.bytes() == format.bytes()).unwrap_or(format);
        let texture = Texture::new(Source::Arrays(levels), format, dimension, sampler);
        Some(Texture { compression, direct: direct && compression.is_none(), ..texture })
    }

    /// A texture on arrays whose elements are blocks of a compressed format.
    pub fn of_blocks(levels: Vec<Arc<Array>>, sampler: Sampler, view: Compression) -> Option<Texture> {
        let first = levels.first()?;
        if first.compression.is_some() || first.format.bytes() != view.block_bytes() {
            return None;
        }
        let dimension = first.dimension;
        let larger = |level: &Level| {
            let super::Extent { width, height, depth } = level.extent;
            Level { extent: super::Extent { width: width * 4, height: height * 4, depth }, ..*level }
        };
        let viewed = levels.iter().map(|array| larger(&array.level)).collect();
        let texture = Texture::new(Source::Arrays(levels), READ, dimension, sampler);
        Some(Texture { compression: Some(view), viewed, direct: false, ..texture })
    }

    /// A texture on a buffer of `texels` texels.
    pub fn of_buffer(
        memory: &'static Memory,
        base: u64,
        texels: u32,
        format: Format,
        sampler: Sampler,
    ) -> Texture {
        let bytes = u64::from(texels) * u64::from(format.bytes());
        let extent = super::Extent { width: texels, height: 1, depth: 1 };
        let level = Level { base, extent, pitch: bytes, slice: bytes };
        let linear = Linear { memory, level, bytes, buffer: true, checked: AtomicU64::new(0) };
        Texture::new(Source::Linear(linear), format, Dimension::D1, sampler)
    }

    /// A texture on rows of device memory, `pitch` bytes apart; `None` when that wraps around the address space.
    pub fn of_rows(
        memory: &'static Memory,
        base: u64,
        [width, height]: [u32; 2],
        pitch: u64,
        format: Format,
        sampler: Sampler,
    ) -> Option<Texture> {
        let row = u64::from(width) * u64::from(format.bytes());
        let slice = pitch.checked_mul(height.into())?;
        let bytes = pitch.checked_mul(u64::from(height).checked_sub(1)?)?.checked_add(row)?;
        base.checked_add(slice)?;
        if width == 0 || row > pitch {
            return None;
        }
        let extent = super::Extent { width, height, depth: 1 };
        let level = Level { base, extent, pitch, slice };
        let linear = Linear { memory, level, bytes, buffer: false, checked: AtomicU64::new(0) };
        Some(Texture::new(Source::Linear(linear), format, Dimension::D2, sampler))
    }

    fn new(source: Source, format: Format, dimension: Dimension, sampler: Sampler) -> Texture {
        let channel = if sampler.normalized_read { format.channel.normalized() } else { format.channel };
        let read = Format { channel, ..format };
        let cube = matches!(dimension, Dimension::Cube | Dimension::CubeLayered);
        let rank = match dimension {
            Dimension::D1 | Dimension::D1Layered => 1,
            Dimension::D2 | Dimension::D2Layered | Dimension::Cube | Dimension::CubeLayered => 2,
            Dimension::D3 => 3,
        };
        // The edges of a cube's faces go on; its other faces are not asked.
        let modes = std::array::from_fn(|axis| if cube { AddressMode::Clamp } else { sampler.mode(axis) });
        let (compression, viewed) = (None, Vec::new());
        Texture { source, format, read, dimension, sampler, rank, modes, compression, viewed, direct: true }
    }

    /// The addressing.
    pub fn dimension(&self) -> Dimension {
        self.dimension
    }

    /// The format of its texels.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The sampler.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Returns whether reads give f32 bits, else 32-bit integers.
    #[inline(always)]
    pub fn reads_floats(&self) -> bool {
        self.read.channel.is_float()
    }

    /// The number of mipmap levels, at least 1.
    pub fn levels(&self) -> usize {
        match &self.source {
            Source::Arrays(arrays) => arrays.len(),
            Source::Linear(_) => 1,
        }
    }

    /// Size and place of a level; the last one for numbers beyond it.
    #[inline(always)]
    pub fn level(&self, number: usize) -> &Level {
        if let Some(last) = self.viewed.last() {
            return self.viewed.get(number).unwrap_or(last);
        }
        match &self.source {
            Source::Arrays(arrays) => &arrays[number.min(arrays.len() - 1)].level,
            Source::Linear(linear) => &linear.level,
        }
    }

    /// Returns whether texels are in the layout of their levels: not compressed, and in memory of the array itself.
    #[inline(always)]
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    #[inline(always)]
    fn chosen(&self, number: usize) -> Chosen<'_> {
        let array = match &self.source {
            Source::Arrays(arrays) if !self.direct => Some(&*arrays[number.min(arrays.len() - 1)]),
            _ => None,
        };
        Chosen { level: self.level(number), array }
    }

    /// Fails when the texture is on device memory that was freed, or on an array whose memory is still to come.
    fn check(&self) -> Result<(), OutOfRange> {
        match &self.source {
            Source::Linear(linear) => linear.check(),
            Source::Arrays(arrays) if !self.direct && arrays[0].is_deferred_unmapped() => {
                Err(OutOfRange { address: 0, bytes: self.format.bytes().into() })
            }
            Source::Arrays(_) => Ok(()),
        }
    }

    /// Reads the texture: the bits of four f32 or four integers. Fails when it is on device memory that was freed.
    pub fn fetch(&self, at: &Coordinates) -> Result<[u32; 4], OutOfRange> {
        self.check()?;
        let point = match at.point {
            Point::Integer(point) => {
                let level = match at.detail {
                    Detail::Level(level) => (level.max(0.0) as usize).min(self.levels() - 1),
                    _ => 0,
                };
                return Ok(self.texel(level, point.map(i64::from), at.layer));
            }
            Point::Float(point) => point,
        };
        let (point, slice) = self.on_face(point, at.layer);
        let detail = self.level_of_detail(at.detail);
        if self.levels() == 1 {
            return Ok(self.sample(0, point, slice));
        }
        let last = (self.levels() - 1) as f32;
        let detail = (detail + self.sampler.level_bias)
            .clamp(self.sampler.level_clamp[0], self.sampler.level_clamp[1].max(self.sampler.level_clamp[0]))
            .clamp(0.0, last);
        if !self.sampler.linear_mipmap || !self.reads_floats() {
            return Ok(self.sample((detail + 0.5).floor().min(last) as usize, point, slice));
        }
        let lower = detail.floor();
        let weight = fixed(detail - lower);
        let near = self.sample(lower as usize, point, slice);
        if weight == 0.0 {
            return Ok(near);
        }
        Ok(mix(near, self.sample(lower as usize + 1, point, slice), weight))
    }

    /// `tld4`: channel `channel` of the four texels that linear filtering would use, in the order of the PTX manual:
    /// (0,1), (1,1), (1,0), (0,0).
    pub fn gather(&self, at: &Coordinates, channel: usize) -> Result<[u32; 4], OutOfRange> {
        self.check()?;
        let point = match at.point {
            Point::Float(point) => point,
            Point::Integer(point) => point.map(|value| value as f32),
        };
        let (point, slice) = self.on_face(point, at.layer);
        let [x, y, _] = self.scaled(0, point).map(|value| index_of(value - 0.5));
        let read = |dx: i64, dy: i64| self.texel(0, [x + dx, y + dy, 0], slice)[channel & 3];
        Ok([read(0, 1), read(1, 1), read(1, 0), read(0, 0)])
    }

    /// Returns the place on a face of a cubemap, and the slice with that face.
    fn on_face(&self, point: [f32; 3], layer: u32) -> ([f32; 3], u32) {
        match self.dimension {
            Dimension::Cube | Dimension::CubeLayered => {
                let (face, [s, t]) = cube::face(point);
                let layers = self.level(0).extent.depth / 6;
                ([s, t, 0.0], layer.min(layers.saturating_sub(1)) * 6 + face)
            }
            _ => (point, layer),
        }
    }

    pub(super) fn is_cube(&self) -> bool {
        matches!(self.dimension, Dimension::Cube | Dimension::CubeLayered)
    }

    fn level_of_detail(&self, detail: Detail) -> f32 {
        match detail {
            Detail::Level(level) if !level.is_nan() => level,
            Detail::Base | Detail::Level(_) => 0.0,
            Detail::Gradient(dx, dy) => {
                let extent = self.level(0).extent;
                let size = [extent.width as f32, extent.height as f32, extent.depth as f32];
                let length = |gradient: [f32; 3]| {
                    let scale =
                        |axis: usize| if self.sampler.normalized_coordinates { size[axis] } else { 1.0 };
                    let squares = (0..self.rank).map(|axis| (gradient[axis] * scale(axis)).powi(2));
                    squares.sum::<f32>().sqrt()
                };
                let longest = length(dx).max(length(dy));
                if longest > 0.0 { longest.log2() } else { 0.0 }
            }
        }
    }

    /// Coordinates in texels of a level.
    #[inline(always)]
    fn scaled(&self, level: usize, point: [f32; 3]) -> [f32; 3] {
        if !self.sampler.normalized_coordinates && !self.is_cube() {
            return point;
        }
        let extent = self.level(level).extent;
        [point[0] * extent.width as f32, point[1] * extent.height as f32, point[2] * extent.depth as f32]
    }

    /// One level at a place.
    fn sample(&self, number: usize, point: [f32; 3], slice: u32) -> [u32; 4] {
        let point = self.scaled(number, point);
        if !self.sampler.linear || !self.reads_floats() {
            return self.texel(number, point.map(index_of), slice);
        }
        let level = self.chosen(number);
        let sizes = level.level.extent.sizes();
        // For each axis, the two texels between which the position lies.
        let mut near = [[None; 2]; 3];
        let mut weight = [0f32; 3];
        for axis in 0..self.rank {
            let shifted = point[axis] - 0.5;
            let base = index_of(shifted);
            let next = self.index(axis, base + 1, sizes[axis]);
            near[axis] = [self.index(axis, base, sizes[axis]), next];
            let fraction = shifted - floor(shifted);
            weight[axis] = if fraction.is_finite() { fixed(fraction) } else { 0.0 };
        }
        let [x, y, z] = near;
        match self.rank {
            1 => self.between(level, x, None, None, slice, weight[0]),
            2 => {
                let low = self.column(level, x[0], y, None, slice, weight[1]);
                let high = self.column(level, x[1], y, None, slice, weight[1]);
                mix(low, high, weight[0])
            }
            _ => {
                let mut sides = [[0; 4]; 2];
                for (side, x) in sides.iter_mut().zip(x) {
                    let mut edges = [[0; 4]; 2];
                    for (edge, y) in edges.iter_mut().zip(y) {
                        let low = self.texel_or_border(level, [x, y, z[0]], slice);
                        let high = self.texel_or_border(level, [x, y, z[1]], slice);
                        *edge = mix(low, high, weight[2]);
                    }
                    *side = mix(edges[0], edges[1], weight[1]);
                }
                mix(sides[0], sides[1], weight[0])
            }
        }
    }

    /// Interpolates between two texels of a row.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the coordinates of texels")]
    fn between(
        &self,
        level: Chosen<'_>,
        x: [Option<u32>; 2],
        y: Option<u32>,
        z: Option<u32>,
        slice: u32,
        weight: f32,
    ) -> [u32; 4] {
        let low = self.texel_or_border(level, [x[0], y, z], slice);
        let high = self.texel_or_border(level, [x[1], y, z], slice);
        mix(low, high, weight)
    }

    /// Between two texels of a column.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the coordinates of texels")]
    fn column(
        &self,
        level: Chosen<'_>,
        x: Option<u32>,
        y: [Option<u32>; 2],
        z: Option<u32>,
        slice: u32,
        weight: f32,
    ) -> [u32; 4] {
        let low = self.texel_or_border(level, [x, y[0], z], slice);
        let high = self.texel_or_border(level, [x, y[1], z], slice);
        mix(low, high, weight)
    }

    /// The texel that an index of an axis means; `u32::MAX` in a buffer, which reads as zeros there; none is the border.
    #[inline(always)]
    fn index(&self, axis: usize, index: i64, size: u32) -> Option<u32> {
        let buffer = matches!(&self.source, Source::Linear(linear) if linear.buffer);
        if buffer && !(0..i64::from(size)).contains(&index) {
            return Some(u32::MAX);
        }
        self.modes[axis].resolve(index, size)
    }

    /// One texel, the address modes applied. `slice` is the layer or face.
    fn texel(&self, level: usize, at: [i64; 3], slice: u32) -> [u32; 4] {
        let level = self.chosen(level);
        let sizes = level.level.extent.sizes();
        let mut place = [None; 3];
        for axis in 0..self.rank {
            place[axis] = self.index(axis, at[axis], sizes[axis]);
        }
        self.texel_or_border(level, place, slice)
    }

    /// One texel; only the axes of `place` that select texels count.
    #[inline(always)]
    fn texel_or_border(&self, chosen: Chosen<'_>, place: [Option<u32>; 3], slice: u32) -> [u32; 4] {
        let Chosen { level, array } = chosen;
        let extent = level.extent;
        let mut at = [0, 0, 0];
        for (axis, place) in place.iter().enumerate().take(self.rank) {
            match place {
                Some(index) => at[axis] = *index,
                None => return self.border(),
            }
        }
        if self.rank < 3 {
            at[2] = slice.min(extent.depth - 1);
        }
        let [x, y, z] = at;
        if x >= extent.width || y >= extent.height || z >= extent.depth {
            return [0; 4];
        }
        if let Some(array) = array {
            return self.texel_in(array, at);
        }
        let from = level.address(x, y, z, self.format.bytes()) as *const u8;
        // SAFETY: the texel is inside the level: of an array, which `source` keeps, or of memory that `fetch` found valid;
        // memory that is freed just now stays mapped. Kernels may write it at the same time: then the value is undefined, as on
        // the device.
        let mut values = unsafe { self.read.decode_at(from) };
        if self.sampler.srgb && self.read.channel == Channel::Unorm8 {
            values[..3]
                .iter_mut()
                .for_each(|value| *value = linear_of_srgb(f32::from_bits(*value)).to_bits());
        }
        values
    }

    /// Returns a texel of an array that is compressed, or has its memory in parts. Missing memory is read as zeros.
    fn texel_in(&self, array: &Array, [x, y, z]: [u32; 3]) -> [u32; 4] {
        let unit = array.unit();
        // In a view of blocks, elements are blocks.
        let side = if self.compression.is_some() { 4 } else { 1 };
        let at = [u64::from(x / side) * u64::from(unit.bytes), u64::from(y / side), u64::from(z)];
        let mut bytes = [0u8; 16];
        if let (Some(address), _) = array.bytes_at(at) {
            // SAFETY: the unit is inside the array, which `source` keeps, and all of it lies at the address: rows of tiles
            // and parts are multiples of it. Memory of parts stays readable. Others may write it: then the value is
            // undefined, as on the device.
            unsafe { std::ptr::copy(address as *const u8, bytes.as_mut_ptr(), unit.bytes as usize) };
        }
        let Some(compression) = self.compression else {
            // SAFETY: there are 16 bytes, as many as the largest texel has.
            let mut values = unsafe { self.read.decode_at(bytes.as_ptr()) };
            if self.sampler.srgb && self.read.channel == Channel::Unorm8 {
                values[..3]
                    .iter_mut()
                    .for_each(|value| *value = linear_of_srgb(f32::from_bits(*value)).to_bits());
            }
            return values;
        };
        let mut texel = compression.texel(&bytes, [x, y]);
        if self.sampler.srgb && compression.has_colors() {
            texel[..3].iter_mut().for_each(|value| *value = short(linear_of_srgb(*value)));
        }
        if !self.viewed.is_empty() && !compression.has_colors() {
            // As on an H200 for views.
            texel[3] = 0.0;
        }
        texel.map(f32::to_bits)
    }

    pub(super) fn border(&self) -> [u32; 4] {
        if self.reads_floats() {
            return self.sampler.border.map(f32::to_bits);
        }
        self.sampler.border.map(|value| if value < 0.0 { value as i32 as u32 } else { value as u32 })
    }
}

/// Returns a filter weight with the hardware's precision: 8 bits after the point.
fn fixed(fraction: f32) -> f32 {
    floor(fraction * 256.0 + 0.5) / 256.0
}

#[inline(always)]
fn mix(from: [u32; 4], to: [u32; 4], weight: f32) -> [u32; 4] {
    if weight == 0.0 {
        return from;
    }
    let mut result = [0; 4];
    for ((result, from), to) in result.iter_mut().zip(from).zip(to) {
        *result = ((1.0 - weight) * f32::from_bits(from) + weight * f32::from_bits(to)).to_bits();
    }
    result
}

/// The nearest number of eight bits of fraction, as an H200 makes of sRGB.
fn short(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + 0x7fff + (value.to_bits() >> 16 & 1)) & 0xffff_0000)
}

fn linear_of_srgb(value: f32) -> f32 {
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}
