// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface objects: conversion of the runtime's descriptions to the driver's and back.

use core::ffi::{c_int, c_uint};
use core::ptr;

use crate::abi::driver::{CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, Extended};
use crate::abi::shared::{
    LinearResource, Pitch2DResource, TEXTURE_DESC_BYTES, cudaChannelFormatDesc, cudaTextureDesc,
};
use crate::abi::version::{self, cudaResourceDesc};
use crate::abi::{cudaResourceViewDesc, cudaSurfaceObject_t, cudaTextureObject_t};
use crate::error::{
    Result, cudaErrorInvalidFilterSetting, cudaErrorInvalidNormSetting, cudaErrorInvalidResourceHandle,
    cudaErrorInvalidValue,
};
use crate::memory::{address, channel_desc_of};
use crate::pointers::{In, Out, not_null, read_start, store_start};
use crate::texture::channel::{
    Format, cudaChannelFormatKindFloat, cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned,
};
use crate::{driver, state};

pub mod channel;

const RESOURCE_ARRAY: c_uint = 0;
const RESOURCE_MIPMAPPED_ARRAY: c_uint = 1;
const RESOURCE_LINEAR: c_uint = 2;
const RESOURCE_PITCH_2D: c_uint = 3;

const READ_ELEMENT_TYPE: c_uint = 0;
const READ_NORMALIZED_FLOAT: c_uint = 1;
const FILTER_LINEAR: c_uint = 1;

const CU_TRSF_READ_AS_INTEGER: c_uint = 0x01;
const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 0x02;
const CU_TRSF_SRGB: c_uint = 0x10;
const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: c_uint = 0x20;
const CU_TRSF_SEAMLESS_CUBEMAP: c_uint = 0x40;

api! {
    fn cudaCreateTextureObject(
        texture: *mut cudaTextureObject_t, resource: In<cudaResourceDesc>, desc: *const cudaTextureDesc,
        view: *const cudaResourceViewDesc,
    ) {} => create(texture, resource, desc, TEXTURE_DESC_BYTES, view);

    fn cudaDestroyTextureObject(texture: cudaTextureObject_t) {
        state::context()?;
        if texture == 0 {
            return state::whole_context().map(drop);
        }
    } => driver::cuTexObjectDestroy(texture);

    fn cudaGetTextureObjectResourceDesc(resource: Out<cudaResourceDesc>, texture: cudaTextureObject_t) {
        resource.check()?;
        state::context()?;
        let mut answer = CUDA_RESOURCE_DESC::ZERO;
        // SAFETY: `answer` is a local; the program promises a live texture.
        unsafe { driver::cuTexObjectGetResourceDesc(&mut answer, texture) }?;
        resource.set(resource_from_driver(&answer)?)
    }

    fn cudaGetTextureObjectTextureDesc(desc: *mut cudaTextureDesc, texture: cudaTextureObject_t) {
    } => describe(desc, TEXTURE_DESC_BYTES, texture);

    fn cudaGetTextureObjectResourceViewDesc(view: *mut cudaResourceViewDesc, texture: cudaTextureObject_t) {
        not_null(view)?;
        state::context()?;
        let mut answer = Extended::<112>::new();
        // SAFETY: `answer` is a local with room for the driver's view; the program promises a live texture.
        unsafe { driver::cuTexObjectGetResourceViewDesc(answer.as_mut_ptr(), texture) }?;
        // SAFETY: not null, so by the program's promise it has room for the runtime's view.
        unsafe { answer.store(view, version::RESOURCE_VIEW_BYTES) };
        Ok(())
    }

    fn cudaCreateSurfaceObject(surface: *mut cudaSurfaceObject_t, resource: In<cudaResourceDesc>) {
        not_null(surface)?;
        let resource = resource.get()?;
        state::context()?;
    } => driver::cuSurfObjectCreate(surface, &resource_to_driver(&resource)?);

    fn cudaDestroySurfaceObject(surface: cudaSurfaceObject_t) {
        state::context()?;
        if surface == 0 {
            return state::whole_context().map(drop);
        }
    } => driver::cuSurfObjectDestroy(surface);

    fn cudaGetSurfaceObjectResourceDesc(resource: Out<cudaResourceDesc>, surface: cudaSurfaceObject_t) {
        resource.check()?;
        state::context()?;
        let mut answer = CUDA_RESOURCE_DESC::ZERO;
        // SAFETY: `answer` is a local; the program promises a live surface.
        unsafe { driver::cuSurfObjectGetResourceDesc(&mut answer, surface) }?;
        resource.set(resource_from_driver(&answer)?)
    }
}

