// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Textures and surfaces.

use crate::c_structs;

c_structs! {
    /// `CUDA_RESOURCE_DESC`.
    CUDA_RESOURCE_DESC: 144 {
        /// `CU_RESOURCE_TYPE_*`.
        kind: u32,
        /// Padding.
        pad: u32,
        /// The union in words of eight bytes; all its members are aligned to a word.
        words: [u64; 16],
        /// Zero.
        flags: u32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_TEXTURE_DESC`.
    CUDA_TEXTURE_DESC: 104 {
        /// `CU_TR_ADDRESS_MODE_*` of each dimension.
        address_modes: [u32; 3],
        /// `CU_TR_FILTER_MODE_*`.
        filter_mode: u32,
        /// `CU_TRSF_*` bits.
        flags: u32,
        /// Maximum anisotropy.
        max_anisotropy: u32,
        /// `CU_TR_FILTER_MODE_*` between levels.
        mipmap_filter_mode: u32,
        /// Added to the level.
        mipmap_level_bias: f32,
        /// Minimum level.
        min_mipmap_level_clamp: f32,
        /// Maximum level.
        max_mipmap_level_clamp: f32,
        /// The color outside of the texture, with address mode `BORDER`.
        border_color: [f32; 4],
        /// Zero.
        reserved: [i32; 12],
    }

    /// `CUDA_RESOURCE_VIEW_DESC`.
    CUDA_RESOURCE_VIEW_DESC: 112 {
        /// `CU_RES_VIEW_FORMAT_*`.
        format: u32,
        /// Padding.
        pad: u32,
        /// Width of the view.
        width: usize,
        /// Height of the view.
        height: usize,
        /// Depth of the view.
        depth: usize,
        /// First level.
        first_mipmap_level: u32,
        /// Last level.
        last_mipmap_level: u32,
        /// First layer.
        first_layer: u32,
        /// Last layer.
        last_layer: u32,
        /// Zero.
        reserved: [u32; 16],
    }
}

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

impl CUDA_RESOURCE_DESC {
    /// Returns a resource of this kind whose union begins with `first`; the rest is zero.
    pub fn new<const N: usize>(kind: u32, first: [u64; N]) -> Self {
        const { assert!(N <= 16) };
        let mut words = [0; 16];
        words[..N].copy_from_slice(&first);
        Self { kind, words, ..Self::ZERO }
    }

    /// Describes an array.
    pub fn array(handle: u64) -> Self {
        Self::new(ARRAY, [handle])
    }

    /// Describes a mipmapped array.
    pub fn mipmapped_array(handle: u64) -> Self {
        Self::new(MIPMAPPED_ARRAY, [handle])
    }

    /// Describes `bytes` bytes at `dptr`, with elements of `format` with `channels` channels.
    pub fn linear(dptr: u64, format: u32, channels: u32, bytes: u64) -> Self {
        Self::new(LINEAR, [dptr, pair(format, channels), bytes])
    }

    /// Describes rows at `dptr`. `size` is elements per row, rows, and bytes from row to row.
    pub fn pitched(dptr: u64, format: u32, channels: u32, size: [u64; 3]) -> Self {
        let [width, height, pitch] = size;
        Self::new(PITCH_2D, [dptr, pair(format, channels), width, height, pitch])
    }
}

/// Packs two fields of four bytes into one word.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(second) << 32 | u64::from(first)
}
