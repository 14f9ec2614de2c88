// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The failing values of `CUresult`.

use std::fmt;

use virtio_cuda_protocol::cuda::breaks_context;

/// A `CUresult` other than `CUDA_SUCCESS`. Any number that the device returns is kept unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CudaError(i32);

impl CudaError {
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// `CUDA_ERROR_DEINITIALIZED`.
    pub const DEINITIALIZED: Self = Self(4);
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
    pub const DEVICE_UNAVAILABLE: Self = Self(46);
    /// `CUDA_ERROR_NO_DEVICE`.
    pub const NO_DEVICE: Self = Self(100);
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub const INVALID_DEVICE: Self = Self(101);
    /// `CUDA_ERROR_INVALID_IMAGE`.
    pub const INVALID_IMAGE: Self = Self(200);
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
    pub const NO_BINARY_FOR_GPU: Self = Self(209);
    /// `CUDA_ERROR_JIT_COMPILATION_DISABLED`.
    pub const JIT_COMPILATION_DISABLED: Self = Self(223);
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
    pub const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    /// `CUDA_ERROR_FILE_NOT_FOUND`.
    pub const FILE_NOT_FOUND: Self = Self(301);
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub const INVALID_HANDLE: Self = Self(400);
    /// `CUDA_ERROR_NOT_FOUND`.
    pub const NOT_FOUND: Self = Self(500);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`.
    pub const LAUNCH_TIMEOUT: Self = Self(702);
    /// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
    pub const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    /// `CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE`.
    pub const PRIMARY_CONTEXT_ACTIVE: Self = Self(708);
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    /// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    /// Something cannot be mapped.
    pub const MAP_FAILED: Self = Self(205);
    /// The operating system refuses.
    pub const OPERATING_SYSTEM: Self = Self(304);
    /// `CUDA_ERROR_NOT_PERMITTED`.
    pub const NOT_PERMITTED: Self = Self(800);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH`.
    pub const SYSTEM_DRIVER_MISMATCH: Self = Self(803);
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
    pub const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    /// `CUDA_ERROR_UNKNOWN`.
    pub const UNKNOWN: Self = Self(999);

    /// Splits a `CUresult` into success and failure.
    pub const fn check(code: i32) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self(code)) }
    }

    /// Returns whether all later calls in the context fail, too.
    pub const fn breaks_context(self) -> bool {
        breaks_context(self.0)
    }

    /// Returns the number, as C has it.
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUresult {}", self.0)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
