// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Arrays and mipmapped arrays.

pub mod map;

use cuda_abi::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR};
use virtio_cuda_client::protocol::{ArrayDescriptor, ArrayId, MAX_MIPMAP_LEVELS, MipmappedArrayId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::handles::{Kind, new_handle};
use crate::state::arrays::Array;

fn create(api: Api, out: Out<u64>, descriptor: ArrayDescriptor) -> Result<(), CudaError> {
    out.check()?;
    let context = api.context()?.0;
    let handle = new_handle(Kind::Array);
    let descriptor = calls::cuArray3DCreate_v2(&mut api.call(), ArrayId(handle), descriptor)?;
    api.driver.arrays.add(handle, Array { descriptor, context, owner: 0 });
    out.set(handle)
}

/// Returns the handle of a plane of an array or a level of a mipmapped array. It is the same each time.
fn part(
    api: Api,
    owner: u64,
    number: u32,
    ask: impl FnOnce(ArrayId) -> Result<ArrayDescriptor, CudaError>,
) -> Result<u64, CudaError> {
    if let Some(known) = api.driver.arrays.part(owner, number) {
        return Ok(known);
    }
    let handle = new_handle(Kind::Array);
    let descriptor = ask(ArrayId(handle))?;
    let context = api.context()?.0;
    Ok(api.driver.arrays.add_part(number, handle, Array { descriptor, context, owner }))
}

/// `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const DEFERRED_MAPPING: u32 = 0x80;

/// Refuses null as an invalid value; any other invalid array is an invalid handle.
pub fn not_null(array: u64) -> Result<(), CudaError> {
    if array == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

entry_points! {
    /// Creates a 1D or 2D array.
    call cuArrayCreate_v2(api, pHandle: Out<u64>, pAllocateArray: In<CUDA_ARRAY_DESCRIPTOR>) {
        create(api, pHandle, pAllocateArray.get()?.into())
    }

    /// Creates an array of any kind.
    call cuArray3DCreate_v2(api, pHandle: Out<u64>, pAllocateArray: In<CUDA_ARRAY3D_DESCRIPTOR>) {
        create(api, pHandle, pAllocateArray.get()?.into())
    }

    /// Destroys an array. A level exists as long as its mipmapped array: for a level or a mipmapped array this call
    /// succeeds without an effect.
    call cuArrayDestroy(api, hArray: u64) {
        let arrays = &api.driver.arrays;
        if arrays.check_mipmap(hArray).is_ok() {
            return Ok(());
        }
        let owner = arrays.get(hArray)?.owner;
        if owner != 0 {
            return arrays.check_mipmap(owner);
        }
        calls::cuArrayDestroy(&mut api.call(), ArrayId(hArray))?;
        api.driver.arrays.remove(hArray);
        Ok(())
    }

    /// Describes an array in two dimensions.
    call cuArrayGetDescriptor_v2(api, pArrayDescriptor: Out<CUDA_ARRAY_DESCRIPTOR>, hArray: u64) {
        let ArrayDescriptor { width, height, format, channels, .. } = api.driver.arrays.get(hArray)?.descriptor;
        let (width, height) = (width as usize, height as usize);
        pArrayDescriptor.set(CUDA_ARRAY_DESCRIPTOR { width, height, format, channels })
    }

    /// Describes an array.
    call cuArray3DGetDescriptor_v2(api, pArrayDescriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>, hArray: u64) {
        let of = api.driver.arrays.get(hArray)?.descriptor;
        let (width, height, depth) = (of.width as usize, of.height as usize, of.depth as usize);
        let (format, channels, flags) = (of.format, of.channels, of.flags);
        pArrayDescriptor.set(CUDA_ARRAY3D_DESCRIPTOR { width, height, depth, format, channels, flags })
    }

    /// Returns the memory that an array with deferred mapping needs.
    call cuArrayGetMemoryRequirements(api, memoryRequirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: u64, device: i32) {
        memoryRequirements.check()?;
        not_null(array)?;
        let array_flags = api.driver.arrays.get(array)?.descriptor.flags;
        let device = api.driver.devices.check(device).map_err(|_| CudaError::INVALID_VALUE)?.on_wire();
        // Only arrays with deferred mapping have memory requirements.
        if array_flags & DEFERRED_MAPPING == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let needs = calls::cuArrayGetMemoryRequirements(&mut api.in_context()?, ArrayId(array), device)?;
        memoryRequirements.set(needs.into())
    }

    /// Returns a plane of a multi-planar array.
    call cuArrayGetPlane(api, pPlaneArray: Out<u64>, hArray: u64, planeIdx: u32) {
        pPlaneArray.check()?;
        api.driver.arrays.check(hArray)?;
        let ask = |plane| calls::cuArrayGetPlane(&mut api.in_context()?, ArrayId(hArray), planeIdx, plane);
        pPlaneArray.set(part(api, hArray, planeIdx, ask)?)
    }

    /// Creates a mipmapped array.
    call cuMipmappedArrayCreate(api, pHandle: Out<u64>, pMipmappedArrayDesc: In<CUDA_ARRAY3D_DESCRIPTOR>, numMipmapLevels: u32) {
        pHandle.check()?;
        if numMipmapLevels > MAX_MIPMAP_LEVELS {
            return Err(CudaError::INVALID_VALUE);
        }
        let descriptor: ArrayDescriptor = pMipmappedArrayDesc.get()?.into();
        let context = api.context()?.0;
        let handle = new_handle(Kind::Levels);
        calls::cuMipmappedArrayCreate(&mut api.call(), MipmappedArrayId(handle), descriptor, numMipmapLevels)?;
        api.driver.arrays.add_mipmap(handle, context, descriptor.flags);
        pHandle.set(handle)
    }

    /// Destroys a mipmapped array and its levels.
    call cuMipmappedArrayDestroy(api, hMipmappedArray: u64) {
        api.driver.arrays.check_mipmap(hMipmappedArray)?;
        calls::cuMipmappedArrayDestroy(&mut api.call(), MipmappedArrayId(hMipmappedArray))?;
        api.driver.arrays.remove(hMipmappedArray);
        Ok(())
    }

    /// Returns a level of a mipmapped array, as an array.
    call cuMipmappedArrayGetLevel(api, pLevelArray: Out<u64>, hMipmappedArray: u64, level: u32) {
        pLevelArray.check()?;
        api.driver.arrays.check_mipmap(hMipmappedArray)?;
        let mipmap = MipmappedArrayId(hMipmappedArray);
        let ask = |array| calls::cuMipmappedArrayGetLevel(&mut api.in_context()?, mipmap, level, array);
        pLevelArray.set(part(api, hMipmappedArray, level, ask)?)
    }

    /// Returns the memory that a mipmapped array with deferred mapping needs.
    call cuMipmappedArrayGetMemoryRequirements(api, memoryRequirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, mipmap: u64, device: i32) {
        memoryRequirements.check()?;
        not_null(mipmap)?;
        api.driver.arrays.check_mipmap(mipmap)?;
        let mipmap_flags = api.driver.arrays.flags_of_mipmap(mipmap)?;
        let device = api.driver.devices.check(device).map_err(|_| CudaError::INVALID_VALUE)?.on_wire();
        // Only mipmapped arrays with deferred mapping have memory requirements.
        if mipmap_flags & DEFERRED_MAPPING == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let call = &mut api.in_context()?;
        let needs = calls::cuMipmappedArrayGetMemoryRequirements(call, MipmappedArrayId(mipmap), device)?;
        memoryRequirements.set(needs.into())
    }
}
