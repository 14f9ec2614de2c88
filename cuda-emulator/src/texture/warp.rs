// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one texture for a whole warp, like [`Texture::fetch`], for the textures of most programs, with one or two
//! dimensions and one level. It works step by step for all lanes, so that the compiler vectorises the arithmetic.

use super::Channel;
use super::address::{AddressMode, index_of};
use super::array::Level;
use super::texture::{Source, Texture};

/// Lanes of a warp.
const LANES: usize = 32;
/// An index that is outside.
const OUTSIDE: u32 = u32::MAX;
/// Coordinates are clamped to this on both sides; no texture is as large.
const FAR: f32 = 1_073_741_824.0;

/// Texels of an axis: all of their numbers are floats.
const MAX_SIZE: u32 = 1 << 24;

/// Words of each lane.
pub(crate) type Words = [u32; LANES];

/// The places that the lanes read.
pub(crate) struct Places {
    /// x and y: bits of f32, or texels.
    pub(crate) points: [Words; 2],
    pub(crate) layers: Words,
    /// Coordinates are texels, which are not filtered.
    pub(crate) integer: bool,
}

/// Along one axis: the two texels of each lane, and the weight of the second.
struct Axis {
    near: [Words; 2],
    weights: [f32; LANES],
}

impl Texture {
    /// Reads the base level for all lanes: the channels of each. `None` when it is not one of the textures for which this is
    /// made, or cannot be read.
    pub(crate) fn fetch_warp(&self, places: &Places) -> Option<[Words; 4]> {
        let buffer = matches!(&self.source, Source::Linear(linear) if linear.buffer);
        let bordered = self.modes[..self.rank.min(2)].contains(&AddressMode::Border);
        let plain_border = self.format.channels == 4 || self.sampler.border.map(f32::to_bits) == [0; 4];
        let filters = !places.integer && self.sampler.linear && self.reads_floats();
        if self.rank > 2
            || self.is_cube()
            || !self.is_direct()
            || self.levels() > 1
            || self.sampler.srgb
            || (bordered && !plain_border)
            || (buffer && filters)
            || self.level(0).extent.sizes().iter().any(|size| *size > MAX_SIZE)
        {
            return None;
        }
        if let Source::Linear(linear) = &self.source {
            linear.check().ok()?;
        }
        #[cfg(target_arch = "x86_64")]
        if crate::vectors::has_wide_vectors() {
            // SAFETY: the CPU has what the function is compiled for.
            return Some(unsafe { self.fetch_wide(places, filters, buffer) });
        }
        Some(self.fetch_lanes(places, filters, buffer))
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn fetch_wide(&self, places: &Places, filters: bool, buffer: bool) -> [Words; 4] {
        self.fetch_lanes(places, filters, buffer)
    }

    #[inline(always)]
    fn fetch_lanes(&self, places: &Places, filters: bool, buffer: bool) -> [Words; 4] {
        let level = self.level(0);
        let sizes = level.extent.sizes();
        let mut axes = [0, 1].map(|_| Axis { near: [[0; LANES]; 2], weights: [0.0; LANES] });
        for (index, axis) in axes.iter_mut().enumerate().take(self.rank) {
            let words = &places.points[index];
            let mode = if buffer { AddressMode::Border } else { self.modes[index] };
            if places.integer {
                let indices = words.map(|word| i64::from(word.cast_signed()));
                axis.near[0] = indices.map(|at| mode.resolve(at, sizes[index]).unwrap_or(OUTSIDE));
                continue;
            }
            let scale = if self.sampler.normalized_coordinates { sizes[index] as f32 } else { 1.0 };
            let points = words.map(|word| f32::from_bits(word) * scale);
            if filters {
                axis.filter(&points, mode, sizes[index]);
            } else if mode == AddressMode::Clamp {
                axis.near[0] = points.map(|point| clamped(point, sizes[index]));
            } else {
                axis.near[0] = points.map(|at| mode.resolve(index_of(at), sizes[index]).unwrap_or(OUTSIDE));
            }
        }
        let mut slices = [0; LANES];
        for (slice, layer) in slices.iter_mut().zip(places.layers) {
            *slice = u64::from(layer.min(sizes[2] - 1)) * level.slice;
        }
        let mut result = [[0; LANES]; 4];
        for (channel, words) in result.iter_mut().enumerate().take(self.format.channels as usize) {
            let [x, y] = &axes;
            let read = |x: usize, y: usize| {
                self.read_channel(level, &axes[0].near[x], &axes[1].near[y], &slices, channel)
            };
            *words = match (filters, self.rank) {
                (false, _) => read(0, 0),
                (true, 1) => between(&read(0, 0), &read(1, 0), &x.weights),
                (true, _) => {
                    let low = between(&read(0, 0), &read(0, 1), &y.weights);
                    let high = between(&read(1, 0), &read(1, 1), &y.weights);
                    between(&low, &high, &x.weights)
                }
            };
        }
        result
    }

    /// Reads a channel of one texel per lane.
    #[inline(always)]
    fn read_channel(
        &self,
        level: &Level,
        x: &Words,
        y: &Words,
        slices: &[u64; LANES],
        channel: usize,
    ) -> Words {
        let size = u64::from(self.format.bytes());
        let start = level.base + channel as u64 * u64::from(self.format.channel.bytes());
        let buffer = matches!(&self.source, Source::Linear(linear) if linear.buffer);
        let outside = if buffer { 0 } else { self.border()[channel] };
        let mut words = [outside; LANES];
        for lane in 0..LANES {
            let (x, y) = (x[lane], y[lane]);
            if x >= level.extent.width || y >= level.extent.height {
                continue;
            }
            let at = start + slices[lane] + u64::from(y) * level.pitch + u64::from(x) * size;
            // SAFETY: the texel is inside the level, whose memory the texture keeps; kernels may write it at the same
            // time.
            words[lane] = unsafe {
                match self.read.channel {
                    Channel::F32 | Channel::U32 | Channel::S32 => (at as *const u32).read_unaligned(),
                    Channel::Unorm8 => (f32::from((at as *const u8).read()) / 255.0).to_bits(),
                    _ => self.read.one_channel().decode_at(at as *const u8)[0],
                }
            };
        }
        words
    }
}

impl Axis {
    /// The texels on both sides of each point.
    #[inline(always)]
    fn filter(&mut self, points: &[f32; LANES], mode: AddressMode, size: u32) {
        let mut floors = [0.0; LANES];
        for lane in 0..LANES {
            let shifted = points[lane] - 0.5;
            let floor = shifted.floor();
            let fraction = shifted - floor;
            // False for NaN, too.
            let weight = if fraction < 2.0 { (fraction * 256.0 + 0.5).floor() / 256.0 } else { 0.0 };
            self.weights[lane] = weight;
            floors[lane] = floor;
        }
        if mode == AddressMode::Clamp {
            for (lane, floor) in floors.into_iter().enumerate() {
                self.near[0][lane] = clamped(floor, size);
                self.near[1][lane] = clamped(if floor < FAR { floor + 1.0 } else { floor }, size);
            }
            return;
        }
        for (lane, floor) in floors.into_iter().enumerate() {
            let base = index_of(floor);
            self.near[0][lane] = mode.resolve(base, size).unwrap_or(OUTSIDE);
            self.near[1][lane] = mode.resolve(base + 1, size).unwrap_or(OUTSIDE);
        }
    }
}

/// The texel of a point whose axis ends at its edges.
#[inline(always)]
fn clamped(point: f32, size: u32) -> u32 {
    let number = if point > 0.0 { if point < FAR { point } else { FAR } } else { 0.0 };
    // SAFETY: a number between 0 and 2^30.
    let index: i32 = unsafe { number.to_int_unchecked() };
    index.min((size - 1).cast_signed()).cast_unsigned()
}

/// As `mix` of single texels.
#[inline(always)]
fn between(from: &Words, to: &Words, weights: &[f32; LANES]) -> Words {
    let mut result = [0; LANES];
    for lane in 0..LANES {
        let (low, high, weight) = (f32::from_bits(from[lane]), f32::from_bits(to[lane]), weights[lane]);
        let mixed = ((1.0 - weight) * low + weight * high).to_bits();
        result[lane] = if weight == 0.0 { from[lane] } else { mixed };
    }
    result
}
