// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Page-locked host memory. Flags have the same numbers in both APIs.

use core::ffi::{c_uint, c_void};
use core::ptr;

use crate::abi::CUdeviceptr;
use crate::abi::shared::cudaHostAllocMapped;
use crate::error::Result;
use crate::pointers::{Out, not_null};
use crate::{driver, state};

api! {
    fn cudaMallocHost(memory: Out<*mut c_void>, size: usize) {
        allocate(memory, size, 0)
    }

    fn cudaHostAlloc(memory: Out<*mut c_void>, size: usize, flags: c_uint) {
        // NVIDIA's runtime always requests mapped memory, as cudaHostGetFlags shows.
        allocate(memory, size, flags | cudaHostAllocMapped)
    }

    fn cudaFreeHost(memory: *mut c_void) {
        state::context()?;
        if memory.is_null() {
            return Ok(());
        }
    } => driver::cuMemFreeHost(memory);

    fn cudaHostRegister(memory: *mut c_void, size: usize, flags: c_uint) {
        state::context()?;
    } => driver::cuMemHostRegister_v2(memory, size, flags);

    fn cudaHostUnregister(memory: *mut c_void) {
        state::context()?;
    } => driver::cuMemHostUnregister(memory);

    fn cudaHostGetDevicePointer(device_pointer: *mut *mut c_void, memory: *mut c_void, flags: c_uint) {
        not_null(device_pointer)?;
        state::context()?;
    } => driver::cuMemHostGetDevicePointer_v2(device_pointer.cast::<CUdeviceptr>(), memory, flags);

    fn cudaHostGetFlags(flags: *mut c_uint, memory: *mut c_void) {
        not_null(flags)?;
        state::context()?;
    } => driver::cuMemHostGetFlags(flags, memory);
}

fn allocate(memory: Out<*mut c_void>, size: usize, flags: c_uint) -> Result {
    memory.check()?;
    state::context()?;
    if size == 0 {
        return memory.set(ptr::null_mut());
    }
    // SAFETY: not null, so room for an address by the invariant of `Out`.
    unsafe { driver::cuMemHostAlloc(memory.as_ptr(), size, flags) }
}
