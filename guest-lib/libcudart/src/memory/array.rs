// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays and mipmapped arrays.

use core::ffi::{c_int, c_uint};

use crate::abi::driver::CUDA_ARRAY3D_DESCRIPTOR;
use crate::abi::shared::{cudaChannelFormatDesc, cudaExtent};
use crate::abi::{cudaArray_t, cudaArrayMemoryRequirements, cudaArraySparseProperties, cudaMipmappedArray_t};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::pointers::{In, Out, not_null};
use crate::texture::channel::{Format, Unit};
use crate::{driver, state};

/// Maximum number of levels of a mipmapped array.
const MAX_LEVELS: c_uint = 32;

api! {
    fn cudaMallocArray(
        array: *mut cudaArray_t, desc: In<cudaChannelFormatDesc>, width: usize, height: usize,
        flags: c_uint,
    ) {
        not_null(array)?;
        state::context()?;
        let descriptor = describe(&desc.get()?, cudaExtent { width, height, depth: 0 }, flags)?;
    } => driver::cuArray3DCreate_v2(array, &descriptor);

    fn cudaMalloc3DArray(
        array: *mut cudaArray_t, desc: In<cudaChannelFormatDesc>, extent: cudaExtent, flags: c_uint,
    ) {
        not_null(array)?;
        state::context()?;
        let descriptor = describe(&desc.get()?, extent, flags)?;
    } => driver::cuArray3DCreate_v2(array, &descriptor);

    fn cudaFreeArray(array: cudaArray_t) {
        state::context()?;
        if array.is_null() {
            return Ok(());
        }
    } => driver::cuArrayDestroy(array);

    fn cudaArrayGetInfo(
        desc: Out<cudaChannelFormatDesc>, extent: Out<cudaExtent>, flags: Out<c_uint>, array: cudaArray_t,
    ) {
        state::context()?;
        let descriptor = descriptor(array)?;
        if !desc.is_null() {
            desc.set(channel_desc(&descriptor)?)?;
        }
        if !extent.is_null() {
            let (width, height, depth) = (descriptor.width, descriptor.height, descriptor.depth);
            extent.set(cudaExtent { width, height, depth })?;
        }
        if flags.is_null() { Ok(()) } else { flags.set(descriptor.flags) }
    }

    fn cudaGetChannelDesc(desc: Out<cudaChannelFormatDesc>, array: cudaArray_t) {
        desc.check()?;
        state::context()?;
        desc.set(channel_desc_of(array)?)
    }

    fn cudaArrayGetPlane(plane: *mut cudaArray_t, array: cudaArray_t, index: c_uint) {
        state::context()?;
    } => driver::cuArrayGetPlane(plane, array, index);

    fn cudaArrayGetMemoryRequirements(
        requirements: *mut cudaArrayMemoryRequirements, array: cudaArray_t, device: c_int,
    ) {
        let device = state::context()?.device(device).map_err(|_| cudaErrorInvalidValue)?.handle;
    } => driver::cuArrayGetMemoryRequirements(requirements, array, device);

    fn cudaArrayGetSparseProperties(properties: *mut cudaArraySparseProperties, array: cudaArray_t) {
        state::context()?;
    } => driver::cuArrayGetSparseProperties(properties, array);

    fn cudaMallocMipmappedArray(
        array: *mut cudaMipmappedArray_t, desc: In<cudaChannelFormatDesc>, extent: cudaExtent,
        levels: c_uint, flags: c_uint,
    ) {
        not_null(array)?;
        state::context()?;
        if levels > MAX_LEVELS {
            return Err(cudaErrorInvalidValue);
        }
        let descriptor = describe(&desc.get()?, extent, flags)?;
    } => driver::cuMipmappedArrayCreate(array, &descriptor, levels);

    fn cudaFreeMipmappedArray(array: cudaMipmappedArray_t) {
        state::context()?;
        if array.is_null() {
            return Ok(());
        }
    } => driver::cuMipmappedArrayDestroy(array);

    fn cudaGetMipmappedArrayLevel(level_array: *mut cudaArray_t, array: cudaMipmappedArray_t, level: c_uint) {
        not_null(level_array)?;
        state::context()?;
    } => driver::cuMipmappedArrayGetLevel(level_array, array, level);

    fn cudaMipmappedArrayGetMemoryRequirements(
        requirements: *mut cudaArrayMemoryRequirements, array: cudaMipmappedArray_t, device: c_int,
    ) {
        let device = state::context()?.device(device).map_err(|_| cudaErrorInvalidValue)?.handle;
    } => driver::cuMipmappedArrayGetMemoryRequirements(requirements, array, device);

    fn cudaMipmappedArrayGetSparseProperties(
        properties: *mut cudaArraySparseProperties, array: cudaMipmappedArray_t,
    ) {
        state::context()?;
    } => driver::cuMipmappedArrayGetSparseProperties(properties, array);
}

/// The valid flags of arrays: `cudaArray*` and `CUDA_ARRAY3D_VIDEO_ENCODE_DECODE`. Both APIs use the same numbers.
const ARRAY_FLAGS: c_uint = 0x1ef;

/// Returns the driver's description of an array of these elements. Flags have the same numbers in both APIs.
pub fn describe(
    desc: &cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: c_uint,
) -> Result<CUDA_ARRAY3D_DESCRIPTOR> {
    if extent.width == 0 || flags & !ARRAY_FLAGS != 0 {
        return Err(cudaErrorInvalidValue);
    }
    let format = Format::of(desc)?;
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        width: extent.width,
        height: extent.height,
        depth: extent.depth,
        format: format.code,
        channels: format.channels,
        flags,
    })
}

fn descriptor(array: cudaArray_t) -> Result<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut descriptor = CUDA_ARRAY3D_DESCRIPTOR::ZERO;
    // SAFETY: `descriptor` is valid for the write; the driver judges the handle.
    unsafe { driver::cuArray3DGetDescriptor_v2(&mut descriptor, array) }?;
    Ok(descriptor)
}

/// Returns the type of an array's elements.
pub fn channel_desc_of(array: cudaArray_t) -> Result<cudaChannelFormatDesc> {
    channel_desc(&descriptor(array)?)
}

fn channel_desc(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<cudaChannelFormatDesc> {
    Format { code: descriptor.format, channels: descriptor.channels }.desc()
}

/// Returns the unit in which copies of an array are measured.
pub fn unit(array: cudaArray_t) -> Result<Unit> {
    unit_of(&descriptor(array)?)
}

fn unit_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Unit> {
    Format { code: descriptor.format, channels: descriptor.channels }.unit()
}

/// Returns the number of rows of an array that can be copied, summed over all slices.
pub fn rows(array: cudaArray_t) -> Result<usize> {
    let descriptor = descriptor(array)?;
    let rows = unit_of(&descriptor)?.rows(descriptor.height.max(1));
    rows.checked_mul(descriptor.depth.max(1)).ok_or(cudaErrorInvalidValue)
}

/// Returns the size of one row in bytes, at least 1.
pub fn row_size(array: cudaArray_t) -> Result<usize> {
    let descriptor = descriptor(array)?;
    match unit_of(&descriptor)?.row(descriptor.width) {
        Some(size) if size > 0 => Ok(size),
        _ => Err(cudaErrorInvalidValue),
    }
}
