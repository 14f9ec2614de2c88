// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The copy engine's interface to the GPU: asynchronous copies of pinned memory in the order of one stream, and marks
//! in that order. It is a trait, so that tests can replace it by an implementation that finishes late or fails.

use super::super::gpu::{
    CUdeviceptr, CUstream, CuResult, Driver, EVENT_DISABLE_TIMING, HOST_PORTABLE_MAPPED, with_capture_relaxed,
};

/// A mark in a stream: an event of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub usize);

/// Copies in the order of one stream.
pub trait Dma {
    /// Pins memory of this process for the current context.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped while the context lives.
    unsafe fn pin(&self, address: *mut u8, bytes: usize) -> CuResult<()>;

    /// Starts a copy from pinned memory.
    ///
    /// # Safety
    ///
    /// `src` must be valid for `bytes` bytes until the copy is done, and the range at `dst` must belong to the
    /// session.
    unsafe fn send(&self, dst: CUdeviceptr, src: *const u8, bytes: usize) -> CuResult<()>;

    /// Starts a copy to pinned memory.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for `bytes` bytes and unused by others until the copy is done, and the range at `src` must
    /// belong to the session.
    unsafe fn fetch(&self, dst: *mut u8, src: CUdeviceptr, bytes: usize) -> CuResult<()>;

    /// Creates a mark.
    fn create(&self) -> CuResult<Mark>;
    /// Records the mark after all copies that were started.
    fn record(&self, mark: Mark) -> CuResult<()>;
    /// Returns whether all work before the mark is done, and false on an error.
    fn is_done(&self, mark: Mark) -> bool;
    /// Waits until all work before the mark is done.
    fn wait(&self, mark: Mark) -> CuResult<()>;
}

/// A stream of the driver.
#[derive(Debug)]
pub struct Stream<'a> {
    /// The driver.
    pub gpu: &'a Driver,
    /// The stream.
    pub stream: CUstream,
}

impl Dma for Stream<'_> {
    unsafe fn pin(&self, address: *mut u8, bytes: usize) -> CuResult<()> {
        with_capture_relaxed(self.gpu, || {
            // SAFETY: `Dma::pin` demands that the memory stays mapped while the context lives.
            unsafe { self.gpu.cuMemHostRegister_v2(address.cast(), bytes, HOST_PORTABLE_MAPPED) }
        })
    }

    unsafe fn send(&self, dst: CUdeviceptr, src: *const u8, bytes: usize) -> CuResult<()> {
        // SAFETY: `Dma::send` demands that `src` is good for `bytes` bytes until the copy is done, and `dst` the session's.
        unsafe { self.gpu.cuMemcpyHtoDAsync_v2(dst, src.cast(), bytes, self.stream) }
    }

    unsafe fn fetch(&self, dst: *mut u8, src: CUdeviceptr, bytes: usize) -> CuResult<()> {
        // SAFETY: `Dma::fetch` demands that `dst` is good for `bytes` bytes until the copy is done, and `src` the session's.
        unsafe { self.gpu.cuMemcpyDtoHAsync_v2(dst.cast(), src, bytes, self.stream) }
    }

    fn create(&self) -> CuResult<Mark> {
        Ok(Mark(self.gpu.cuEventCreate(EVENT_DISABLE_TIMING)?.0 as usize))
    }

    fn record(&self, mark: Mark) -> CuResult<()> {
        self.gpu.cuEventRecordWithFlags(mark.0 as _, self.stream, 0)
    }

    fn is_done(&self, mark: Mark) -> bool {
        with_capture_relaxed(self.gpu, || self.gpu.cuEventQuery(mark.0 as _).is_ok())
    }

    fn wait(&self, mark: Mark) -> CuResult<()> {
        with_capture_relaxed(self.gpu, || self.gpu.cuEventSynchronize(mark.0 as _))
    }
}
