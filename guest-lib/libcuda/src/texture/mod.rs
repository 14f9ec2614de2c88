// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Texture and surface objects. Queries of their descriptions are answered locally.

pub mod reference;
pub mod tensor_map;

use cuda_abi::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};
use virtio_cuda_client::protocol::{ResourceDescriptor, ViewDescriptor};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::state::textures::TextureObject;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

fn on_wire(from: &CUDA_RESOURCE_DESC, api: Api) -> Result<ResourceDescriptor, CudaError> {
    if from.flags != 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let [first, second, width, height, pitch] = [0, 1, 2, 3, 4].map(|word| from.words[word]);
    let empty = ResourceDescriptor { kind: from.kind, ..Default::default() };
    let memory = || ResourceDescriptor {
        // For memory that both sides can access, the GPU's address.
        dptr: api.device_place(first).device().unwrap_or(first),
        format: second as u32,
        channels: (second >> 32) as u32,
        width,
        ..empty
    };
    match from.kind {
        ARRAY | MIPMAPPED_ARRAY if first == 0 => Err(CudaError::INVALID_VALUE),
        ARRAY => {
            api.driver.arrays.check(first)?;
            Ok(ResourceDescriptor { object: first, ..empty })
        }
        MIPMAPPED_ARRAY => {
            api.driver.arrays.check_mipmap(first)?;
            Ok(ResourceDescriptor { object: first, ..empty })
        }
        LINEAR => Ok(memory()),
        PITCH_2D => Ok(ResourceDescriptor { height, pitch, ..memory() }),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

entry_points! {
    /// Creates a texture object.
    call cuTexObjectCreate(api, pTexObject: Out<u64>, pResDesc: In<CUDA_RESOURCE_DESC>, pTexDesc: In<CUDA_TEXTURE_DESC>, pResViewDesc: In<CUDA_RESOURCE_VIEW_DESC>) {
        pTexObject.check()?;
        let context = api.context()?.0;
        let (resource, texture) = (pResDesc.get()?, pTexDesc.get()?);
        let view = if pResViewDesc.is_null() { None } else { Some(pResViewDesc.get()?) };
        let view_on_wire = view.map_or(ViewDescriptor::default(), ViewDescriptor::from);
        let object = calls::cuTexObjectCreate(&mut api.call(), on_wire(&resource, api)?, texture.into(), view_on_wire)?;
        api.driver.textures.textures().insert(object, TextureObject { context, resource, texture, view });
        pTexObject.set(object)
    }

    /// Destroys a texture object.
    call cuTexObjectDestroy(api, texObject: u64) {
        // NVIDIA's driver accepts an invalid object as already destroyed.
        if api.driver.textures.texture(texObject).is_err() {
            return Ok(());
        }
        // Removed first: once the object is destroyed, another thread can get the same value.
        let known = api.driver.textures.textures().remove(&texObject);
        calls::cuTexObjectDestroy(&mut api.in_context()?, texObject).inspect_err(|_| {
            if let Some(known) = known {
                api.driver.textures.textures().insert(texObject, known);
            }
        })
    }

    /// Returns the resource description of a texture object.
    call cuTexObjectGetResourceDesc(api, pResDesc: Out<CUDA_RESOURCE_DESC>, texObject: u64) {
        pResDesc.set(api.driver.textures.texture(texObject)?.resource)
    }

    /// Returns the texture description of a texture object.
    call cuTexObjectGetTextureDesc(api, pTexDesc: Out<CUDA_TEXTURE_DESC>, texObject: u64) {
        pTexDesc.set(api.driver.textures.texture(texObject)?.texture)
    }

    /// Returns the resource view description of a texture object. Fails if there is none.
    call cuTexObjectGetResourceViewDesc(api, pResViewDesc: Out<CUDA_RESOURCE_VIEW_DESC>, texObject: u64) {
        pResViewDesc.set(api.driver.textures.texture(texObject)?.view.ok_or(CudaError::INVALID_VALUE)?)
    }

    /// Creates a surface object for an array.
    call cuSurfObjectCreate(api, pSurfObject: Out<u64>, pResDesc: In<CUDA_RESOURCE_DESC>) {
        pSurfObject.check()?;
        let context = api.context()?.0;
        let resource = pResDesc.get()?;
        if resource.kind != ARRAY {
            return Err(CudaError::INVALID_VALUE);
        }
        let object = calls::cuSurfObjectCreate(&mut api.call(), on_wire(&resource, api)?)?;
        api.driver.textures.surfaces().insert(object, (context, resource));
        pSurfObject.set(object)
    }

    /// Destroys a surface object.
    call cuSurfObjectDestroy(api, surfObject: u64) {
        let Some(known) = api.driver.textures.surfaces().remove(&surfObject) else { return Ok(()) };
        calls::cuSurfObjectDestroy(&mut api.in_context()?, surfObject).inspect_err(|_| {
            api.driver.textures.surfaces().insert(surfObject, known);
        })
    }

    /// Returns the resource description of a surface object.
    call cuSurfObjectGetResourceDesc(api, pResDesc: Out<CUDA_RESOURCE_DESC>, surfObject: u64) {
        let known = api.driver.textures.surfaces().get(&surfObject).copied();
        pResDesc.set(known.ok_or(CudaError::INVALID_VALUE)?.1)
    }

    /// Returns the maximum number of elements of a 1D texture in linear memory.
    call cuDeviceGetTexture1DLinearMaxWidth(api, maxWidthInElements: Out<usize>, format: u32, numChannels: u32, dev: i32) {
        maxWidthInElements.check()?;
        if format == 0 || !matches!(numChannels, 1 | 2 | 4) {
            return Err(CudaError::INVALID_VALUE);
        }
        let device = api.driver.devices.check(dev)?.on_wire();
        let call = &mut api.call();
        let elements = calls::cuDeviceGetTexture1DLinearMaxWidth(call, format, numChannels, device)?;
        maxWidthInElements.set(elements as usize)
    }
}
