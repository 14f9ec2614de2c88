// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Setting memory.

use virtio_cuda_protocol::cuda::{DevicePtr, StreamId};

use crate::worker::call::CallContext;
use crate::worker::gpu::{CUstream, CuResult, CudaError};

/// Checks the range of `n` elements; the stream, unless there is nothing to do.
fn linear(
    cx: &CallContext<'_>,
    dst: DevicePtr,
    n: u64,
    element: u64,
    stream: StreamId,
) -> CuResult<Option<CUstream>> {
    let stream = cx.resolve(stream)?;
    if n == 0 {
        return Ok(None);
    }
    let bytes = n.checked_mul(element).ok_or(CudaError::INVALID_VALUE)?;
    cx.session.check(dst.0, bytes)?;
    Ok(Some(stream))
}

/// Checks a rectangle, given as pitch, width in elements and height.
fn pitched(
    cx: &CallContext<'_>,
    dst: DevicePtr,
    (pitch, width, height): (u64, u64, u64),
    element: u64,
    stream: StreamId,
) -> CuResult<Option<CUstream>> {
    let stream = cx.resolve(stream)?;
    if width == 0 || height == 0 {
        return Ok(None);
    }
    let row = width.checked_mul(element);
    let length = (height - 1).checked_mul(pitch).zip(row).and_then(|(rows, row)| rows.checked_add(row));
    cx.session.check(dst.0, length.ok_or(CudaError::INVALID_VALUE)?)?;
    Ok(Some(stream))
}

macro_rules! sets {
    ($($linear:ident $pitched:ident $value:ident: $t:ty;)*) => { $(
        /// Sets a range.
        pub fn $linear(
            cx: &mut CallContext<'_>,
            dst: DevicePtr,
            $value: $t,
            n: u64,
            stream: StreamId,
        ) -> CuResult<()> {
            match linear(cx, dst, n, size_of::<$t>() as u64, stream)? {
                // SAFETY: the range belongs to the session.
                Some(stream) => unsafe { cx.gpu().$linear(dst.0, $value, n as usize, stream) },
                None => Ok(()),
            }
        }

        /// Sets a pitched rectangle.
        pub fn $pitched(
            cx: &mut CallContext<'_>,
            dst: DevicePtr,
            pitch: u64,
            $value: $t,
            width: u64,
            height: u64,
            stream: StreamId,
        ) -> CuResult<()> {
            match pitched(cx, dst, (pitch, width, height), size_of::<$t>() as u64, stream)? {
                // SAFETY: the range from the first to the last row belongs to the session.
                Some(stream) => unsafe {
                    cx.gpu().$pitched(dst.0, pitch as usize, $value, width as usize, height as usize, stream)
                },
                None => Ok(()),
            }
        }
    )* };
}

sets! {
    cuMemsetD8Async cuMemsetD2D8Async uc: u8;
    cuMemsetD16Async cuMemsetD2D16Async us: u16;
    cuMemsetD32Async cuMemsetD2D32Async ui: u32;
}
