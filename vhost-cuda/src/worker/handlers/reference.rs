// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface references. Those of modules end with them.

use virtio_cuda_protocol::cuda::{
    ArrayId, DevicePtr, MipmappedArrayId, ModuleId, SurfRefId, TexRefId, element_bytes,
};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, Driver, RawRows};
use crate::worker::objects::{Object, Table};

/// Names a texture reference of a module.
pub fn cuModuleGetTexRef(cx: &mut CallContext<'_>, module: ModuleId, reference: TexRefId) -> CuResult<()> {
    let (owner, name) = (cx.session.objects.modules.get(module.0)?, cx.bulk_in.name()?);
    let reserved = cx.session.objects.texture_references.reserve(reference.0)?;
    // SAFETY: the name is NUL-terminated and lives across the call.
    let (raw,) = unsafe { cx.gpu().cuModuleGetTexRef(cx.held().keep(owner.clone()), name.as_ptr()) }?;
    cx.fill(reserved, Object::new(raw).in_context(cx.home_of()).part_of(owner))
}

/// Names a surface reference of a module.
pub fn cuModuleGetSurfRef(cx: &mut CallContext<'_>, module: ModuleId, reference: SurfRefId) -> CuResult<()> {
    let (owner, name) = (cx.session.objects.modules.get(module.0)?, cx.bulk_in.name()?);
    let reserved = cx.session.objects.surface_references.reserve(reference.0)?;
    // SAFETY: the name is NUL-terminated and lives across the call.
    let (raw,) = unsafe { cx.gpu().cuModuleGetSurfRef(cx.held().keep(owner.clone()), name.as_ptr()) }?;
    cx.fill(reserved, Object::new(raw).in_context(cx.home_of()).part_of(owner))
}

