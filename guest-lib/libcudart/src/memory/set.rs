// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fills with a byte.

use core::ffi::{c_int, c_void};

use super::copy::Order;
use crate::abi::cudaStream_t;
use crate::abi::shared::{cudaExtent, cudaPitchedPtr};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::memory::address;
use crate::{driver, state};

api! {
    fn cudaMemset, cudaMemset_ptds(memory: *mut c_void, value: c_int, size: usize) on stream {} => linear(memory, value, size, Order::Blocking(stream));

    fn cudaMemsetAsync, cudaMemsetAsync_ptsz(
        memory: *mut c_void, value: c_int, size: usize, stream: cudaStream_t,
    ) per_thread stream {} => linear(memory, value, size, Order::Queued(stream));

    fn cudaMemset2D, cudaMemset2D_ptds(
        memory: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
    ) on stream {} => rectangle(memory, pitch, value, width, height, Order::Blocking(stream));

    fn cudaMemset2DAsync, cudaMemset2DAsync_ptsz(
        memory: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: cudaStream_t,
    ) per_thread stream {} => rectangle(memory, pitch, value, width, height, Order::Queued(stream));

    fn cudaMemset3D, cudaMemset3D_ptds(memory: cudaPitchedPtr, value: c_int, extent: cudaExtent) on stream {} => volume(&memory, value, &extent, Order::Blocking(stream));

    fn cudaMemset3DAsync, cudaMemset3DAsync_ptsz(
        memory: cudaPitchedPtr, value: c_int, extent: cudaExtent, stream: cudaStream_t,
    ) per_thread stream {} => volume(&memory, value, &extent, Order::Queued(stream));
}

/// Truncates the `int` argument to the fill byte, as memset(3) does.
fn byte(value: c_int) -> u8 {
    value as u8
}

/// # Safety
/// `memory` is valid for `size` bytes.
unsafe fn linear(memory: *mut c_void, value: c_int, size: usize, order: Order) -> Result {
    state::context()?;
    if size == 0 {
        return Ok(());
    }
    // SAFETY: the memory is valid for `size` bytes by this function's contract.
    unsafe {
        match order.queue() {
            None => driver::cuMemsetD8_v2(address(memory), byte(value), size),
            Some(stream) => driver::cuMemsetD8Async(address(memory), byte(value), size, stream),
        }
    }
}

/// # Safety
/// `memory` is valid for the rectangle.
unsafe fn rectangle(
    memory: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    order: Order,
) -> Result {
    state::context()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    // SAFETY: the rectangle is valid memory by this function's contract.
    unsafe {
        match order.queue() {
            None => driver::cuMemsetD2D8_v2(address(memory), pitch, byte(value), width, height),
            Some(stream) => {
                driver::cuMemsetD2D8Async(address(memory), pitch, byte(value), width, height, stream)
            }
        }
    }
}

/// Slices that follow each other without a gap are one rectangle.
///
/// # Safety
/// `memory` is valid for the box.
unsafe fn volume(memory: &cudaPitchedPtr, value: c_int, extent: &cudaExtent, order: Order) -> Result {
    if extent.depth > 1 && extent.height > memory.ysize {
        return Err(cudaErrorInvalidValue);
    }
    let (slices, rows) = if extent.depth <= 1 || extent.height == memory.ysize {
        (extent.depth.min(1), extent.height.checked_mul(extent.depth).ok_or(cudaErrorInvalidValue)?)
    } else {
        (extent.depth, extent.height)
    };
    let slice_size = memory.pitch.checked_mul(memory.ysize).ok_or(cudaErrorInvalidValue)?;
    state::context()?;
    for slice in 0..slices {
        let offset = slice_size.checked_mul(slice).ok_or(cudaErrorInvalidValue)?;
        let start = memory.ptr.wrapping_byte_add(offset);
        // SAFETY: the box is valid memory by this function's contract, and each slice lies in it.
        unsafe { rectangle(start, memory.pitch, value, extent.width, rows, order) }?;
    }
    Ok(())
}
