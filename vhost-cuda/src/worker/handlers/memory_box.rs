// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of pitched rectangles and boxes.

use virtio_cuda_protocol::cuda::{Box3, DevicePtr, Extent, StreamId};

use crate::worker::call::CallContext;
use crate::worker::gpu::{BoxCopy, BoxEnd, CUstream, CuResult, CudaError};
use crate::worker::host_memory::charge_copy;

/// A box in device memory: its first byte, and the bytes from there to its last one.
fn place(base: DevicePtr, extent: &Extent, size: &Box3) -> CuResult<(u64, u64)> {
    let slice = extent.pitch.checked_mul(extent.height);
    let span = |count: u64, step: Option<u64>| count.checked_sub(1)?.checked_mul(step?);
    let length = || {
        // A single slice or row has no distance to the next one.
        let slices = if size.depth > 1 { span(size.depth, slice)? } else { 0 };
        let rows = if size.height > 1 { span(size.height, Some(extent.pitch))? } else { 0 };
        slices.checked_add(rows)?.checked_add(size.width)
    };
    let overlaps =
        (size.height > 1 && extent.pitch < size.width) || (size.depth > 1 && extent.height < size.height);
    let start = base.0.checked_add(extent.offset);
    match (start, length()) {
        (Some(start), Some(length)) if !overlaps => Ok((start, length)),
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Bytes of a box packed row by row.
pub(super) fn packed(size: &Box3) -> CuResult<u64> {
    let rows = size.width.checked_mul(size.height).and_then(|bytes| bytes.checked_mul(size.depth));
    rows.ok_or(CudaError::INVALID_VALUE)
}

pub(super) fn device_end(
    cx: &CallContext<'_>,
    base: DevicePtr,
    extent: &Extent,
    size: &Box3,
) -> CuResult<(BoxEnd, usize, usize)> {
    let (start, length) = place(base, extent, size)?;
    cx.session.check(start, length)?;
    // The driver wants pitches that fit even where it has no use for them.
    let pitch = extent.pitch.max(size.width) as usize;
    Ok((BoxEnd::Device(start), pitch, extent.height.max(size.height) as usize))
}

fn packed_end(bytes: *mut u8, size: &Box3) -> (BoxEnd, usize, usize) {
    (BoxEnd::Host(bytes), size.width as usize, size.height as usize)
}

pub(super) fn dimensions(size: &Box3) -> [usize; 3] {
    [size.width as usize, size.height as usize, size.depth as usize]
}

/// Copies the packed rows of the call to `dst`, which was checked, and waits. The call's bytes are as many as the
/// box's.
pub(super) fn send_rows(
    cx: &CallContext<'_>,
    dst: (BoxEnd, usize, usize),
    size: &Box3,
    stream: CUstream,
) -> CuResult<()> {
    let (mut rows, _charge) = cx.bulk_in.contents()?.into_owned();
    let copy = BoxCopy { src: packed_end(rows.as_mut_ptr(), size), dst, size: dimensions(size) };
    // SAFETY: the host end is `rows`, of exactly the box's bytes, kept until the stream was waited for; the
    // caller checked that the other end belongs to the session and holds the box.
    unsafe { cx.gpu().copy_box(&copy, stream) }?;
    cx.gpu().cuStreamSynchronize(stream)
}

/// Copies `src`, which was checked, to the call's room as packed rows. The room is as long as the box.
pub(super) fn fetch_rows(
    cx: &mut CallContext<'_>,
    src: (BoxEnd, usize, usize),
    size: &Box3,
    stream: CUstream,
) -> CuResult<()> {
    let bytes = packed(size)? as usize;
    let _charge = charge_copy(bytes)?;
    let mut rows = vec![0; bytes];
    let copy = BoxCopy { src, dst: packed_end(rows.as_mut_ptr(), size), size: dimensions(size) };
    // SAFETY: as above, with the ends exchanged.
    unsafe { cx.gpu().copy_box(&copy, stream) }?;
    cx.gpu().cuStreamSynchronize(stream)?;
    cx.bulk_out.put(&rows)
}

/// Copies packed rows into a box of device memory.
pub fn memcpy_box_htod(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    extent: Extent,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let bytes = packed(&size)?;
    if bytes != cx.bulk_in.bytes() {
        return Err(CudaError::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(());
    }
    let dst = device_end(cx, dst, &extent, &size)?;
    send_rows(cx, dst, &size, stream)
}

/// Copies a box of device memory out as packed rows.
pub fn memcpy_box_dtoh(
    cx: &mut CallContext<'_>,
    src: DevicePtr,
    extent: Extent,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    let bytes = packed(&size)?;
    if bytes != cx.bulk_out.room() {
        return Err(CudaError::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(());
    }
    let src = device_end(cx, src, &extent, &size)?;
    fetch_rows(cx, src, &size, stream)
}

/// Copies a box inside the device.
pub fn memcpy_box_dtod(
    cx: &mut CallContext<'_>,
    dst: DevicePtr,
    dst_extent: Extent,
    src: DevicePtr,
    src_extent: Extent,
    size: Box3,
    stream: StreamId,
) -> CuResult<()> {
    let stream = cx.resolve(stream)?;
    if packed(&size)? == 0 {
        return Ok(());
    }
    let dst = device_end(cx, dst, &dst_extent, &size)?;
    let src = device_end(cx, src, &src_extent, &size)?;
    // SAFETY: both ends belong to the session.
    unsafe { cx.gpu().copy_box(&BoxCopy { src, dst, size: dimensions(&size) }, stream) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_ends_where_its_last_row_does() {
        let extent = Extent { offset: 16, pitch: 100, height: 10 };
        let size = |width, height, depth| Box3 { width, height, depth };
        let at = |size| place(DevicePtr(0x1000), &extent, &size);
        assert_eq!(at(size(100, 1, 1)), Ok((0x1010, 100)));
        assert_eq!(at(size(40, 3, 1)), Ok((0x1010, 240)));
        assert_eq!(at(size(40, 3, 2)), Ok((0x1010, 1240)));
        assert!(at(size(101, 2, 1)).is_err(), "rows overlap");
        assert!(at(size(1, 11, 2)).is_err(), "slices overlap");
        assert!(at(size(1, u64::MAX, 1)).is_err(), "overflow");
        let far = Extent { offset: u64::MAX, ..extent };
        assert!(place(DevicePtr(0x1000), &far, &size(1, 1, 1)).is_err());
        assert_eq!(packed(&size(1 << 32, 1 << 32, 1)), Err(CudaError::INVALID_VALUE));
    }
}
