// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tensor maps. The device encodes them.

use cuda_environment::speed;
use virtio_cuda_client::protocol::{DevicePtr, TensorDescriptor};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::state::tensor_maps::Tiles;

const MAX_RANK: usize = 5;

/// Reads the first `count` elements of an array.
fn elements<T: Copy + Default, const N: usize>(array: In<T>, count: usize) -> Result<[T; N], CudaError> {
    let mut elements = [T::default(); N];
    for (index, element) in elements.iter_mut().enumerate().take(count) {
        *element = array.at(index)?;
    }
    Ok(elements)
}

/// Returns the GPU's address of memory.
fn device_address(api: Api, address: HostPtr) -> u64 {
    let address = address.address() as u64;
    api.device_place(address).device().unwrap_or(address)
}

/// The first parameters, which all kinds have in common.
struct Tensor {
    data_type: i32,
    rank: u32,
    address: HostPtr,
    dims: In<u64>,
    strides: In<u64>,
}

/// The last parameters, which all kinds have in common: interleave, swizzle, L2 promotion, fill.
type Modes = [i32; 4];

fn describe(
    api: Api,
    tensor: Tensor,
    element_strides: In<u32>,
    [interleave, swizzle, l2_promotion, oob_fill]: Modes,
) -> Result<TensorDescriptor, CudaError> {
    let Tensor { data_type, rank, address, dims, strides } = tensor;
    let count = rank as usize;
    if !(1..=MAX_RANK).contains(&count) {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(TensorDescriptor {
        data_type,
        rank,
        address: device_address(api, address),
        dims: elements(dims, count)?,
        strides: elements(strides, count - 1)?,
        element_strides: elements(element_strides, count)?,
        interleave,
        swizzle,
        l2_promotion,
        oob_fill,
    })
}

/// Returns the map for tiles. It depends on nothing but the parameters.
fn encode_tiles(api: Api, tensor: TensorDescriptor, sizes: [u32; 5]) -> Result<[u8; 128], CudaError> {
    let maps = &api.driver.tensor_maps;
    let tiles = Tiles::new(api.current(), &tensor, &sizes).filter(|_| speed::is_on() && !api.is_broken());
    if let Some(map) = tiles.and_then(|tiles| maps.get(&tiles)) {
        return Ok(map);
    }
    let map = calls::cuTensorMapEncodeTiled(&mut api.call(), tensor, sizes)?;
    if let Some(tiles) = tiles {
        maps.add(tiles, map);
    }
    Ok(map)
}

entry_points! {
    /// Encodes a map for tiles.
    call cuTensorMapEncodeTiled(api, tensorMap: Out<[u8; 128]>, tensorDataType: i32, tensorRank: u32, globalAddress: HostPtr,
        globalDim: In<u64>, globalStrides: In<u64>, boxDim: In<u32>, elementStrides: In<u32>,
        interleave: i32, swizzle: i32, l2Promotion: i32, oobFill: i32) {
        tensorMap.check()?;
        let tensor = Tensor { data_type: tensorDataType, rank: tensorRank, address: globalAddress, dims: globalDim, strides: globalStrides };
        let tensor = describe(api, tensor, elementStrides, [interleave, swizzle, l2Promotion, oobFill])?;
        let sizes = elements(boxDim, tensor.rank as usize)?;
        tensorMap.set(encode_tiles(api, tensor, sizes)?)
    }

    /// Encodes a map for columns of an image.
    call cuTensorMapEncodeIm2col(api, tensorMap: Out<[u8; 128]>, tensorDataType: i32, tensorRank: u32, globalAddress: HostPtr,
        globalDim: In<u64>, globalStrides: In<u64>, pixelBoxLowerCorner: In<i32>, pixelBoxUpperCorner: In<i32>,
        channelsPerPixel: u32, pixelsPerColumn: u32, elementStrides: In<u32>,
        interleave: i32, swizzle: i32, l2Promotion: i32, oobFill: i32) {
        tensorMap.check()?;
        let tensor = Tensor { data_type: tensorDataType, rank: tensorRank, address: globalAddress, dims: globalDim, strides: globalStrides };
        let tensor = describe(api, tensor, elementStrides, [interleave, swizzle, l2Promotion, oobFill])?;
        let count = (tensor.rank as usize).checked_sub(2).ok_or(CudaError::INVALID_VALUE)?;
        let (lower, upper) = (elements(pixelBoxLowerCorner, count)?, elements(pixelBoxUpperCorner, count)?);
        let call = &mut api.call();
        tensorMap.set(calls::cuTensorMapEncodeIm2col(call, tensor, lower, upper, channelsPerPixel, pixelsPerColumn)?)
    }

    /// Encodes a map for columns along the width of an image.
    call cuTensorMapEncodeIm2colWide(api, tensorMap: Out<[u8; 128]>, tensorDataType: i32, tensorRank: u32, globalAddress: HostPtr,
        globalDim: In<u64>, globalStrides: In<u64>, pixelBoxLowerCornerWidth: i32, pixelBoxUpperCornerWidth: i32,
        channelsPerPixel: u32, pixelsPerColumn: u32, elementStrides: In<u32>,
        interleave: i32, mode: i32, swizzle: i32, l2Promotion: i32, oobFill: i32) {
        tensorMap.check()?;
        let tensor = Tensor { data_type: tensorDataType, rank: tensorRank, address: globalAddress, dims: globalDim, strides: globalStrides };
        let tensor = describe(api, tensor, elementStrides, [interleave, swizzle, l2Promotion, oobFill])?;
        let (lower, upper) = (pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth);
        let call = &mut api.call();
        tensorMap.set(calls::cuTensorMapEncodeIm2colWide(
            call, tensor, lower, upper, channelsPerPixel, pixelsPerColumn, mode,
        )?)
    }

    /// Replaces the address in a map.
    call cuTensorMapReplaceAddress(api, tensorMap: Out<[u8; 128]>, globalAddress: HostPtr) {
        let map = tensorMap.get()?;
        let address = DevicePtr(device_address(api, globalAddress));
        tensorMap.set(calls::cuTensorMapReplaceAddress(&mut api.call(), map, address)?)
    }
}
