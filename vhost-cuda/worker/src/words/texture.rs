// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for textures, surfaces and tensor maps. The memory of a tensor map is not checked here: with a map a kernel
//! on the GPU can access only memory that it could access by the address.

use virtio_cuda_protocol::cuda::{
    ArrayId, DevicePtr, MipmappedArrayId, ResourceDescriptor, TextureDescriptor, ViewDescriptor,
    element_bytes,
};

use super::memory;
use crate::call::CallContext;
use crate::gpu::{
    Checked, CuResult, CudaError, Elements, Rank, RawResource, RawRows, RawTexture, RawView, Ref,
};
use crate::resolve::Resolve;

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

/// Returns the bytes from the first to the last of rows of texels that begin `pitch` bytes apart. Returns `None` for
/// an unknown format, and for rows that overlap.
pub fn pitched([width, height]: [u64; 2], format: u32, channels: u32, pitch: u64) -> Option<u64> {
    let row = width.checked_mul(element_bytes(format, channels)?).filter(|&row| row <= pitch)?;
    height.checked_sub(1)?.checked_mul(pitch)?.checked_add(row)
}

/// A description of rows of texels.
pub struct Texels([u64; 2], u32, u32);

/// A description of rows of texels.
pub fn texels(size: [u64; 2], format: u32, channels: u32) -> Texels {
    Texels(size, format, channels)
}

impl Resolve<'_, Ref<RawRows>> for Texels {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Ref<RawRows>> {
        let Self(size, format, channels) = self;
        let [width, height] = size.map(|elements| elements as usize);
        Ok(Ref(RawRows { width, height, format, channels }))
    }
}

/// The resource of a texture or surface.
pub struct Shown(ResourceDescriptor, bool);

/// The resource of a texture, checked: arrays exist, and memory belongs to the session.
pub fn shown(resource: ResourceDescriptor) -> Shown {
    Shown(resource, false)
}

/// The resource of a surface, which is an array.
pub fn surface(resource: ResourceDescriptor) -> Shown {
    Shown(resource, true)
}

impl Resolve<'_, Ref<RawResource>> for Shown {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Ref<RawResource>> {
        let Self(from, is_surface) = self;
        if is_surface && from.kind != ARRAY {
            return Err(CudaError::INVALID_VALUE);
        }
        let memory = |bytes| memory(DevicePtr(from.dptr), bytes).resolve(cx);
        Ok(Ref(match from.kind {
            ARRAY => RawResource::array(cx.resolve(ArrayId(from.object))? as u64),
            MIPMAPPED_ARRAY => {
                RawResource::mipmapped_array(cx.resolve(MipmappedArrayId(from.object))? as u64)
            }
            LINEAR => {
                // As on a host, it may be longer than the allocation. Kernels can access all of their context's
                // memory anyway, and the emulator checks accesses itself.
                let _: Checked = memory(Some(1))?;
                RawResource::linear(from.dptr, from.format, from.channels, from.width)
            }
            PITCH_2D => {
                let _: Checked =
                    memory(pitched([from.width, from.height], from.format, from.channels, from.pitch))?;
                let size = [from.width, from.height, from.pitch];
                RawResource::pitched(from.dptr, from.format, from.channels, size)
            }
            _ => return Err(CudaError::INVALID_VALUE),
        }))
    }
}

impl Resolve<'_, Ref<RawTexture>> for TextureDescriptor {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Ref<RawTexture>> {
        Ok(Ref(RawTexture::from(&self)))
    }
}

impl Resolve<'_, Option<Ref<RawView>>> for ViewDescriptor {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Option<Ref<RawView>>> {
        Ok((self.present != 0).then(|| Ref(RawView::from(&self))))
    }
}

/// The rank of a tensor.
pub struct TensorRank(u32);

/// The rank of a tensor: from 1 to the number of elements of its arrays.
pub fn rank(rank: u32) -> TensorRank {
    TensorRank(rank)
}

impl Resolve<'_, Rank> for TensorRank {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Rank> {
        Rank::new(self.0)
    }
}

impl<T, const N: usize> Resolve<'_, Elements<T, N>> for [T; N] {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Elements<T, N>> {
        Ok(Elements(self))
    }
}
