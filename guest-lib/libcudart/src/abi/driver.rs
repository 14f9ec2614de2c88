// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver API's structs that differ from the runtime's and that other crates do not need. Sizes and offsets are
//! those of the 13.0 `cuda.h`.

use core::ffi::c_uint;
use core::ptr;

pub use cuda_abi::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC,
    CUgraphNodeParams, CUlaunchConfig, CopyEnd2D, CopyEnd3D,
};
#[cfg(not(cuda_major = "13"))]
pub use cuda_abi::{CUDA_EXTERNAL_SEMAPHORE_PARAMS, CUDA_LAUNCH_PARAMS};

use crate::error::Result;
use crate::pointers::not_null;

pub const CU_MEMORYTYPE_HOST: c_uint = 1;
pub const CU_MEMORYTYPE_DEVICE: c_uint = 2;
pub const CU_MEMORYTYPE_ARRAY: c_uint = 3;
pub const CU_MEMORYTYPE_UNIFIED: c_uint = 4;

pub const CU_LIBRARY_BINARY_IS_PRESERVED: c_uint = 1;
pub const CU_MODULE_EAGER_LOADING: c_uint = 1;

pub const CU_GET_PROC_ADDRESS_DEFAULT: u64 = 0;
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: u64 = 2;

pub const CU_POINTER_ATTRIBUTE_CONTEXT: c_uint = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: c_uint = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: c_uint = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: c_uint = 4;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: c_uint = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_uint = 9;

/// A driver struct that begins with the fields of a runtime struct. Reserved words may follow, which the runtime of 12
/// does not have.
#[repr(C, align(8))]
pub struct Extended<const SIZE: usize>([u8; SIZE]);

impl<const SIZE: usize> Extended<SIZE> {
    pub fn new() -> Self {
        Self([0; SIZE])
    }

    /// Returns the driver's form of `given`, whose fields take `bytes` bytes. Refuses null.
    ///
    /// # Safety
    /// `given` is null or valid for reading `bytes` bytes.
    pub unsafe fn of<T>(given: *const T, bytes: usize) -> Result<Self> {
        not_null(given)?;
        let mut answer = Self::new();
        let bytes = bytes.min(SIZE);
        // SAFETY: `given` is not null, so by this function's contract it has `bytes` bytes; `answer` has room for SIZE.
        unsafe { ptr::copy_nonoverlapping(given.cast::<u8>(), answer.0.as_mut_ptr(), bytes) };
        Ok(answer)
    }

    /// Writes the part of an answer that the runtime's struct has.
    ///
    /// # Safety
    /// `target` is valid for writing `bytes` bytes.
    pub unsafe fn store<T>(&self, target: *mut T, bytes: usize) {
        // SAFETY: `target` has room for `bytes` bytes by this function's contract; no more than SIZE are read.
        unsafe { ptr::copy_nonoverlapping(self.0.as_ptr(), target.cast::<u8>(), bytes.min(SIZE)) };
    }

    pub fn as_ptr<T>(&self) -> *const T {
        self.0.as_ptr().cast()
    }

    pub fn as_mut_ptr<T>(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }
}
