// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device memory.

use core::ffi::{c_uint, c_void};
use core::ptr;

use crate::abi::CUdeviceptr;
use crate::abi::shared::{cudaExtent, cudaPitchedPtr};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::memory::address;
use crate::pointers::Out;
use crate::{driver, state};

/// Rows of pitched memory are aligned for elements of this many bytes, the smallest that the driver accepts.
const PITCH_ELEMENT_SIZE: c_uint = 4;

api! {
    fn cudaMalloc(memory: Out<*mut c_void>, size: usize) {
        memory.check()?;
        state::context()?;
        if size == 0 {
            return memory.set(ptr::null_mut());
        }
    } => driver::cuMemAlloc_v2(memory.as_ptr().cast::<CUdeviceptr>(), size);

    fn cudaFree(memory: *mut c_void) {
        state::context()?;
    } => driver::cuMemFree_v2(address(memory));

    fn cudaMallocManaged(memory: Out<*mut c_void>, size: usize, flags: c_uint) {
        memory.check()?;
        state::context()?;
        if size == 0 {
            return memory.set(ptr::null_mut());
        }
    } => driver::cuMemAllocManaged(memory.as_ptr().cast::<CUdeviceptr>(), size, flags);

    fn cudaMallocPitch(memory: Out<*mut c_void>, pitch: Out<usize>, width: usize, height: usize) {
        memory.check()?;
        pitch.check()?;
        state::context()?;
        let (allocated, row) = allocate_pitched(width, height)?;
        memory.set(allocated)?;
        pitch.set(row)
    }

    fn cudaMalloc3D(memory: Out<cudaPitchedPtr>, extent: cudaExtent) {
        memory.check()?;
        state::context()?;
        let rows = extent.height.checked_mul(extent.depth).ok_or(cudaErrorInvalidValue)?;
        let (ptr, pitch) = allocate_pitched(extent.width, rows)?;
        memory.set(cudaPitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height })
    }

    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        state::context()?;
    } => driver::cuMemGetInfo_v2(free, total);
}

/// Returns the address and the pitch in bytes; null and 0 for an empty area.
fn allocate_pitched(width: usize, height: usize) -> Result<(*mut c_void, usize)> {
    if width == 0 || height == 0 {
        return Ok((ptr::null_mut(), 0));
    }
    let mut memory: *mut c_void = ptr::null_mut();
    let mut pitch = 0;
    let place = ptr::from_mut(&mut memory).cast::<CUdeviceptr>();
    // SAFETY: both places are valid for the writes; a pointer and a CUdeviceptr have the same size.
    unsafe { driver::cuMemAllocPitch_v2(place, &mut pitch, width, height, PITCH_ELEMENT_SIZE) }?;
    Ok((memory, pitch))
}
