// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface objects.

use virtio_cuda_protocol::cuda::{
    ArrayId, MipmappedArrayId, ResourceDescriptor, TextureDescriptor, ViewDescriptor, element_bytes,
};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, RawResource, RawTexture, RawView};

/// `CU_RESOURCE_TYPE_*`.
const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

/// What a texture or surface shows, checked: arrays exist, and memory is the session's.
fn resource(cx: &CallContext<'_>, from: &ResourceDescriptor) -> CuResult<RawResource> {
    let format = (from.format, from.channels);
    match from.kind {
        ARRAY => Ok(RawResource::array(cx.resolve(ArrayId(from.object))? as u64)),
        MIPMAPPED_ARRAY => {
            Ok(RawResource::mipmapped_array(cx.resolve(MipmappedArrayId(from.object))? as u64))
        }
        LINEAR => {
            cx.session.check(from.dptr, from.width)?;
            Ok(RawResource::linear(from.dptr, format, from.width))
        }
        PITCH_2D => {
            let element = element_bytes(format.0, format.1).ok_or(CudaError::INVALID_VALUE)?;
            let row = from.width.checked_mul(element).filter(|&row| row <= from.pitch);
            let before = from.height.checked_sub(1).and_then(|rows| rows.checked_mul(from.pitch));
            let bytes = row.zip(before).and_then(|(row, before)| before.checked_add(row));
            cx.session.check(from.dptr, bytes.ok_or(CudaError::INVALID_VALUE)?)?;
            Ok(RawResource::pitched(from.dptr, format, [from.width, from.height, from.pitch]))
        }
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Creates a texture object.
pub fn cuTexObjectCreate(
    cx: &mut CallContext<'_>,
    resource_descriptor: ResourceDescriptor,
    texture: TextureDescriptor,
    view: ViewDescriptor,
) -> CuResult<(u64,)> {
    let resource = resource(cx, &resource_descriptor)?;
    cx.session.objects.textures.check_room()?;
    let texture = RawTexture::from(&texture);
    let raw_view = RawView::from(&view);
    let view = if view.present != 0 { &raw const raw_view } else { std::ptr::null() };
    // SAFETY: the descriptions live across the call; the array is the driver's, the memory the session's.
    let (object,) = unsafe { cx.gpu().cuTexObjectCreate(&resource, &texture, view) }?;
    cx.session.objects.textures.insert(object, cx.home());
    Ok((object,))
}

/// Destroys a texture object.
pub fn cuTexObjectDestroy(cx: &mut CallContext<'_>, object: u64) -> CuResult<()> {
    cx.session.objects.textures.remove(object)?;
    cx.gpu().cuTexObjectDestroy(object)
}

/// Creates a surface object.
pub fn cuSurfObjectCreate(
    cx: &mut CallContext<'_>,
    resource_descriptor: ResourceDescriptor,
) -> CuResult<(u64,)> {
    if resource_descriptor.kind != ARRAY {
        return Err(CudaError::INVALID_VALUE);
    }
    let resource = resource(cx, &resource_descriptor)?;
    cx.session.objects.surfaces.check_room()?;
    // SAFETY: the description lives across the call; the array is the driver's.
    let (object,) = unsafe { cx.gpu().cuSurfObjectCreate(&resource) }?;
    cx.session.objects.surfaces.insert(object, cx.home());
    Ok((object,))
}

/// Destroys a surface object.
pub fn cuSurfObjectDestroy(cx: &mut CallContext<'_>, object: u64) -> CuResult<()> {
    cx.session.objects.surfaces.remove(object)?;
    cx.gpu().cuSurfObjectDestroy(object)
}
