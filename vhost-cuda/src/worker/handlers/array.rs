// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays and mipmapped arrays.

use virtio_cuda_protocol::cuda::{ArrayDescriptor, ArrayId, MipmappedArrayId};

use crate::worker::call::CallContext;
use crate::worker::formats::Shape;
use crate::worker::gpu::{CUarray, CuResult, CudaError, RawArray};
use crate::worker::objects::{Entry, Kind};
use crate::worker::pools;
use crate::worker::quota::{self, Holder};

/// Most levels of a mipmapped array: the driver clamps to what the size allows, at most 32 halvings.
const MAX_LEVELS: u32 = 64;

/// The driver's unit of arrays.
const ARRAY_BYTES: u64 = 64 << 10;

fn describe(cx: &CallContext<'_>, array: CUarray) -> CuResult<ArrayDescriptor> {
    Ok(cx.gpu().cuArray3DGetDescriptor_v2(array)?.0.into())
}

fn entry(cx: &CallContext<'_>, raw: CUarray, owner: u64) -> Entry {
    Entry { raw: raw as usize, context: cx.home(), owner, kind: Kind::Plain }
}

fn create(cx: &CallContext<'_>, descriptor: &RawArray) -> CuResult<(CUarray, ArrayDescriptor)> {
    // SAFETY: the description lives across the call.
    let (raw,) = unsafe { cx.gpu().cuArray3DCreate_v2(descriptor) }?;
    let actual = describe(cx, raw).inspect_err(|_| {
        let _ = cx.gpu().cuArrayDestroy(raw);
    })?;
    Ok((raw, actual))
}

/// Charges `bytes` bytes for an array or mipmapped array. One without memory of its own has none.
fn charge(cx: &CallContext<'_>, name: u64, bytes: u64) -> CuResult<()> {
    let charged = bytes.checked_next_multiple_of(ARRAY_BYTES).map_or(u64::MAX, quota::rounded);
    pools::charge(cx.session, |allocations| allocations.quota.hold(Holder::Array(name), charged, cx.home()))
}

fn let_go(cx: &CallContext<'_>, name: u64) {
    cx.session.allocations().quota.let_go(Holder::Array(name));
}

/// Gives back what an array or mipmapped array took, and what was mapped into it and is held by nothing else.
fn discharge(cx: &CallContext<'_>, name: u64) {
    let mut reservations = cx.session.reservations();
    let unused = reservations.externals.unmap_array(name);
    let free = reservations.free_external(unused) + reservations.forget_array(name);
    let mut allocations = cx.session.allocations();
    allocations.quota.let_go(Holder::Array(name));
    allocations.discharge(free);
}

/// Creates an array.
pub fn cuArray3DCreate_v2(
    cx: &mut CallContext<'_>,
    array: ArrayId,
    descriptor: ArrayDescriptor,
) -> CuResult<(ArrayDescriptor,)> {
    let raw = RawArray::from(&descriptor);
    let bytes = Shape::bytes_at_once(&raw)?;
    let reserved = cx.session.objects.arrays.reserve(array.0)?;
    charge(cx, array.0, bytes)?;
    let made = create(cx, &raw);
    let (raw, actual) = made.inspect_err(|_| let_go(cx, array.0))?;
    reserved.fill(entry(cx, raw, 0));
    Ok((actual,))
}

/// Destroys an array. It is out of the table first, so that no other thread uses it meanwhile.
pub fn cuArrayDestroy(cx: &mut CallContext<'_>, array: ArrayId) -> CuResult<()> {
    let arrays = &cx.session.objects.arrays;
    if arrays.get(array.0)?.owner != 0 {
        // It is a part of something else.
        return Err(CudaError::INVALID_HANDLE);
    }
    let entry = arrays.remove(array.0)?;
    arrays.forget(|plane| plane.owner == array.0);
    let destroyed = cx.gpu().cuArrayDestroy(entry.raw as CUarray);
    discharge(cx, array.0);
    destroyed
}