/// Creates a texture from a description of `bytes` bytes.
///
/// # Safety
/// `texture` is null or valid for a write, `desc` null or valid for reading `bytes` bytes, and `view` null or valid.
pub unsafe fn create(
    texture: *mut cudaTextureObject_t,
    resource: In<cudaResourceDesc>,
    desc: *const cudaTextureDesc,
    bytes: usize,
    view: *const cudaResourceViewDesc,
) -> Result {
    let resource = resource.get()?;
    state::context()?;
    let driver_resource = resource_to_driver(&resource)?;
    // SAFETY: null or `bytes` bytes by this function's contract; the struct consists of numbers.
    let desc = unsafe { read_start(desc, bytes) }.map_err(|_| cudaErrorInvalidResourceHandle)?;
    check_reading(&resource, &desc)?;
    let view = match view.is_null() {
        true => None,
        // SAFETY: a view by this function's contract, which has this size.
        false => Some(unsafe { Extended::<112>::of(view, version::RESOURCE_VIEW_BYTES) }?),
    };
    let view = view.as_ref().map_or(ptr::null(), Extended::as_ptr);
    // SAFETY: `texture` is as the driver wants it by this function's contract; the others are locals.
    unsafe { driver::cuTexObjectCreate(texture, &driver_resource, &texture_to_driver(&desc), view) }
}

/// Stores `bytes` bytes of a texture's description.
///
/// # Safety
/// `desc` is null or valid for writing `bytes` bytes; `texture` is live.
pub unsafe fn describe(desc: *mut cudaTextureDesc, bytes: usize, texture: cudaTextureObject_t) -> Result {
    not_null(desc)?;
    state::context()?;
    let mut answer = CUDA_TEXTURE_DESC::ZERO;
    // SAFETY: `answer` is a local; the texture is live by this function's contract.
    unsafe { driver::cuTexObjectGetTextureDesc(&mut answer, texture) }?;
    // SAFETY: null or room for `bytes` bytes by this function's contract.
    unsafe { store_start(desc, &texture_from_driver(&answer), bytes) }
}

fn resource_to_driver(resource: &cudaResourceDesc) -> Result<CUDA_RESOURCE_DESC> {
    // SAFETY: all members are plain data; `resType` says which one the program filled.
    let mut answer = unsafe {
        match resource.resType {
            RESOURCE_ARRAY if resource.res.array.is_null() => return Err(cudaErrorInvalidResourceHandle),
            RESOURCE_ARRAY => CUDA_RESOURCE_DESC::array(address(resource.res.array)),
            RESOURCE_MIPMAPPED_ARRAY => CUDA_RESOURCE_DESC::mipmapped_array(address(resource.res.mipmap)),
            RESOURCE_LINEAR => {
                let LinearResource { devPtr, desc, sizeInBytes } = resource.res.linear;
                let Format { code, channels } = Format::of(&desc)?;
                CUDA_RESOURCE_DESC::linear(address(devPtr), code, channels, sizeInBytes as u64)
            }
            RESOURCE_PITCH_2D => {
                let Pitch2DResource { devPtr, desc, width, height, pitchInBytes } = resource.res.pitch2D;
                let Format { code, channels } = Format::of(&desc)?;
                let size = [width, height, pitchInBytes].map(|size| size as u64);
                CUDA_RESOURCE_DESC::pitched(address(devPtr), code, channels, size)
            }
            _ => return Err(cudaErrorInvalidValue),
        }
    };
    answer.flags = version::resource_flags(resource);
    Ok(answer)
}

