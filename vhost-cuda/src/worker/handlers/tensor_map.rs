// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensor maps: only the driver knows how they are encoded. It computes; no memory is looked at here, and on the
//! GPU a kernel reaches with a map what it could reach with the address.

use std::ffi::c_void;

use virtio_cuda_protocol::cuda::{DevicePtr, TensorDescriptor};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, RawTensorMap};

type Map = [u8; 128];

const EMPTY: RawTensorMap = RawTensorMap([0; 128]);

fn check(tensor: &TensorDescriptor) -> CuResult<*mut c_void> {
    if !(1..=tensor.dims.len() as u32).contains(&tensor.rank) {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(std::ptr::without_provenance_mut(tensor.address as usize))
}

/// Encodes a map for tiles.
pub fn cuTensorMapEncodeTiled(
    cx: &mut CallContext<'_>,
    tensor: TensorDescriptor,
    box_dim: [u32; 5],
) -> CuResult<(Map,)> {
    let address = check(&tensor)?;
    let mut map = EMPTY;
    // SAFETY: the arrays have elements for the greatest rank and live across the call; the map has its alignment.
    unsafe {
        cx.gpu().cuTensorMapEncodeTiled(
            &mut map,
            tensor.data_type,
            tensor.rank,
            address,
            tensor.dims.as_ptr(),
            tensor.strides.as_ptr(),
            box_dim.as_ptr(),
            tensor.element_strides.as_ptr(),
            tensor.interleave,
            tensor.swizzle,
            tensor.l2_promotion,
            tensor.oob_fill,
        )
    }?;
    Ok((map.0,))
}

/// Encodes a map for columns of an image.
pub fn cuTensorMapEncodeIm2col(
    cx: &mut CallContext<'_>,
    tensor: TensorDescriptor,
    lower_corner: [i32; 3],
    upper_corner: [i32; 3],
    channels_per_pixel: u32,
    pixels_per_column: u32,
) -> CuResult<(Map,)> {
    let address = check(&tensor)?;
    let mut map = EMPTY;
    // SAFETY: as above; the corners have two elements less than the greatest rank.
    unsafe {
        cx.gpu().cuTensorMapEncodeIm2col(
            &mut map,
            tensor.data_type,
            tensor.rank,
            address,
            tensor.dims.as_ptr(),
            tensor.strides.as_ptr(),
            lower_corner.as_ptr(),
            upper_corner.as_ptr(),
            channels_per_pixel,
            pixels_per_column,
            tensor.element_strides.as_ptr(),
            tensor.interleave,
            tensor.swizzle,
            tensor.l2_promotion,
            tensor.oob_fill,
        )
    }?;
    Ok((map.0,))
}

/// Encodes a map for columns along the width.
pub fn cuTensorMapEncodeIm2colWide(
    cx: &mut CallContext<'_>,
    tensor: TensorDescriptor,
    lower_corner: i32,
    upper_corner: i32,
    channels_per_pixel: u32,
    pixels_per_column: u32,
    mode: i32,
) -> CuResult<(Map,)> {
    let address = check(&tensor)?;
    let mut map = EMPTY;
    // SAFETY: as above.
    unsafe {
        cx.gpu().cuTensorMapEncodeIm2colWide(
            &mut map,
            tensor.data_type,
            tensor.rank,
            address,
            tensor.dims.as_ptr(),
            tensor.strides.as_ptr(),
            lower_corner,
            upper_corner,
            channels_per_pixel,
            pixels_per_column,
            tensor.element_strides.as_ptr(),
            tensor.interleave,
            mode,
            tensor.swizzle,
            tensor.l2_promotion,
            tensor.oob_fill,
        )
    }?;
    Ok((map.0,))
}

/// Puts another address into a map.
pub fn cuTensorMapReplaceAddress(cx: &mut CallContext<'_>, map: Map, address: DevicePtr) -> CuResult<(Map,)> {
    let mut map = RawTensorMap(map);
    // SAFETY: the map has its size and alignment; the address is only put into it.
    unsafe {
        cx.gpu().cuTensorMapReplaceAddress(&mut map, std::ptr::without_provenance_mut(address.0 as usize))
    }?;
    Ok((map.0,))
}
