// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture objects and how they are read: `tex`, `tld4`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::index_of;
use super::array::{Array, Dimension, Level};
use super::cube;
use super::format::{Channel, Format, MAX_TEXEL};
use super::sampler::Sampler;
use crate::memory::{Memory, OutOfRange};

/// Where a texture is read: as many coordinates as the dimension has, 0 for the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coordinates {
    /// The layer of layered textures, else 0.
    pub layer: u32,
    /// The place.
    pub point: Point,
    /// Which mipmap level.
    pub detail: Detail,
}

/// A place in a texture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Point {
    /// As the sampler says: 0..1, or texels. A direction in cubemaps.
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

/// Where the texels are.
#[derive(Debug)]
enum Source {
    /// One array or the levels of a mipmapped one.
    Arrays(Vec<Arc<Array>>),
    /// Device memory that others may free.
    Linear(Linear),
}

/// Device memory as a texture.
#[derive(Debug)]
struct Linear {
    memory: &'static Memory,
    level: Level,
    bytes: u64,
    /// Bound by CU_RESOURCE_TYPE_LINEAR: outside it reads as zeros.
    buffer: bool,
    /// One more than the memory's generation at which the whole range was valid.
    checked: AtomicU64,
}

impl Linear {
    fn check(&self) -> Result<(), OutOfRange> {
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
    source: Source,
    /// How the bytes of a texel are read.
    format: Format,
    /// What they are read as.
    read: Format,
    dimension: Dimension,
    sampler: Sampler,
}

impl Texture {
    /// A texture on the levels of an array, `levels` not empty. `view` overrides the array's format, of the same size.
    pub fn of_arrays(levels: Vec<Arc<Array>>, sampler: Sampler, view: Option<Format>) -> Option<Texture> {
        let (dimension, format) = levels.first().map(|array| (array.dimension, array.format))?;
        let format = view.filter(|view| view.bytes() == format.bytes()).unwrap_or(format);
        Some(Texture::new(Source::Arrays(levels), format, dimension, sampler))
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
        (width, height, pitch): (u32, u32, u64),
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
        Texture { source, format, read, dimension, sampler }
    }

    /// How it is addressed.
    pub fn dimension(&self) -> Dimension {
        self.dimension
    }

    /// The format of its texels.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How it is read.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Whether reads give f32 bits, else 32-bit integers.
    pub fn reads_floats(&self) -> bool {
        self.read.channel.is_float()
    }

    /// How many mipmap levels it has, at least 1.
    pub fn levels(&self) -> usize {
        match &self.source {
            Source::Arrays(arrays) => arrays.len(),
            Source::Linear(_) => 1,
        }
    }

    /// Size and place of a level; the last one for numbers beyond it.
    pub fn level(&self, number: usize) -> &Level {
        match &self.source {
            Source::Arrays(arrays) => &arrays[number.min(arrays.len() - 1)].level,
            Source::Linear(linear) => &linear.level,
        }
    }

    /// Reads the texture: the bits of four f32 or four integers. Fails when it is on device memory that was freed.
    pub fn fetch(&self, at: &Coordinates) -> Result<[u32; 4], OutOfRange> {
        if let Source::Linear(linear) = &self.source {
            linear.check()?;
        }
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
        if let Source::Linear(linear) = &self.source {
            linear.check()?;
        }
        let point = match at.point {
            Point::Float(point) => point,
            Point::Integer(point) => point.map(|value| value as f32),
        };
        let (point, slice) = self.on_face(point, at.layer);
        let [x, y, _] = self.scaled(0, point).map(|value| index_of(value - 0.5));
        let read = |dx: i64, dy: i64| self.texel(0, [x + dx, y + dy, 0], slice)[channel & 3];
        Ok([read(0, 1), read(1, 1), read(1, 0), read(0, 0)])
    }

    /// Of a cubemap: the place on a face, and the slice with that face.
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

    fn is_cube(&self) -> bool {
        matches!(self.dimension, Dimension::Cube | Dimension::CubeLayered)
    }