fn resource_from_driver(resource: &CUDA_RESOURCE_DESC) -> Result<cudaResourceDesc> {
    let mut answer = version::empty_resource_desc(resource.kind, resource.flags);
    let [first, format, width, height, pitch, ..] = resource.words;
    let format = Format { code: format as c_uint, channels: (format >> 32) as c_uint };
    match resource.kind {
        RESOURCE_ARRAY => answer.res.array = ptr::with_exposed_provenance_mut(first as usize),
        RESOURCE_MIPMAPPED_ARRAY => answer.res.mipmap = ptr::with_exposed_provenance_mut(first as usize),
        RESOURCE_LINEAR => {
            answer.res.linear = LinearResource {
                devPtr: ptr::with_exposed_provenance_mut(first as usize),
                desc: format.desc()?,
                sizeInBytes: width as usize,
            };
        }
        RESOURCE_PITCH_2D => {
            answer.res.pitch2D = Pitch2DResource {
                devPtr: ptr::with_exposed_provenance_mut(first as usize),
                desc: format.desc()?,
                width: width as usize,
                height: height as usize,
                pitchInBytes: pitch as usize,
            };
        }
        _ => return Err(cudaErrorInvalidValue),
    }
    Ok(answer)
}

/// Refuses normalised reads of elements without a range, and linear filtering of elements that are not read as floats.
fn check_reading(resource: &cudaResourceDesc, desc: &cudaTextureDesc) -> Result {
    let (linear, normalized) = (desc.filterMode == FILTER_LINEAR, desc.readMode == READ_NORMALIZED_FLOAT);
    if linear || normalized {
        return check_element(&element_of(resource)?, linear, normalized);
    }
    // The driver checks resources whose element type is unknown here.
    element_of(resource).map_or(Ok(()), |element| check_element(&element, linear, normalized))
}

fn element_of(resource: &cudaResourceDesc) -> Result<cudaChannelFormatDesc> {
    // SAFETY: all members are plain data; `resType` says which one the program filled.
    unsafe {
        match resource.resType {
            RESOURCE_ARRAY => channel_desc_of(resource.res.array),
            RESOURCE_MIPMAPPED_ARRAY => {
                let mut level = ptr::null_mut();
                driver::cuMipmappedArrayGetLevel(&mut level, resource.res.mipmap, 0)?;
                channel_desc_of(level)
            }
            RESOURCE_LINEAR => Ok(resource.res.linear.desc),
            RESOURCE_PITCH_2D => Ok(resource.res.pitch2D.desc),
            _ => Err(cudaErrorInvalidValue),
        }
    }
}

fn check_element(element: &cudaChannelFormatDesc, linear: bool, normalized: bool) -> Result {
    let is_float = element.f == cudaChannelFormatKindFloat;
    // Block-compressed formats decode to half floats (6) or normalised numbers (the others).
    if let Some(normal) = compressed(element.f) {
        return if normalized == normal { Ok(()) } else { Err(cudaErrorInvalidNormSetting) };
    }
    let is_integer = element.f == cudaChannelFormatKindSigned || element.f == cudaChannelFormatKindUnsigned;
    let has_range = is_integer && element.x <= 16;
    if linear && is_integer && !(normalized && has_range) {
        return Err(cudaErrorInvalidFilterSetting);
    }
    if normalized && (is_float || is_integer) && !has_range {
        return Err(cudaErrorInvalidNormSetting);
    }
    Ok(())
}

/// Returns whether a block-compressed kind is read as normalised numbers; `None` for other kinds.
fn compressed(kind: c_uint) -> Option<bool> {
    match kind {
        17..=26 | 29 | 30 => Some(true),
        27 | 28 => Some(false),
        _ => None,
    }
}

fn texture_to_driver(desc: &cudaTextureDesc) -> CUDA_TEXTURE_DESC {
    let flag = |set: bool, flag: c_uint| if set { flag } else { 0 };
    CUDA_TEXTURE_DESC {
        address_modes: desc.addressMode,
        filter_mode: desc.filterMode,
        flags: flag(desc.readMode == READ_ELEMENT_TYPE, CU_TRSF_READ_AS_INTEGER)
            | flag(desc.normalizedCoords != 0, CU_TRSF_NORMALIZED_COORDINATES)
            | flag(desc.sRGB != 0, CU_TRSF_SRGB)
            | flag(desc.disableTrilinearOptimization != 0, CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION)
            | flag(desc.seamlessCubemap != 0, CU_TRSF_SEAMLESS_CUBEMAP),
        max_anisotropy: desc.maxAnisotropy,
        mipmap_filter_mode: desc.mipmapFilterMode,
        mipmap_level_bias: desc.mipmapLevelBias,
        min_mipmap_level_clamp: desc.minMipmapLevelClamp,
        max_mipmap_level_clamp: desc.maxMipmapLevelClamp,
        border_color: desc.borderColor,
        reserved: [0; 12],
    }
}

