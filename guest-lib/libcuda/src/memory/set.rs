// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Fills of memory. A call waits only if it must: for memory that the program also sees.

use virtio_cuda_client::protocol::{DevicePtr, StreamId};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::memory::place::Place;
use crate::state::moving::Uses;

/// Returns whether a fill at `address` need not wait. `bytes` is its length if it is contiguous. A fill in stream order
/// never waits; without a stream it waits if the program sees the memory.
fn may_post(api: Api, address: u64, bytes: Option<usize>, stream: Option<u64>, shared: bool) -> bool {
    let ordered = match stream {
        Some(stream) => api.may_post(stream),
        None => api.may_post(0) && !shared,
    };
    ordered && bytes.is_some_and(|bytes| api.owns(address, bytes as u64))
}

/// The length of a fill.
struct Length {
    elements: usize,
    /// `None` if it is not contiguous.
    bytes: Option<usize>,
}

/// Fills `count` contiguous values of type `T` with `row`, one mapping of host memory at a time, because the driver
/// fills within one registration only. `row` gets the call, the GPU's address, the number of values and the stream.
fn set_linear<T>(
    api: Api,
    dst: u64,
    stream: Option<u64>,
    count: usize,
    row: impl Fn(&mut Call<'_>, DevicePtr, u64, StreamId) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let (mut dst, mut count) = (dst, count);
    loop {
        let bytes = bytes_of::<T>(dst, count);
        let seam = bytes.map(|bytes| api.driver.memory.ranges.before_seam(dst, bytes as u64)).transpose()?;
        // Mappings begin at addresses that are aligned for all value sizes.
        let first = seam.flatten().map(|first| first as usize / size_of::<T>());
        let elements = first.unwrap_or(count);
        let length = Length { elements, bytes: bytes_of::<T>(dst, elements) };
        set(api, dst, stream, length, |call, dst, stream| row(call, dst, elements as u64, stream))?;
        if first.is_none() {
            return Ok(());
        }
        dst += (elements * size_of::<T>()) as u64;
        count -= elements;
    }
}

/// Fills with `row`, which gets the call, the GPU's address and the stream.
fn set(
    api: Api,
    dst: u64,
    stream: Option<u64>,
    length: Length,
    row: impl FnOnce(&mut Call<'_>, DevicePtr, StreamId) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let Length { elements, bytes } = length;
    let mut call = api.in_context()?;
    if elements == 0 {
        return Ok(());
    }
    let all = (dst, bytes.map_or(u64::MAX, |bytes| bytes as u64));
    let order = stream.map_or(Ok(api.default_stream()), |stream| api.stream(stream))?;
    let _sent = api.before_work(Uses::Memory([all, (0, 0)]), order)?;
    let place = api.device_place(dst);
    let address = place.device().ok_or(CudaError::INVALID_VALUE)?;
    let shared = matches!(place, Place::Pinned { .. });
    if shared && api.driver.memory.ranges.host(dst).is_some_and(|range| !api.is_reached(&range)) {
        return Err(CudaError::INVALID_VALUE);
    }
    call = call.posted_if(may_post(api, address, bytes, stream, shared));
    if stream.is_none() {
        call = call.immediate();
    }
    row(&mut call, DevicePtr(address), order)?;
    api.work_queued();
    if stream.is_none() {
        if shared {
            api.wait_for_stream(order)?;
        }
        api.end_synchronous(shared)?;
    }
    api.end_asynchronous(order)
}

/// Returns the bytes of `count` values at `address`. `None` if they are misaligned or too long.
fn bytes_of<T>(address: u64, count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>()).filter(|_| address.is_multiple_of(size_of::<T>() as u64))
}

/// Defines entry points that set values, for each size of a value.
macro_rules! set_entry_points {
    ($($name:ident / $name_ptds:ident, $name_async:ident / $name_async_ptsz:ident => $row:ident, $value:ty;)*
     ;; pitched $($name2:ident / $name2_ptds:ident, $name2_async:ident / $name2_async_ptsz:ident => $row2:ident, $value2:ty;)*) => {
        entry_points! {
            $(
                /// Sets `N` values.
                call $name / $name_ptds (api, dstDevice: u64, value: $value, N: usize) {
                    set_linear::<$value>(api, dstDevice, None, N, |call, dst, count, stream| calls::$row(call, dst, value, count, stream))
                }
                /// Sets `N` values in stream order.
                call $name_async / $name_async_ptsz (api, dstDevice: u64, value: $value, N: usize, hStream: u64) {
                    set_linear::<$value>(api, dstDevice, Some(hStream), N, |call, dst, count, stream| calls::$row(call, dst, value, count, stream))
                }
            )*
            $(
                /// Sets a pitched rectangle of values.
                call $name2 / $name2_ptds (api, dstDevice: u64, dstPitch: usize, value: $value2, Width: usize, Height: usize) {
                    set(api, dstDevice, None, Length { elements: Width.saturating_mul(Height), bytes: None }, |call, dst, stream| {
                        calls::$row2(call, dst, dstPitch as u64, value, Width as u64, Height as u64, stream)
                    })
                }
                /// Sets a pitched rectangle of values in stream order.
                call $name2_async / $name2_async_ptsz (api, dstDevice: u64, dstPitch: usize, value: $value2, Width: usize, Height: usize, hStream: u64) {
                    set(api, dstDevice, Some(hStream), Length { elements: Width.saturating_mul(Height), bytes: None }, |call, dst, stream| {
                        calls::$row2(call, dst, dstPitch as u64, value, Width as u64, Height as u64, stream)
                    })
                }
            )*
        }
    };
}

set_entry_points! {
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds, cuMemsetD8Async / cuMemsetD8Async_ptsz => cuMemsetD8Async, u8;
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds, cuMemsetD16Async / cuMemsetD16Async_ptsz => cuMemsetD16Async, u16;
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds, cuMemsetD32Async / cuMemsetD32Async_ptsz => cuMemsetD32Async, u32;
    ;; pitched
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz => cuMemsetD2D8Async, u8;
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz => cuMemsetD2D16Async, u16;
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz => cuMemsetD2D32Async, u32;
}
