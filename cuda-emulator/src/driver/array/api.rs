// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that create and describe arrays.

use cuda_abi::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR};

use crate::driver::array::{self, CUarray, CUmipmappedArray};
use crate::driver::capture;
use crate::driver::context;
use crate::driver::device::{CUdevice, device};
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};
use crate::texture::{Later, TILE_BYTES};

fn array_create(out: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>) -> CuResult<()> {
    let CUDA_ARRAY_DESCRIPTOR { width, height, format, channels } = descriptor.get()?;
    create(out, CUDA_ARRAY3D_DESCRIPTOR { width, height, depth: 0, format, channels, flags: 0 })
}

fn array_3d_create(out: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>) -> CuResult<()> {
    create(out, descriptor.get()?)
}

fn create(out: Out<CUarray>, descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    out.set_if_wanted(array::create(&context, descriptor)?);
    Ok(())
}

fn array_destroy(handle: CUarray) -> CuResult<()> {
    context::current()?;
    capture::check_safe()?;
    if array::find_mipmapped(CUmipmappedArray::new(handle.0)).is_ok() {
        return Ok(());
    }
    array::find(handle)?;
    // Kernels may still use it.
    context::wait_all_idle();
    array::destroy(handle)
}

fn array_get_descriptor(out: Out<CUDA_ARRAY_DESCRIPTOR>, handle: CUarray) -> CuResult<()> {
    out.check()?;
    let CUDA_ARRAY3D_DESCRIPTOR { width, height, format, channels, .. } = array::find(handle)?.descriptor;
    out.set_if_wanted(CUDA_ARRAY_DESCRIPTOR { width, height, format, channels });
    Ok(())
}

fn array_3d_get_descriptor(out: Out<CUDA_ARRAY3D_DESCRIPTOR>, handle: CUarray) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(array::find(handle)?.descriptor);
    Ok(())
}

fn array_get_memory_requirements(
    out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    handle: CUarray,
    ordinal: CUdevice,
) -> CuResult<()> {
    out.check()?;
    device(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    out.set_if_wanted(requirements(array::find_not_null(handle)?.later.as_ref())?);
    Ok(())
}

/// Only an array that gets its memory later reports its requirements.
fn requirements(later: Option<&Later>) -> CuResult<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
    let later = later.filter(|later| later.tiling.is_none()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        bytes: later.bytes as usize,
        alignment: TILE_BYTES as usize,
        reserved: [0; 4],
    })
}

fn mipmapped_get_memory_requirements(
    out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    handle: CUmipmappedArray,
    ordinal: CUdevice,
) -> CuResult<()> {
    out.check()?;
    device(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if handle == CUmipmappedArray::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(requirements(array::find_mipmapped(handle)?.later.as_ref())?);
    Ok(())
}

/// Only arrays of several planes, which video formats make, have any.
fn array_get_plane(out: Out<CUarray>, handle: CUarray, _plane: u32) -> CuResult<()> {
    out.check()?;
    array::find(handle)?;
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn mipmapped_create(
    out: Out<CUmipmappedArray>,
    descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: u32,
) -> CuResult<()> {
    out.check()?;
    let context = context::current()?;
    capture::check_safe()?;
    out.set_if_wanted(array::create_mipmapped(&context, descriptor.get()?, levels)?);
    Ok(())
}

fn mipmapped_get_level(out: Out<CUarray>, handle: CUmipmappedArray, level: u32) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(array::find_mipmapped(handle)?.level(level)?);
    Ok(())
}

fn mipmapped_destroy(handle: CUmipmappedArray) -> CuResult<()> {
    context::current()?;
    capture::check_safe()?;
    array::find_mipmapped(handle)?;
    context::wait_all_idle();
    array::destroy_mipmapped(handle)
}

crate::driver::ffi::entries! { after_init
    cuArrayCreate_v2 => array_create(out: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>);
    cuArray3DCreate_v2 => array_3d_create(out: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>);
    cuArrayDestroy => array_destroy(array: CUarray);
    cuArrayGetDescriptor_v2 => array_get_descriptor(out: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray);
    cuArray3DGetDescriptor_v2 => array_3d_get_descriptor(out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray);
    cuArrayGetMemoryRequirements => array_get_memory_requirements(
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice);
    cuMipmappedArrayGetMemoryRequirements => mipmapped_get_memory_requirements(
        out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUmipmappedArray, device: CUdevice);
    cuArrayGetPlane => array_get_plane(out: Out<CUarray>, array: CUarray, plane: u32);
    cuMipmappedArrayCreate => mipmapped_create(
        out: Out<CUmipmappedArray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: u32);
    cuMipmappedArrayGetLevel => mipmapped_get_level(out: Out<CUarray>, array: CUmipmappedArray, level: u32);
    cuMipmappedArrayDestroy => mipmapped_destroy(array: CUmipmappedArray);
}