fn texture_from_driver(desc: &CUDA_TEXTURE_DESC) -> cudaTextureDesc {
    let flag = |flag: c_uint| c_int::from(desc.flags & flag != 0);
    cudaTextureDesc {
        addressMode: desc.address_modes,
        filterMode: desc.filter_mode,
        readMode: if flag(CU_TRSF_READ_AS_INTEGER) != 0 { READ_ELEMENT_TYPE } else { READ_NORMALIZED_FLOAT },
        sRGB: flag(CU_TRSF_SRGB),
        borderColor: desc.border_color,
        normalizedCoords: flag(CU_TRSF_NORMALIZED_COORDINATES),
        maxAnisotropy: desc.max_anisotropy,
        mipmapFilterMode: desc.mipmap_filter_mode,
        mipmapLevelBias: desc.mipmap_level_bias,
        minMipmapLevelClamp: desc.min_mipmap_level_clamp,
        maxMipmapLevelClamp: desc.max_mipmap_level_clamp,
        disableTrilinearOptimization: flag(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
        seamlessCubemap: flag(CU_TRSF_SEAMLESS_CUBEMAP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texture_descriptions_survive_the_way_to_the_driver_and_back() {
        let desc = cudaTextureDesc {
            addressMode: [1, 2, 3],
            filterMode: FILTER_LINEAR,
            readMode: READ_NORMALIZED_FLOAT,
            sRGB: 1,
            borderColor: [1.0, 2.0, 3.0, 4.0],
            normalizedCoords: 1,
            maxAnisotropy: 5,
            mipmapFilterMode: 1,
            mipmapLevelBias: 0.5,
            minMipmapLevelClamp: 1.5,
            maxMipmapLevelClamp: 2.5,
            disableTrilinearOptimization: 1,
            seamlessCubemap: 1,
        };
        let back = texture_from_driver(&texture_to_driver(&desc));
        assert_eq!(format!("{back:?}"), format!("{desc:?}"));
        assert_eq!(texture_to_driver(&desc).flags, 0x72);
        assert_eq!(texture_to_driver(&cudaTextureDesc::default()).flags, CU_TRSF_READ_AS_INTEGER);
    }

    /// Results of NVIDIA's runtime 13.0 on an H200: kind, bits, the results of point and linear filtering, first for
    /// element reads, then for normalised reads.
    #[test]
    fn readings_that_make_no_sense_are_refused() {
        let (filter, norm) = (Err(cudaErrorInvalidFilterSetting), Err(cudaErrorInvalidNormSetting));
        let answers = [
            (cudaChannelFormatKindSigned, 8, [Ok(()), filter, Ok(()), Ok(())]),
            (cudaChannelFormatKindUnsigned, 16, [Ok(()), filter, Ok(()), Ok(())]),
            (cudaChannelFormatKindFloat, 16, [Ok(()), Ok(()), norm, norm]),
            (cudaChannelFormatKindUnsigned, 32, [Ok(()), filter, norm, filter]),
            (cudaChannelFormatKindFloat, 32, [Ok(()), Ok(()), norm, norm]),
            (17, 8, [norm, norm, Ok(()), Ok(())]),
            (28, 16, [Ok(()), Ok(()), norm, norm]),
        ];
        for (f, x, expected) in answers {
            let element = cudaChannelFormatDesc { x, y: 0, z: 0, w: 0, f };
            let given = [(false, false), (true, false), (false, true), (true, true)];
            assert_eq!(
                given.map(|(linear, normalized)| check_element(&element, linear, normalized)),
                expected,
                "{element:?}"
            );
        }
    }
}
