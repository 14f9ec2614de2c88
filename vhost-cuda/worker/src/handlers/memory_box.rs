// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of pitched rectangles and boxes.

use virtio_cuda_protocol::cuda::{
    ArrayId, ArrayOrigin, Box3, COPY_ARRAY, COPY_BULK, COPY_DEVICE, CopyEnd, StreamId,
};

use crate::call::CallContext;
use crate::copy_charge::charge_copy;
use crate::gpu::{BoxCopy, BoxEnd, CUstream, CuResult, CudaError, PitchedEnd};
use crate::memory::formats::Shape;

/// Returns the address of a box in device memory and the number of bytes from its first to its last byte.
fn place(end: &CopyEnd, size: &Box3) -> CuResult<(u64, u64)> {
    let slice = end.pitch.checked_mul(end.height);
    let span = |count: u64, step: Option<u64>| count.checked_sub(1)?.checked_mul(step?);
    let length = || {
        // A single slice or row has no distance to a next one.
        let slices = if size.depth > 1 { span(size.depth, slice)? } else { 0 };
        let rows = if size.height > 1 { span(size.height, Some(end.pitch))? } else { 0 };
        slices.checked_add(rows)?.checked_add(size.width)
    };
    let overlaps =
        (size.height > 1 && end.pitch < size.width) || (size.depth > 1 && end.height < size.height);
    let start = end.address.0.checked_add(end.x);
    match (start, length()) {
        (Some(start), Some(length)) if !overlaps && (end.y, end.z) == (0, 0) => Ok((start, length)),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Returns the size in bytes of a box that is packed row by row.
fn packed(size: &Box3) -> CuResult<u64> {
    let rows = size.width.checked_mul(size.height).and_then(|bytes| bytes.checked_mul(size.depth));
    rows.ok_or(CudaError::INVALID_VALUE)
}

/// An end of a copy in the driver's numbers.
fn end(cx: &CallContext<'_>, end: &CopyEnd, size: &Box3, writes: bool) -> CuResult<PitchedEnd> {
    match end.kind {
        COPY_DEVICE => device_end(cx, end, size, writes),
        COPY_ARRAY => array_end(cx, end, size),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

fn device_end(cx: &CallContext<'_>, end: &CopyEnd, size: &Box3, writes: bool) -> CuResult<PitchedEnd> {
    let (start, length) = place(end, size)?;
    cx.check_copied(start, length, writes)?;
    // The driver requires a sufficient pitch even where it does not use it.
    let pitch = end.pitch.max(size.width) as usize;
    Ok(PitchedEnd { end: BoxEnd::Device(start), pitch, height: end.height.max(size.height) as usize })
}

/// An array's end, checked against the driver's description of the array. For video formats the driver checks: the box
/// alone determines how much host memory a copy takes.
fn array_end(cx: &CallContext<'_>, end: &CopyEnd, size: &Box3) -> CuResult<PitchedEnd> {
    let raw = cx.resolve(ArrayId(end.address.0))?;
    let (descriptor,) = cx.gpu().cuArray3DGetDescriptor_v2(raw)?;
    if let Ok(shape) = Shape::of(&descriptor) {
        shape.check(&ArrayOrigin { x: end.x, y: end.y, z: end.z }, size)?;
    }
    let end = BoxEnd::Array(raw, [end.x as usize, end.y as usize, end.z as usize]);
    Ok(PitchedEnd { end, pitch: 0, height: 0 })
}

fn packed_end(bytes: *mut u8, size: &Box3) -> PitchedEnd {
    PitchedEnd { end: BoxEnd::Host(bytes), pitch: size.width as usize, height: size.height as usize }
}

fn dimensions(size: &Box3) -> [usize; 3] {
    [size.width as usize, size.height as usize, size.depth as usize]
}

/// Copies the packed rows of the call to `dst`, which was checked, and waits. The call's bytes are as many as the
/// box's.
fn send_rows(cx: &CallContext<'_>, dst: PitchedEnd, size: &Box3, stream: CUstream) -> CuResult<()> {
    let (mut rows, _charge) = cx.bulk_in.contents()?.into_owned();
    let copy = BoxCopy { src: packed_end(rows.as_mut_ptr(), size), dst, size: dimensions(size) };
    // SAFETY: the host end is `rows`, of exactly the box's bytes, kept until the stream was waited for; the caller
    // checked that the other end belongs to the session and holds the box.
    unsafe { cx.gpu().copy_box(&copy, stream) }?;
    cx.gpu().cuStreamSynchronize(stream)
}

/// Copies `src`, which was checked, to the call's room as packed rows. The room is as long as the box.
fn fetch_rows(cx: &mut CallContext<'_>, src: PitchedEnd, size: &Box3, stream: CUstream) -> CuResult<()> {
    let bytes = packed(size)? as usize;
    let _charge = charge_copy(bytes)?;
    let mut rows = vec![0; bytes];
    let copy = BoxCopy { src, dst: packed_end(rows.as_mut_ptr(), size), size: dimensions(size) };
    // SAFETY: the host end is `rows`, of exactly the box's bytes, kept until the stream was waited for; the caller
    // checked that the other end belongs to the session and holds the box.
    unsafe { cx.gpu().copy_box(&copy, stream) }?;
    cx.gpu().cuStreamSynchronize(stream)?;
    cx.bulk_out.put(&rows)
}

/// Copies a box between memory, arrays and bulk data.
pub fn memcpy_box(
    cx: &mut CallContext<'_>,
    dst: CopyEnd,
    src: CopyEnd,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let bytes = packed(&size)?;
    let (to_bulk, from_bulk) = (dst.kind == COPY_BULK, src.kind == COPY_BULK);
    let fits = (!to_bulk || bytes == cx.bulk_out.room()) && (!from_bulk || bytes == cx.bulk_in.bytes());
    if !fits || (to_bulk && from_bulk) {
        return Err(CudaError::INVALID_VALUE);
    }
    if bytes == 0 {
        let mut arrays = [dst, src].into_iter().filter(|end| end.kind == COPY_ARRAY);
        return arrays.try_for_each(|end| array_end(cx, &end, &size).map(|_| ()));
    }
    if from_bulk {
        return send_rows(cx, end(cx, &dst, &size, true)?, &size, stream);
    }
    if to_bulk {
        return fetch_rows(cx, end(cx, &src, &size, false)?, &size, stream);
    }
    let copy = BoxCopy {
        src: end(cx, &src, &size, false)?,
        dst: end(cx, &dst, &size, true)?,
        size: dimensions(&size),
    };
    // SAFETY: both ends were checked to belong to the session and to hold the box.
    unsafe { cx.gpu().copy_box(&copy, stream) }
}

#[cfg(test)]
mod tests {
    use virtio_cuda_protocol::cuda::DevicePtr;

    use super::*;

    #[test]
    fn a_box_ends_where_its_last_row_does() {
        let end = CopyEnd {
            kind: COPY_DEVICE,
            address: DevicePtr(0x1000),
            x: 16,
            pitch: 100,
            height: 10,
            ..CopyEnd::default()
        };
        let size = |width, height, depth| Box3 { width, height, depth };
        let at = |size| place(&end, &size);
        assert_eq!(at(size(100, 1, 1)), Ok((0x1010, 100)));
        assert_eq!(at(size(40, 3, 1)), Ok((0x1010, 240)));
        assert_eq!(at(size(40, 3, 2)), Ok((0x1010, 1240)));
        assert!(at(size(101, 2, 1)).is_err(), "rows overlap");
        assert!(at(size(1, 11, 2)).is_err(), "slices overlap");
        assert!(at(size(1, u64::MAX, 1)).is_err(), "overflow");
        for wrong in [CopyEnd { x: u64::MAX, ..end }, CopyEnd { y: 1, ..end }, CopyEnd { z: 1, ..end }] {
            assert!(place(&wrong, &size(1, 1, 1)).is_err());
        }
        assert_eq!(packed(&size(1 << 32, 1 << 32, 1)), Err(CudaError::INVALID_VALUE));
    }
}
