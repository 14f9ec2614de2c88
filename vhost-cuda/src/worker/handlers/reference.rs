// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Texture and surface references. Those of modules end with them.

use virtio_cuda_protocol::cuda::{DevicePtr, ModuleId, SurfRefId, TexRefId, element_bytes};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, CudaError, RawRows};
use crate::worker::objects::Object;

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
    let [width, height] = size.map(|elements| elements as usize);
    let rows = RawRows { width, height, format, channels };
    let pitch = usize::try_from(pitch).map_err(|_| CudaError::INVALID_VALUE)?;
    // SAFETY: the description lives across the call; the memory is the session's.
    unsafe { cx.gpu().cuTexRefSetAddress2D_v3(raw, &rows, dptr.0, pitch) }
}
