// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensor maps: the descriptions of tensors for `cp.async.bulk.tensor`.

use std::ffi::c_void;

use crate::driver::ffi::{In, InOut, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::tensor_map::{
    self, ADDRESS_BITS, ALIGNMENT, Element, MAX_BOX, MAX_ELEMENT_STRIDE, MAX_PIXELS, MAX_RANK, MAX_SIZE,
    Region, STRIDE_BITS, TensorMap,
};

/// CUtensorMap
type Map = tensor_map::Words;

/// The bits per element of each CUtensorMapDataType. The last ones are packed.
const BITS: [u64; 16] = [8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6];
const PACKED: u32 = 13;
/// CU_TENSOR_MAP_DATA_TYPE_FLOAT16 and the following types, which have a NaN.
const FLOATS: std::ops::Range<u32> = 6..PACKED;
/// The number of values of CUtensorMapInterleave, CUtensorMapSwizzle (of compute capability 9),
/// CUtensorMapL2promotion and CUtensorMapFloatOOBfill.
const MODES: [u32; 4] = [3, 4, 4, 2];
/// CU_TENSOR_MAP_INTERLEAVE_32B
const INTERLEAVE_32: u32 = 2;

/// The arguments that all kinds of maps have in common.
struct Tensor {
    data_type: u32,
    rank: u32,
    address: *const c_void,
    sizes: In<u64>,
    /// Bytes from one element to the next along each side but the first.
    distances: In<u64>,
    /// Elements from one that is copied to the next, along each side.
    element_distances: In<u32>,
}

fn require(condition: bool) -> CuResult<()> {
    if condition { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn check_map(map: Out<Map>) -> CuResult<()> {
    map.check()?;
    require(map.is_aligned(ALIGNMENT as usize))
}

/// Makes a map of the fields that all kinds of maps have. Checks them by those rules of cuda.h that an H200 enforces. The
/// region of the result is empty.
fn encode(map: Out<Map>, tensor: Tensor, modes: [u32; 4]) -> CuResult<TensorMap> {
    let Tensor { data_type, rank, address, sizes, distances, element_distances } = tensor;
    check_map(map)?;
    let rank = rank as usize;
    require(data_type < BITS.len() as u32 && (1..=MAX_RANK).contains(&rank))?;
    require(modes.iter().zip(MODES).all(|(mode, count)| *mode < count))?;
    let [interleave, swizzle, promotion, fill] = modes;
    require(interleave == 0 || rank >= 3)?;
    require(fill == 0 || FLOATS.contains(&data_type))?;
    let alignment = if interleave == INTERLEAVE_32 || data_type > PACKED { 32 } else { 16 };
    let address = address as u64;
    require(address.is_multiple_of(alignment) && address >> ADDRESS_BITS == 0)?;
    let mut encoded = TensorMap {
        element: Element(data_type),
        rank,
        address,
        sizes: [0; MAX_RANK],
        strides: [0; MAX_RANK - 1],
        element_strides: [0; MAX_RANK],
        interleave,
        swizzle,
        promotion,
        fill,
        region: Region::Tile([0; MAX_RANK]),
    };
    for index in 0..rank {
        let (size, step) = (sizes.at(index)?, element_distances.at(index)?);
        require((1..=MAX_SIZE).contains(&size) && (1..=MAX_ELEMENT_STRIDE).contains(&step))?;
        encoded.sizes[index] = size;
        encoded.element_strides[index] = step;
        if index > 0 {
            let distance = distances.at(index - 1)?;
            require(distance.is_multiple_of(alignment) && distance >> STRIDE_BITS == 0)?;
            encoded.strides[index - 1] = distance;
        }
    }
    let unit = if data_type > PACKED {
        128
    } else if data_type == PACKED {
        2
    } else {
        1
    };
    require(encoded.sizes[0].is_multiple_of(unit))?;
    Ok(encoded)
}

/// Checks that a row of a box fits: `elements` elements of a type.
fn check_row(data_type: u32, elements: u32, [interleave, swizzle, ..]: [u32; 4]) -> CuResult<()> {
    let bits = u64::from(elements) * BITS[data_type as usize];
    require(bits.is_multiple_of(16 * 8))?;
    require(interleave != 0 || swizzle == 0 || bits <= (16 * 8) << swizzle)
}

fn tiled(map: Out<Map>, tensor: Tensor, box_sizes: In<u32>, modes: [u32; 4]) -> CuResult<()> {
    let Tensor { data_type, rank, .. } = tensor;
    let mut encoded = encode(map, tensor, modes)?;
    let mut sides = [0; MAX_RANK];
    for (index, side) in sides[..rank as usize].iter_mut().enumerate() {
        *side = box_sizes.at(index)?;
        require((1..=MAX_BOX).contains(side))?;
    }
    check_row(data_type, sides[0], modes)?;
    encoded.region = Region::Tile(sides);
    map.set_if_wanted(encoded.to_words());
    Ok(())
}

fn im2col(
    map: Out<Map>,
    tensor: Tensor,
    corners: [In<i32>; 2],
    [channels, pixels]: [u32; 2],
    modes: [u32; 4],
) -> CuResult<()> {
    let Tensor { data_type, rank, .. } = tensor;
    let mut encoded = encode(map, tensor, modes)?;
    require(rank >= 3)?;
    // For one, two or three coordinates.
    let limit = [1 << 15, 1 << 7, 1 << 4][rank as usize - 3];
    let mut places = [[0; 3]; 2];
    for index in 0..rank as usize - 2 {
        for (place_of, list) in places.iter_mut().zip(corners) {
            let place = list.at(index)?;
            require((-limit..limit).contains(&place))?;
            place_of[index] = place as i16;
        }
    }
    require((1..=MAX_BOX).contains(&channels) && (1..=MAX_PIXELS).contains(&pixels))?;
    check_row(data_type, channels, modes)?;
    let [lower, upper] = places;
    encoded.region = Region::Columns { lower, upper, channels, pixels };
    map.set_if_wanted(encoded.to_words());
    Ok(())
}

fn im2col_wide(
    map: Out<Map>,
    tensor: Tensor,
    [channels, pixels]: [u32; 2],
    mode: u32,
    modes: [u32; 4],
) -> CuResult<()> {
    let rank = tensor.rank;
    encode(map, tensor, modes)?;
    require(rank >= 3 && mode < 2)?;
    require((1..=MAX_BOX).contains(&channels) && (1..=MAX_PIXELS).contains(&pixels))?;
    // These belong to later devices.
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

fn replace_address(map: InOut<Map>, address: *const c_void) -> CuResult<()> {
    check_map(map)?;
    let address = address as u64;
    require(address != 0 && address.is_multiple_of(16) && address >> ADDRESS_BITS == 0)?;
    let mut words = map.get()?;
    tensor_map::replace_address(&mut words, address);
    map.set_if_wanted(words);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuTensorMapEncodeTiled => tiled(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        box_sizes: In<u32>, element_distances: In<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32) as (
        map, Tensor { data_type, rank, address, sizes, distances, element_distances },
        box_sizes, [interleave, swizzle, promotion, fill]);
    cuTensorMapEncodeIm2col => im2col(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        lower: In<i32>, upper: In<i32>, channels: u32, pixels: u32, element_distances: In<u32>, interleave: u32,
        swizzle: u32, promotion: u32, fill: u32) as (
        map, Tensor { data_type, rank, address, sizes, distances, element_distances }, [lower, upper],
        [channels, pixels], [interleave, swizzle, promotion, fill]);
    cuTensorMapEncodeIm2colWide => im2col_wide(
        map: Out<Map>, data_type: u32, rank: u32, address: *const c_void, sizes: In<u64>, distances: In<u64>,
        lower: i32, upper: i32, channels: u32, pixels: u32, element_distances: In<u32>, interleave: u32,
        mode: u32, swizzle: u32, promotion: u32, fill: u32) as (
        map, Tensor { data_type, rank, address, sizes, distances, element_distances },
        [channels, pixels], mode, [interleave, swizzle, promotion, fill]);
    cuTensorMapReplaceAddress => replace_address(map: InOut<Map>, address: *const c_void);
}
