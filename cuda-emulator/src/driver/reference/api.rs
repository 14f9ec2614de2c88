// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of texture and surface references (`reference`).

use std::ffi::c_int;

use cuda_abi::{CUDA_ARRAY_DESCRIPTOR, CUDA_RESOURCE_DESC};

use crate::driver::array::{self, CUarray, CUmipmappedArray};
use crate::driver::context;
use crate::driver::device::attributes::PITCH_ALIGNMENT;
use crate::driver::device::{self, CUdeviceptr};
use crate::driver::ffi::{In, Out};
use crate::driver::module::function::{self, CUfunction};
use crate::driver::reference::{self, CUsurfref, CUtexref, TextureState};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::texture::{
    FLAGS, RESOURCE_ARRAY, RESOURCE_LINEAR, RESOURCE_MIPMAPPED_ARRAY, RESOURCE_PITCH_2D,
};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
/// CU_TRSA_OVERRIDE_FORMAT
const OVERRIDE_FORMAT: u32 = 1;
/// The possible numbers of channels of a texel.
const CHANNELS: [u32; 3] = [1, 2, 4];
/// CUaddress_mode and CUfilter_mode. Like an H200's driver, these calls ignore unknown modes.
const ADDRESS_MODES: u32 = 4;
const FILTER_MODES: u32 = 2;

fn bind_array(handle: CUtexref, array: CUarray, flags: u32) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let found = array::find(array)?;
    if flags != OVERRIDE_FORMAT {
        return Err(INVALID);
    }
    reference.change(|state| {
        state.format = (found.descriptor.format, found.descriptor.channels);
        state.bound = Some(CUDA_RESOURCE_DESC::new(RESOURCE_ARRAY, [array.0 as u64, 0, 0, 0, 0]));
        Ok(())
    })
}

fn bind_mipmapped(handle: CUtexref, array: CUmipmappedArray, flags: u32) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let found = array::find_mipmapped(array)?;
    if flags != OVERRIDE_FORMAT {
        return Err(INVALID);
    }
    reference.change(|state| {
        state.format = (found.descriptor.format, found.descriptor.channels);
        state.bound = Some(CUDA_RESOURCE_DESC::new(RESOURCE_MIPMAPPED_ARRAY, [array.0 as u64, 0, 0, 0, 0]));
        Ok(())
    })
}

fn packed(format: u32, channels: u32) -> u64 {
    u64::from(format) | u64::from(channels) << 32
}

/// Memory that begins between two possible texture addresses is bound from the lower one, and the reader adds the
/// rest.
fn bind_memory(offset: Out<usize>, handle: CUtexref, address: CUdeviceptr, bytes: usize) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let (_, range) = device::range_of(address).ok_or(INVALID)?;
    let rest = address % PITCH_ALIGNMENT;
    let whole = (bytes as u64).checked_add(rest).ok_or(INVALID)?;
    if bytes == 0 || !range.holds(address - rest, whole) || rest != 0 && offset.is_null() {
        return Err(INVALID);
    }
    reference.change(|state| {
        let format = packed(state.format.0, state.format.1);
        state.bound = Some(CUDA_RESOURCE_DESC::new(RESOURCE_LINEAR, [address - rest, format, whole, 0, 0]));
        Ok(())
    })?;
    offset.set_if_wanted(rest as usize);
    Ok(())
}

fn bind_rows(
    handle: CUtexref,
    descriptor: In<CUDA_ARRAY_DESCRIPTOR>,
    address: CUdeviceptr,
    pitch: usize,
) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let descriptor = descriptor.get()?;
    let format = packed(descriptor.format, descriptor.channels);
    let (width, height) = (descriptor.width, descriptor.height);
    let body = [address, format, width as u64, height as u64, pitch as u64];
    let resource = CUDA_RESOURCE_DESC::new(RESOURCE_PITCH_2D, body);
    reference.change(|state| {
        state.format = (descriptor.format, descriptor.channels);
        state.bound = Some(resource);
        // Errors of the memory do not depend on the read mode.
        crate::driver::texture::check_memory(&resource)
    })
}

fn set_format(handle: CUtexref, format: u32, channels: c_int) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let channels = u32::try_from(channels).ok().filter(|channels| CHANNELS.contains(channels));
    let channels = channels.ok_or(INVALID)?;
    // An unknown format is ignored, as modes are.
    if array::format_of(format, channels).is_err() {
        return Ok(());
    }
    reference.change(|state| {
        state.format = (format, channels);
        if let Some(bound) = state.bound.as_mut().filter(|bound| bound.kind == RESOURCE_LINEAR) {
            bound.words[1] = packed(format, channels);
        }
        Ok(())
    })
}

fn set(handle: CUtexref, valid: bool, change: impl FnOnce(&mut TextureState)) -> CuResult<()> {
    let reference = reference::find(handle)?;
    reference.change(|state| {
        change(state);
        if valid { Ok(()) } else { Err(INVALID) }
    })
}

