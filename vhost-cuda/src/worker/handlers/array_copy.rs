// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of boxes in arrays.

use virtio_cuda_protocol::cuda::{ArrayId, ArrayOrigin, Box3, DevicePtr, Extent, StreamId};

use super::memory_box::{device_end, dimensions, fetch_rows, packed, send_rows};
use crate::worker::call::CallContext;
use crate::worker::formats::Shape;
use crate::worker::gpu::{BoxCopy, BoxEnd, CuResult, CudaError};

/// An array's end of a copy, checked against what the driver says that the array is. Of video formats the driver judges:
/// how much host memory a copy takes follows from the box alone.
fn array_end(
    cx: &CallContext<'_>,
    array: ArrayId,
    origin: &ArrayOrigin,
    size: &Box3,
) -> CuResult<(BoxEnd, usize, usize)> {
    let raw = cx.resolve(array)?;
    let (descriptor,) = cx.gpu().cuArray3DGetDescriptor_v2(raw)?;
    if let Ok(shape) = Shape::of(&descriptor) {
        shape.check(origin, size)?;
    }
    Ok((BoxEnd::Array(raw, [origin.x as usize, origin.y as usize, origin.z as usize]), 0, 0))
}

/// Copies packed rows into an array.
pub fn memcpy_box_htoa(
    cx: &mut CallContext<'_>,
    dst: ArrayId,
    origin: ArrayOrigin,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let bytes = packed(&size)?;
    if bytes != cx.bulk_in.bytes() {
        return Err(CudaError::INVALID_VALUE);
    }
    let dst = array_end(cx, dst, &origin, &size)?;
    if bytes == 0 {
        return Ok(());
    }
    send_rows(cx, dst, &size, stream)
}

/// Copies a box of an array out as packed rows.
pub fn memcpy_box_atoh(
    cx: &mut CallContext<'_>,
    src: ArrayId,
    origin: ArrayOrigin,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let bytes = packed(&size)?;
    if bytes != cx.bulk_out.room() {
        return Err(CudaError::INVALID_VALUE);
    }
    let src = array_end(cx, src, &origin, &size)?;
    if bytes == 0 {
        return Ok(());
    }
    fetch_rows(cx, src, &size, stream)
}

/// Copies a box between arrays.
pub fn memcpy_box_atoa(
    cx: &mut CallContext<'_>,
    dst: ArrayId,
    dst_origin: ArrayOrigin,
    src: ArrayId,
    src_origin: ArrayOrigin,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let dst = array_end(cx, dst, &dst_origin, &size)?;
    let src = array_end(cx, src, &src_origin, &size)?;
    on_device(cx, dst, src, &size, stream)
}

/// Copies a box of device memory into an array.
pub fn memcpy_box_dtoa(
    cx: &mut CallContext<'_>,
    dst: ArrayId,
    origin: ArrayOrigin,
    src: DevicePtr,
    extent: Extent,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let dst = array_end(cx, dst, &origin, &size)?;
    if packed(&size)? == 0 {
        return Ok(());
    }
    let src = device_end(cx, src, &extent, &size)?;
    on_device(cx, dst, src, &size, stream)
}

/// Copies a box of an array into device memory.
pub fn memcpy_box_atod(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    extent: Extent,
    src: ArrayId,
    origin: ArrayOrigin,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let src = array_end(cx, src, &origin, &size)?;
    if packed(&size)? == 0 {
        return Ok(());
    }
    let dst = device_end(cx, dst, &extent, &size)?;
    on_device(cx, dst, src, &size, stream)
}

fn on_device(
    cx: &CallContext<'_>,
    dst: (BoxEnd, usize, usize),
    src: (BoxEnd, usize, usize),
    size: &Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    if packed(size)? == 0 {
        return Ok(());
    }
    // SAFETY: the caller checked that both ends belong to the session and hold the box.
    unsafe { cx.gpu().copy_box(&BoxCopy { src, dst, size: dimensions(size) }, stream) }
}
