// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sampler of a texture (CUDA_TEXTURE_DESC).

use super::address::AddressMode;

/// The settings of a texture object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// For each coordinate.
    pub address: [AddressMode; 3],
    /// Linear filtering between texels, else the nearest one.
    pub linear: bool,
    /// Linear filtering between mipmap levels, else the nearest one.
    pub linear_mipmap: bool,
    /// 8 and 16-bit integers are read as floats of 0..=1 or -1..=1 (no CU_TRSF_READ_AS_INTEGER).
    pub normalized_read: bool,
    /// Coordinates go from 0 to 1.
    pub normalized_coordinates: bool,
    /// 8-bit colours become linear when they are read.
    pub srgb: bool,
    /// Added to the level of detail.
    pub level_bias: f32,
    /// The minimum and maximum level of detail.
    pub level_clamp: [f32; 2],
    /// The colour outside of the texture in border mode.
    pub border: [f32; 4],
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler {
            address: [AddressMode::Clamp; 3],
            linear: false,
            linear_mipmap: false,
            normalized_read: false,
            normalized_coordinates: false,
            srgb: false,
            level_bias: 0.0,
            level_clamp: [0.0, 0.0],
            border: [0.0; 4],
        }
    }
}

impl Sampler {
    /// The address mode of a coordinate: without normalised coordinates nothing repeats.
    pub(super) fn mode(&self, coordinate: usize) -> AddressMode {
        match self.address[coordinate] {
            AddressMode::Wrap | AddressMode::Mirror if !self.normalized_coordinates => AddressMode::Clamp,
            mode => mode,
        }
    }
}