fn axis(dimension: c_int) -> Option<usize> {
    usize::try_from(dimension).ok().filter(|dimension| *dimension < 3)
}

fn set_address_mode(handle: CUtexref, dimension: c_int, mode: u32) -> CuResult<()> {
    let axis = axis(dimension);
    set(handle, axis.is_some(), |state| {
        if let Some(axis) = axis.filter(|_| mode < ADDRESS_MODES) {
            state.texture.address_modes[axis] = mode;
        }
    })
}

fn set_filter_mode(handle: CUtexref, mode: u32) -> CuResult<()> {
    set(handle, true, |state| {
        if mode < FILTER_MODES {
            state.texture.filter_mode = mode;
        }
    })
}

fn set_mipmap_filter_mode(handle: CUtexref, mode: u32) -> CuResult<()> {
    set(handle, mode < FILTER_MODES, |state| state.texture.mipmap_filter_mode = mode)
}

fn set_level_bias(handle: CUtexref, bias: f32) -> CuResult<()> {
    set(handle, true, |state| state.texture.mipmap_level_bias = bias)
}

fn set_level_clamp(handle: CUtexref, least: f32, greatest: f32) -> CuResult<()> {
    set(handle, true, |state| {
        (state.texture.min_mipmap_level_clamp, state.texture.max_mipmap_level_clamp) = (least, greatest)
    })
}

fn set_max_anisotropy(handle: CUtexref, most: u32) -> CuResult<()> {
    set(handle, true, |state| state.texture.max_anisotropy = most)
}

fn set_border_color(handle: CUtexref, color: In<[f32; 4]>) -> CuResult<()> {
    let reference = reference::find(handle)?;
    let color = color.get()?;
    reference.change(|state| {
        state.texture.border_color = color;
        Ok(())
    })
}

fn set_flags(handle: CUtexref, flags: u32) -> CuResult<()> {
    set(handle, flags & !FLAGS == 0, |state| state.texture.flags = flags)
}

/// Stores the value that `value` finds in the state.
fn get<T>(out: Out<T>, handle: CUtexref, value: impl FnOnce(&TextureState) -> Option<T>) -> CuResult<()> {
    let state = reference::find(handle)?.state();
    out.check()?;
    out.set_if_wanted(value(&state).ok_or(INVALID)?);
    Ok(())
}

fn bound(state: &TextureState, kinds: &[u32]) -> Option<u64> {
    state.bound.filter(|bound| kinds.contains(&bound.kind)).map(|bound| bound.words[0])
}

fn get_address(out: Out<CUdeviceptr>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| bound(state, &[RESOURCE_LINEAR, RESOURCE_PITCH_2D]))
}

fn get_array(out: Out<CUarray>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| bound(state, &[RESOURCE_ARRAY]).map(|array| CUarray::new(array as usize)))
}

fn get_mipmapped(out: Out<CUmipmappedArray>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| {
        bound(state, &[RESOURCE_MIPMAPPED_ARRAY]).map(|array| CUmipmappedArray::new(array as usize))
    })
}

fn get_address_mode(out: Out<u32>, handle: CUtexref, dimension: c_int) -> CuResult<()> {
    get(out, handle, |state| axis(dimension).map(|axis| state.texture.address_modes[axis]))
}

fn get_filter_mode(out: Out<u32>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.filter_mode))
}

fn get_mipmap_filter_mode(out: Out<u32>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.mipmap_filter_mode))
}

fn get_level_bias(out: Out<f32>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.mipmap_level_bias))
}

fn get_level_clamp(least: Out<f32>, greatest: Out<f32>, handle: CUtexref) -> CuResult<()> {
    let texture = reference::find(handle)?.state().texture;
    let clamp = [texture.min_mipmap_level_clamp, texture.max_mipmap_level_clamp];
    least.check()?;
    greatest.check()?;
    least.set_if_wanted(clamp[0]);
    greatest.set_if_wanted(clamp[1]);
    Ok(())
}

fn get_max_anisotropy(out: Out<u32>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.max_anisotropy))
}

fn get_border_color(out: Out<[f32; 4]>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.border_color))
}

fn get_flags(out: Out<u32>, handle: CUtexref) -> CuResult<()> {
    get(out, handle, |state| Some(state.texture.flags))
}

fn get_format(format: Out<u32>, channels: Out<c_int>, handle: CUtexref) -> CuResult<()> {
    let state = reference::find(handle)?.state();
    if format.is_null() && channels.is_null() {
        return Err(INVALID);
    }
    format.set_if_wanted(state.format.0);
    channels.set_if_wanted(state.format.1 as c_int);
    Ok(())
}

