// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The texture and surface objects of the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_abi::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};
use virtio_cuda_client::CudaError;

use crate::state::references::References;

#[derive(Clone, Copy, Debug)]
pub struct TextureObject {
    pub context: u64,
    pub resource: CUDA_RESOURCE_DESC,
    pub texture: CUDA_TEXTURE_DESC,
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// All texture and surface objects, by the values that kernels use.
#[derive(Debug, Default)]
pub struct Textures {
    pub textures: Mutex<HashMap<u64, TextureObject>>,
    /// The context and the resource of each surface object.
    pub surfaces: Mutex<HashMap<u64, (u64, CUDA_RESOURCE_DESC)>>,
    /// Texture and surface references.
    pub references: References,
}

impl Textures {
    pub fn textures(&self) -> MutexGuard<'_, HashMap<u64, TextureObject>> {
        self.textures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn surfaces(&self) -> MutexGuard<'_, HashMap<u64, (u64, CUDA_RESOURCE_DESC)>> {
        self.surfaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn texture(&self, object: u64) -> Result<TextureObject, CudaError> {
        self.textures().get(&object).copied().ok_or(CudaError::INVALID_VALUE)
    }

    /// Removes the objects of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.textures().retain(|_, texture| texture.context != context);
        self.surfaces().retain(|_, (of, _)| *of != context);
        self.references.forget_context(context);
    }
}
