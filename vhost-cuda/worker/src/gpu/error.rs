// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the driver.

use cudarc::driver::sys;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CUDA error {0}")]
pub struct CudaError(pub i32);

impl CudaError {
    /// An argument is out of range, or an address outside the session's memory.
    pub const INVALID_VALUE: Self = Self(sys::CUresult::CUDA_ERROR_INVALID_VALUE as i32);
    /// No memory, or a table of the session is full.
    pub const OUT_OF_MEMORY: Self = Self(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32);
    /// The host's kernel has failed.
    pub const OPERATING_SYSTEM: Self = Self(sys::CUresult::CUDA_ERROR_OPERATING_SYSTEM as i32);
    /// No such device.
    pub const INVALID_DEVICE: Self = Self(sys::CUresult::CUDA_ERROR_INVALID_DEVICE as i32);
    /// The context was destroyed.
    pub const CONTEXT_IS_DESTROYED: Self = Self(sys::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as i32);
    /// There is no such context, or no current one.
    pub const INVALID_CONTEXT: Self = Self(sys::CUresult::CUDA_ERROR_INVALID_CONTEXT as i32);
    /// The image is invalid.
    pub const INVALID_IMAGE: Self = Self(sys::CUresult::CUDA_ERROR_INVALID_IMAGE as i32);
    /// The image contains no code for the device.
    pub const NO_BINARY_FOR_GPU: Self = Self(sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as i32);
    /// The primary context is active.
    pub const PRIMARY_CONTEXT_ACTIVE: Self = Self(sys::CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE as i32);
    /// The session does not have this handle.
    pub const INVALID_HANDLE: Self = Self(sys::CUresult::CUDA_ERROR_INVALID_HANDLE as i32);
    /// The host does not have the requested object.
    pub const NOT_FOUND: Self = Self(sys::CUresult::CUDA_ERROR_NOT_FOUND as i32);
    /// A library of NVIDIA reports an unknown failure.
    pub const UNKNOWN: Self = Self(sys::CUresult::CUDA_ERROR_UNKNOWN as i32);
    /// A kernel ran longer than allowed.
    pub const LAUNCH_TIMEOUT: Self = Self(sys::CUresult::CUDA_ERROR_LAUNCH_TIMEOUT as i32);
    /// The event or stream has not completed.
    pub const NOT_READY: Self = Self(sys::CUresult::CUDA_ERROR_NOT_READY as i32);
    /// The stream is not in the state that the call needs.
    pub const ILLEGAL_STATE: Self = Self(sys::CUresult::CUDA_ERROR_ILLEGAL_STATE as i32);
    /// A capture forbids the call.
    pub const CAPTURE_UNSUPPORTED: Self = Self(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as i32);
    /// The event's last record belongs to a capture.
    pub const CAPTURED_EVENT: Self = Self(sys::CUresult::CUDA_ERROR_CAPTURED_EVENT as i32);
    /// A capture is ended by a thread that did not begin it.
    pub const WRONG_THREAD: Self = Self(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as i32);
    /// The host's driver does not have the function.
    pub const NOT_SUPPORTED: Self = Self(sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as i32);
    /// Guest library and worker have different call tables.
    pub const SYSTEM_DRIVER_MISMATCH: Self = Self(sys::CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as i32);
}

/// The result of a driver call.
pub type CuResult<T> = Result<T, CudaError>;