fn create(out: Out<CUtexref>) -> CuResult<()> {
    context::current()?;
    out.check()?;
    out.set_if_wanted(reference::create());
    Ok(())
}

fn destroy(handle: CUtexref) -> CuResult<()> {
    reference::destroy(handle)
}

fn bind_surface(handle: CUsurfref, array: CUarray, flags: u32) -> CuResult<()> {
    let reference = reference::find_surface(handle)?;
    if flags != 0 {
        array::find(array)?;
        return Err(INVALID);
    }
    reference.bind(array)
}

fn get_surface_array(out: Out<CUarray>, handle: CUsurfref) -> CuResult<()> {
    let array = reference::find_surface(handle)?.array();
    out.check()?;
    if array == CUarray::NULL {
        return Err(INVALID);
    }
    out.set_if_wanted(array);
    Ok(())
}

/// Kernels find their references anyway, so this only checks the arguments.
fn set_parameter(function: CUfunction, _unit: c_int, handle: CUtexref) -> CuResult<()> {
    context::current()?;
    function::find(function)?;
    // Kernels find references by name, independent of the unit.
    reference::find(handle)?.state().bound.map(drop).ok_or(INVALID)
}

crate::driver::ffi::entries! { after_init
    cuTexRefCreate => create(out: Out<CUtexref>);
    cuTexRefDestroy => destroy(reference: CUtexref);
    cuTexRefSetArray => bind_array(reference: CUtexref, array: CUarray, flags: u32);
    cuTexRefSetMipmappedArray => bind_mipmapped(reference: CUtexref, array: CUmipmappedArray, flags: u32);
    cuTexRefSetAddress_v2 => bind_memory(
        offset: Out<usize>, reference: CUtexref, address: CUdeviceptr, bytes: usize);
    cuTexRefSetAddress2D_v2 => bind_rows(
        reference: CUtexref, descriptor: In<CUDA_ARRAY_DESCRIPTOR>, address: CUdeviceptr, pitch: usize);
    cuTexRefSetAddress2D_v3 => bind_rows(
        reference: CUtexref, descriptor: In<CUDA_ARRAY_DESCRIPTOR>, address: CUdeviceptr, pitch: usize);
    cuTexRefSetFormat => set_format(reference: CUtexref, format: u32, channels: c_int);
    cuTexRefSetAddressMode => set_address_mode(reference: CUtexref, dimension: c_int, mode: u32);
    cuTexRefSetFilterMode => set_filter_mode(reference: CUtexref, mode: u32);
    cuTexRefSetMipmapFilterMode => set_mipmap_filter_mode(reference: CUtexref, mode: u32);
    cuTexRefSetMipmapLevelBias => set_level_bias(reference: CUtexref, bias: f32);
    cuTexRefSetMipmapLevelClamp => set_level_clamp(reference: CUtexref, least: f32, greatest: f32);
    cuTexRefSetMaxAnisotropy => set_max_anisotropy(reference: CUtexref, most: u32);
    cuTexRefSetBorderColor => set_border_color(reference: CUtexref, color: In<[f32; 4]>);
    cuTexRefSetFlags => set_flags(reference: CUtexref, flags: u32);
    cuTexRefGetAddress_v2 => get_address(out: Out<CUdeviceptr>, reference: CUtexref);
    cuTexRefGetArray => get_array(out: Out<CUarray>, reference: CUtexref);
    cuTexRefGetMipmappedArray => get_mipmapped(out: Out<CUmipmappedArray>, reference: CUtexref);
    cuTexRefGetAddressMode => get_address_mode(out: Out<u32>, reference: CUtexref, dimension: c_int);
    cuTexRefGetFilterMode => get_filter_mode(out: Out<u32>, reference: CUtexref);
    cuTexRefGetFormat => get_format(format: Out<u32>, channels: Out<c_int>, reference: CUtexref);
    cuTexRefGetMipmapFilterMode => get_mipmap_filter_mode(out: Out<u32>, reference: CUtexref);
    cuTexRefGetMipmapLevelBias => get_level_bias(out: Out<f32>, reference: CUtexref);
    cuTexRefGetMipmapLevelClamp => get_level_clamp(least: Out<f32>, greatest: Out<f32>, reference: CUtexref);
    cuTexRefGetMaxAnisotropy => get_max_anisotropy(out: Out<u32>, reference: CUtexref);
    cuTexRefGetBorderColor => get_border_color(out: Out<[f32; 4]>, reference: CUtexref);
    cuTexRefGetFlags => get_flags(out: Out<u32>, reference: CUtexref);
    cuSurfRefSetArray => bind_surface(reference: CUsurfref, array: CUarray, flags: u32);
    cuSurfRefGetArray => get_surface_array(out: Out<CUarray>, reference: CUsurfref);
    cuParamSetTexRef => set_parameter(function: CUfunction, unit: c_int, reference: CUtexref);
}