/// Creates a texture reference.
pub fn cuTexRefCreate(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<()> {
    let reserved = cx.session.objects.texture_references.reserve(reference.0)?;
    let (raw,) = cx.gpu().cuTexRefCreate()?;
    cx.fill(reserved, cx.made(raw, Driver::cuTexRefDestroy))
}

/// Destroys a texture reference. The driver destroys a module's with the module, and must not do it twice.
pub fn cuTexRefDestroy(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<()> {
    let references = &cx.session.objects.texture_references;
    if !references.get(reference.0)?.is_whole() {
        return Err(CudaError::INVALID_HANDLE);
    }
    Object::destroy(references.remove(reference.0)?)
}

/// Binds memory.
pub fn cuTexRefSetAddress_v2(
    cx: &mut CallContext<'_>,
    reference: TexRefId,
    dptr: DevicePtr,
    bytes: u64,
    aligned: u32,
) -> CuResult<(u64,)> {
    let raw = cx.resolve(reference)?;
    cx.session.check(dptr.0, bytes)?;
    let bytes = usize::try_from(bytes).map_err(|_| CudaError::INVALID_VALUE)?;
    let mut offset = 0;
    let to = if aligned != 0 { &raw mut offset } else { std::ptr::null_mut() };
    // SAFETY: the offset is a local or not wanted; the memory is the session's.
    unsafe { cx.gpu().cuTexRefSetAddress_v2(to, raw, dptr.0, bytes) }?;
    Ok((offset as u64,))
}

/// Binds rows of memory.
pub fn cuTexRefSetAddress2D_v3(
    cx: &mut CallContext<'_>,
    reference: TexRefId,
    size: [u64; 2],
    format: u32,
    channels: u32,
    dptr: DevicePtr,
    pitch: u64,
) -> CuResult<()> {
    let raw = cx.resolve(reference)?;
    let element = element_bytes(format, channels).ok_or(CudaError::INVALID_VALUE)?;
    let row = size[0].checked_mul(element).filter(|&row| row <= pitch);
    let before = size[1].checked_sub(1).and_then(|rows| rows.checked_mul(pitch));
    let bytes = row.zip(before).and_then(|(row, before)| before.checked_add(row));
    cx.session.check(dptr.0, bytes.ok_or(CudaError::INVALID_VALUE)?)?;
    let rows = RawRows::new(size, format, channels);
    let pitch = usize::try_from(pitch).map_err(|_| CudaError::INVALID_VALUE)?;
    // SAFETY: the description lives across the call; the memory is the session's.
    unsafe { cx.gpu().cuTexRefSetAddress2D_v3(raw, &rows, dptr.0, pitch) }
}

/// Sets what lies outside.
pub fn cuTexRefSetBorderColor(
    cx: &mut CallContext<'_>,
    reference: TexRefId,
    mut color: [f32; 4],
) -> CuResult<()> {
    let raw = cx.resolve(reference)?;
    // SAFETY: the driver reads four channels.
    unsafe { cx.gpu().cuTexRefSetBorderColor(raw, color.as_mut_ptr()) }
}

/// What lies outside.
pub fn cuTexRefGetBorderColor(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<([f32; 4],)> {
    let raw = cx.resolve(reference)?;
    let mut color = [0.0; 4];
    // SAFETY: the driver writes four channels.
    unsafe { cx.gpu().cuTexRefGetBorderColor(color.as_mut_ptr(), raw) }?;
    Ok((color,))
}

/// The memory that is bound.
pub fn cuTexRefGetAddress_v2(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(DevicePtr,)> {
    let (dptr,) = cx.gpu().cuTexRefGetAddress_v2(cx.resolve(reference)?)?;
    Ok((DevicePtr(dptr),))
}

/// What the guest calls the object that the driver calls `raw`; it may be gone.
fn name_of<T>(table: &Table, raw: *mut T) -> CuResult<u64> {
    table.find(|object| object.is(raw)).ok_or(CudaError::INVALID_VALUE)
}

/// The array that is bound.
pub fn cuTexRefGetArray(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(ArrayId,)> {
    let (raw,) = cx.gpu().cuTexRefGetArray(cx.resolve(reference)?)?;
    Ok((ArrayId(name_of(&cx.session.objects.arrays, raw)?),))
}

/// The mipmapped array that is bound.
pub fn cuTexRefGetMipmappedArray(
    cx: &mut CallContext<'_>,
    reference: TexRefId,
) -> CuResult<(MipmappedArrayId,)> {
    let (raw,) = cx.gpu().cuTexRefGetMipmappedArray(cx.resolve(reference)?)?;
    Ok((MipmappedArrayId(name_of(&cx.session.objects.mipmaps, raw)?),))
}

/// The array that is bound to a surface reference.
pub fn cuSurfRefGetArray(cx: &mut CallContext<'_>, reference: SurfRefId) -> CuResult<(ArrayId,)> {
    let (raw,) = cx.gpu().cuSurfRefGetArray(cx.resolve(reference)?)?;
    Ok((ArrayId(name_of(&cx.session.objects.arrays, raw)?),))
}

/// The address mode of a dimension.
pub fn cuTexRefGetAddressMode(
    cx: &mut CallContext<'_>,
    reference: TexRefId,
    dimension: i32,
) -> CuResult<(i32,)> {
    cx.gpu().cuTexRefGetAddressMode(cx.resolve(reference)?, dimension)
}

/// The filter mode.
pub fn cuTexRefGetFilterMode(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(i32,)> {
    cx.gpu().cuTexRefGetFilterMode(cx.resolve(reference)?)
}

/// How memory is read.
pub fn cuTexRefGetFormat(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(i32, i32)> {
    cx.gpu().cuTexRefGetFormat(cx.resolve(reference)?)
}

/// The filter mode between levels.
pub fn cuTexRefGetMipmapFilterMode(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(i32,)> {
    cx.gpu().cuTexRefGetMipmapFilterMode(cx.resolve(reference)?)
}

/// What is added to the level.
pub fn cuTexRefGetMipmapLevelBias(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(f32,)> {
    cx.gpu().cuTexRefGetMipmapLevelBias(cx.resolve(reference)?)
}

/// The least and the greatest level.
pub fn cuTexRefGetMipmapLevelClamp(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(f32, f32)> {
    cx.gpu().cuTexRefGetMipmapLevelClamp(cx.resolve(reference)?)
}

/// The greatest anisotropy.
pub fn cuTexRefGetMaxAnisotropy(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(i32,)> {
    cx.gpu().cuTexRefGetMaxAnisotropy(cx.resolve(reference)?)
}

/// `CU_TRSF_*` bits.
pub fn cuTexRefGetFlags(cx: &mut CallContext<'_>, reference: TexRefId) -> CuResult<(u32,)> {
    cx.gpu().cuTexRefGetFlags(cx.resolve(reference)?)
}
