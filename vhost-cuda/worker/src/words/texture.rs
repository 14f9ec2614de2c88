// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for textures, surfaces and tensor maps. The memory of a tensor map is not checked here: with a map a kernel
//! on the GPU can access only memory that it could access by the address.

use virtio_cuda_protocol::cuda::{
    ArrayId, DevicePtr, MipmappedArrayId, ResourceDescriptor, TextureDescriptor, ViewDescriptor,
    element_bytes,
};

use super::memory;
use crate::call::CallContext;
use crate::call::resolve::Resolve;
use crate::gpu::{
    CuResult, CudaError, Elements, Rank, RawResource, RawRows, RawTensorMap, RawTexture, RawView, Ref,
};

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
pub fn texels(_cx: &CallContext<'_>, size: [u64; 2], format: u32, channels: u32) -> CuResult<Ref<RawRows>> {
    let [width, height] = size.map(|elements| elements as usize);
    Ok(Ref(RawRows { width, height, format, channels }))
}

/// The resource of a texture, checked: arrays exist, and memory belongs to the session.
pub fn shown(cx: &CallContext<'_>, from: ResourceDescriptor) -> CuResult<Ref<RawResource>> {
    let memory = |bytes| memory(cx, DevicePtr(from.dptr), bytes);
    Ok(Ref(match from.kind {
        ARRAY => RawResource::array(cx.resolve(ArrayId(from.object))? as u64),
        MIPMAPPED_ARRAY => RawResource::mipmapped_array(cx.resolve(MipmappedArrayId(from.object))? as u64),
        LINEAR => {
            // As on a host, it may be longer than the allocation. Kernels can access all of their context's
            // memory anyway, and the emulator checks accesses itself.
            memory(Some(1))?;
            RawResource::linear(from.dptr, from.format, from.channels, from.width)
        }
        PITCH_2D => {
            memory(pitched([from.width, from.height], from.format, from.channels, from.pitch))?;
            let size = [from.width, from.height, from.pitch];
            RawResource::pitched(from.dptr, from.format, from.channels, size)
        }
        _ => return Err(CudaError::INVALID_VALUE),
    }))
}

/// The resource of a surface, which is an array.
pub fn surface(cx: &CallContext<'_>, from: ResourceDescriptor) -> CuResult<Ref<RawResource>> {
    if from.kind == ARRAY { shown(cx, from) } else { Err(CudaError::INVALID_VALUE) }
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

/// The rank of a tensor: from 1 to the number of elements of its arrays.
pub fn rank(_cx: &CallContext<'_>, rank: u32) -> CuResult<Rank> {
    Rank::new(rank)
}

/// Returns a tensor map in the driver's form.
pub fn tensor_map(_cx: &CallContext<'_>, map: [u8; 128]) -> CuResult<RawTensorMap> {
    Ok(RawTensorMap { opaque: map })
}

impl<T, const N: usize> Resolve<'_, Elements<T, N>> for [T; N] {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<Elements<T, N>> {
        Ok(Elements(self))
    }
}
