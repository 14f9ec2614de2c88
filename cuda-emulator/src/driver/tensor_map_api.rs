// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensor maps: arguments are checked, but no kernel of the emulated device can use one.

use std::ffi::c_void;

use super::ffi::{In, Out};
use super::result::{CUresult, CuResult};

/// CUtensorMap
type Map = [u64; 16];

const MAX_RANK: u32 = 5;
/// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill: how many
/// there are.
const DATA_TYPES: u32 = 16;
const MODES: [u32; 4] = [3, 7, 4, 2];
/// Most elements of a box along one side.
const MAX_BOX: u32 = 256;
/// Greatest distance between elements.
const MAX_ELEMENT_STRIDE: u32 = 8;

/// What all kinds of maps have in common: type, rank, address, sizes, distances, distances of elements.
type Tensor = (u32, u32, *const c_void, In<u64>, In<u64>, In<u32>);

fn require(condition: bool) -> CuResult<()> {
    if condition { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn check(
    map: Out<Map>,
    (data_type, rank, address, sizes, distances, element_distances): Tensor,
    modes: [u32; 4],
) -> CuResult<()> {
    map.check()?;
    require(data_type < DATA_TYPES && (1..=MAX_RANK).contains(&rank))?;
    require(modes.iter().zip(MODES).all(|(mode, count)| *mode < count))?;
    require(!address.is_null() && (address as usize).is_multiple_of(16))?;
    for index in 0..rank as usize {
        require((1..=1 << 32).contains(&sizes.at(index)?))?;
        require((1..=MAX_ELEMENT_STRIDE).contains(&element_distances.at(index)?))?;
        if index > 0 {
            require(distances.at(index - 1)?.is_multiple_of(16))?;
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the C function's")]
fn tiled(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: *const c_void,
    sizes: In<u64>,
    distances: In<u64>,
    box_sizes: In<u32>,
    element_distances: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CuResult<()> {
    let tensor = (data_type, rank, address, sizes, distances, element_distances);
    check(map, tensor, [interleave, swizzle, promotion, fill])?;
    for index in 0..rank as usize {
        require((1..=MAX_BOX).contains(&box_sizes.at(index)?))?;
    }
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

#[allow(clippy::too_many_arguments, reason = "the C function's")]
fn im2col(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: *const c_void,
    sizes: In<u64>,
    distances: In<u64>,
    lower: In<i32>,
    upper: In<i32>,
    channels: u32,
    pixels: u32,
    element_distances: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CuResult<()> {
    let tensor = (data_type, rank, address, sizes, distances, element_distances);
    check(map, tensor, [interleave, swizzle, promotion, fill])?;
    require(rank >= 3 && !lower.is_null() && !upper.is_null())?;
    require((1..=MAX_BOX).contains(&channels) && (1..=1024).contains(&pixels))?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

#[allow(clippy::too_many_arguments, reason = "the C function's")]
fn im2col_wide(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: *const c_void,
    sizes: In<u64>,
    distances: In<u64>,
    _lower: i32,
    _upper: i32,
    channels: u32,
    pixels: u32,
    element_distances: In<u32>,
    interleave: u32,
    mode: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> CuResult<()> {
    let tensor = (data_type, rank, address, sizes, distances, element_distances);
    check(map, tensor, [interleave, swizzle, promotion, fill])?;
    require(rank >= 3 && mode < 2)?;
    require((1..=MAX_BOX).contains(&channels) && (1..=1024).contains(&pixels))?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

fn replace_address(map: *mut Map, address: *const c_void) -> CuResult<()> {
    require(!map.is_null() && !address.is_null())?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

super::ffi::entries! { after_init
    cuTensorMapEncodeTiled => tiled(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        box_sizes: In<u32>, element_distances: In<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32);
    cuTensorMapEncodeIm2col => im2col(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        lower: In<i32>, upper: In<i32>, channels: u32, pixels: u32, element_distances: In<u32>, interleave: u32,
        swizzle: u32, promotion: u32, fill: u32);
    cuTensorMapEncodeIm2colWide => im2col_wide(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        lower: i32, upper: i32, channels: u32, pixels: u32, element_distances: In<u32>, interleave: u32,
        mode: u32, swizzle: u32, promotion: u32, fill: u32);
    cuTensorMapReplaceAddress => replace_address(map: *mut Map, address: *const c_void);
}