    /// How many coordinates select texels.
    fn rank(&self) -> usize {
        match self.dimension {
            Dimension::D1 | Dimension::D1Layered => 1,
            Dimension::D2 | Dimension::D2Layered | Dimension::Cube | Dimension::CubeLayered => 2,
            Dimension::D3 => 3,
        }
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
                    let squares = (0..self.rank()).map(|axis| (gradient[axis] * scale(axis)).powi(2));
                    squares.sum::<f32>().sqrt()
                };
                let longest = length(dx).max(length(dy));
                if longest > 0.0 { longest.log2() } else { 0.0 }
            }
        }
    }

    /// Coordinates in texels of a level.
    fn scaled(&self, level: usize, point: [f32; 3]) -> [f32; 3] {
        if !self.sampler.normalized_coordinates && !self.is_cube() {
            return point;
        }
        let extent = self.level(level).extent;
        [point[0] * extent.width as f32, point[1] * extent.height as f32, point[2] * extent.depth as f32]
    }

    /// One level at a place.
    fn sample(&self, level: usize, point: [f32; 3], slice: u32) -> [u32; 4] {
        let point = self.scaled(level, point);
        if !self.sampler.linear || !self.reads_floats() {
            return self.texel(level, point.map(index_of), slice);
        }
        let rank = self.rank();
        let mut base = [0i64; 3];
        let mut weight = [0f32; 3];
        for axis in 0..rank {
            let shifted = point[axis] - 0.5;
            base[axis] = index_of(shifted);
            let fraction = shifted - shifted.floor();
            weight[axis] = if fraction.is_finite() { fixed(fraction) } else { 0.0 };
        }
        let mut values = [[0u32; 4]; 8];
        for (corner, value) in values.iter_mut().enumerate().take(1 << rank) {
            let at = std::array::from_fn(|axis| base[axis] + (corner as i64 >> axis & 1));
            *value = self.texel(level, at, slice);
        }
        for (axis, weight) in weight.into_iter().enumerate().take(rank).rev() {
            for corner in 0..1 << axis {
                values[corner] = mix(values[corner], values[corner | 1 << axis], weight);
            }
        }
        values[0]
    }

    /// One texel, the address modes applied. `slice` is the layer or face.
    fn texel(&self, level: usize, at: [i64; 3], slice: u32) -> [u32; 4] {
        let extent = self.level(level).extent;
        let sizes = [extent.width, extent.height, extent.depth];
        let buffer = matches!(&self.source, Source::Linear(linear) if linear.buffer);
        if buffer && !(0..i64::from(sizes[0])).contains(&at[0]) {
            return [0; 4];
        }
        let mut place = [0u32; 3];
        for axis in 0..self.rank() {
            // The edges of a cube's faces go on; its other faces are not asked.
            let mode = if self.is_cube() { super::AddressMode::Clamp } else { self.sampler.mode(axis) };
            match mode.resolve(at[axis], sizes[axis]) {
                Some(index) => place[axis] = index,
                None => return self.border(),
            }
        }
        if self.rank() < 3 {
            place[2] = slice.min(sizes[2] - 1);
        }
        let bytes = match &self.source {
            Source::Arrays(arrays) => arrays[level.min(arrays.len() - 1)].read(place[0], place[1], place[2]),
            Source::Linear(linear) => self.linear_texel(linear, place),
        };
        let mut values = self.read.decode(&bytes);
        if self.sampler.srgb && self.read.channel == Channel::Unorm8 {
            values[..3]
                .iter_mut()
                .for_each(|value| *value = linear_of_srgb(f32::from_bits(*value)).to_bits());
        }
        values
    }

    fn linear_texel(&self, linear: &Linear, [x, y, z]: [u32; 3]) -> [u8; MAX_TEXEL] {
        let mut texel = [0; MAX_TEXEL];
        let size = self.format.bytes();
        let from = linear.level.address(x, y, z, size) as *const u8;
        // SAFETY: `fetch` found the whole range valid, and the texel is inside it; memory that is freed just now stays
        // mapped. Kernels may write it at the same time: then the value is undefined, as on the device.
        unsafe { std::ptr::copy(from, texel.as_mut_ptr(), size as usize) };
        texel
    }

    fn border(&self) -> [u32; 4] {
        if self.reads_floats() {
            return self.sampler.border.map(f32::to_bits);
        }
        self.sampler.border.map(|value| if value < 0.0 { value as i32 as u32 } else { value as u32 })
    }
}

/// A filter weight as the hardware has it: 8 bits behind the point.
fn fixed(fraction: f32) -> f32 {
    (fraction * 256.0 + 0.5).floor() / 256.0
}

fn mix(from: [u32; 4], to: [u32; 4], weight: f32) -> [u32; 4] {
    if weight == 0.0 {
        return from;
    }
    std::array::from_fn(|channel| {
        let (from, to) = (f32::from_bits(from[channel]), f32::from_bits(to[channel]));
        ((1.0 - weight) * from + weight * to).to_bits()
    })
}

fn linear_of_srgb(value: f32) -> f32 {
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}