/// What an array with deferred mapping needs.
pub fn cuArrayGetMemoryRequirements(
    cx: &mut CallContext<'_>,
    array: ArrayId,
    device: u32,
) -> CuResult<(u64, u64)> {
    let device = cx.session.device(device)?;
    let (needs,) = cx.gpu().cuArrayGetMemoryRequirements(cx.resolve(array)?, device)?;
    Ok((needs.bytes as u64, needs.alignment as u64))
}

/// Names a plane of an array.
pub fn cuArrayGetPlane(
    cx: &mut CallContext<'_>,
    array: ArrayId,
    index: u32,
    plane: ArrayId,
) -> CuResult<(ArrayDescriptor,)> {
    let raw = cx.resolve(array)?;
    let reserved = cx.session.objects.arrays.reserve(plane.0)?;
    let (raw,) = cx.gpu().cuArrayGetPlane(raw, index)?;
    let descriptor = describe(cx, raw)?;
    reserved.fill(entry(cx, raw, array.0));
    Ok((descriptor,))
}

/// Creates a mipmapped array. The quota counts each level as the first one halved in each direction, rounded up.
pub fn cuMipmappedArrayCreate(
    cx: &mut CallContext<'_>,
    mipmap: MipmappedArrayId,
    descriptor: ArrayDescriptor,
    levels: u32,
) -> CuResult<()> {
    let raw = RawArray::from(&descriptor);
    let first = Shape::bytes_at_once(&raw)?;
    // Levels get smaller at least by half: all together are at most twice the first.
    let bytes = if levels > 1 { first.checked_mul(2).ok_or(CudaError::INVALID_VALUE)? } else { first };
    let reserved = cx.session.objects.mipmaps.reserve(mipmap.0)?;
    charge(cx, mipmap.0, bytes)?;
    // SAFETY: the description lives across the call.
    let made = unsafe { cx.gpu().cuMipmappedArrayCreate(&raw, levels.min(MAX_LEVELS)) };
    let (raw,) = made.inspect_err(|_| let_go(cx, mipmap.0))?;
    reserved.fill(Entry { raw: raw as usize, context: cx.home(), owner: 0, kind: Kind::Plain });
    Ok(())
}

/// Destroys a mipmapped array and its levels.
pub fn cuMipmappedArrayDestroy(cx: &mut CallContext<'_>, mipmap: MipmappedArrayId) -> CuResult<()> {
    let entry = cx.session.objects.mipmaps.remove(mipmap.0)?;
    cx.session.objects.arrays.forget(|level| level.owner == mipmap.0);
    let destroyed = cx.gpu().cuMipmappedArrayDestroy(entry.raw as _);
    discharge(cx, mipmap.0);
    destroyed
}

/// Names a level of a mipmapped array.
pub fn cuMipmappedArrayGetLevel(
    cx: &mut CallContext<'_>,
    mipmap: MipmappedArrayId,
    level: u32,
    array: ArrayId,
) -> CuResult<(ArrayDescriptor,)> {
    let raw = cx.resolve(mipmap)?;
    let reserved = cx.session.objects.arrays.reserve(array.0)?;
    let (raw,) = cx.gpu().cuMipmappedArrayGetLevel(raw, level)?;
    let descriptor = describe(cx, raw)?;
    reserved.fill(entry(cx, raw, mipmap.0));
    Ok((descriptor,))
}

/// What a mipmapped array with deferred mapping needs.
pub fn cuMipmappedArrayGetMemoryRequirements(
    cx: &mut CallContext<'_>,
    mipmap: MipmappedArrayId,
    device: u32,
) -> CuResult<(u64, u64)> {
    let device = cx.session.device(device)?;
    let (needs,) = cx.gpu().cuMipmappedArrayGetMemoryRequirements(cx.resolve(mipmap)?, device)?;
    Ok((needs.bytes as u64, needs.alignment as u64))
}
