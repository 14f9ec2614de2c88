// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of other processes, and functions that the driver calls in a stream.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use super::argument::StreamFunction;
use super::{
    CUevent, CUmemGenericAllocationHandle, CUmemoryPool, CUstream, CuResult, CudaError, Driver, RawIpcHandle,
};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const HANDLE_TYPE_FILE: u32 = 1;

/// An event that another process has offered.
#[derive(Debug)]
pub struct SharedEvent {
    /// The handle.
    pub handle: RawIpcHandle,
    /// The file of the emulator's handle, open as long as the event.
    pub file: Option<File>,
}

/// A function with its argument, for a stream.
#[derive(Debug)]
pub struct StreamCallback {
    function: StreamFunction,
    data: *mut c_void,
}

impl StreamCallback {
    /// Returns a function that takes a number as its data.
    ///
    /// # Safety
    /// The function may be called with that number, at any time and on any thread.
    pub unsafe fn new(function: StreamFunction, number: u64) -> Self {
        Self { function, data: std::ptr::without_provenance_mut(number as usize) }
    }
}

/// Returns the file of what `export` writes.
///
/// # Safety
///
/// `export` must make the driver write a descriptor of its own there, which nothing else closes.
unsafe fn exported(export: impl FnOnce(*mut c_void, c_int) -> CuResult<()>) -> CuResult<File> {
    let mut descriptor = -1i32;
    export((&raw mut descriptor).cast(), HANDLE_TYPE_FILE as i32)?;
    if descriptor < 0 {
        return Err(CudaError::NOT_SUPPORTED);
    }
    // SAFETY: the descriptor is new, and given to this process by the call above.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

impl Driver {
    /// Exports physical memory as a file.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` without a file, and the driver's.
    pub fn memory_file(&self, memory: CUmemGenericAllocationHandle) -> CuResult<File> {
        // SAFETY: for this kind of handle the driver writes a file descriptor, an `int`, there.
        unsafe { exported(|out, kind| self.cuMemExportToShareableHandle(out, memory, kind, 0)) }
    }

    /// As [`Self::memory_file`], for a pool.
    pub fn pool_file(&self, pool: CUmemoryPool) -> CuResult<File> {
        // SAFETY: for this kind of handle the driver writes a file descriptor, an `int`, there.
        unsafe { exported(|out, kind| self.cuMemPoolExportToShareableHandle(out, pool, kind, 0)) }
    }

    /// Opens an event of another process.
    pub fn open_event(&self, SharedEvent { handle, file }: SharedEvent) -> CuResult<(CUevent,)> {
        let opened = self.cuIpcOpenEventHandle(handle);
        drop(file);
        opened
    }

    /// Opens a pool of another process.
    pub fn open_pool(&self, file: File) -> CuResult<(CUmemoryPool,)> {
        let shareable = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: for this kind of handle the pointer is a file descriptor, which is open across the call.
        unsafe { self.cuMemPoolImportFromShareableHandle(shareable, HANDLE_TYPE_FILE as i32, 0) }
    }

    /// Makes the driver call a function in stream order, also after an error.
    pub fn add_callback(&self, stream: CUstream, callback: StreamCallback) -> CuResult<()> {
        // SAFETY: by the promise to `StreamCallback::new`.
        unsafe { self.cuStreamAddCallback(stream, Some(callback.function), callback.data, 0) }
    }
}
