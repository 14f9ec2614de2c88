// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `nvmlReturn_t`.

use core::ffi::{CStr, c_char};

use virtio_cuda_client::CudaError;

/// `nvmlReturn_t`, an `enum` in C.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nvmlReturn_t(pub u32);

/// Result of every function.
pub type Result<T = ()> = core::result::Result<T, nvmlReturn_t>;

pub const NVML_SUCCESS: nvmlReturn_t = nvmlReturn_t(0);
pub const NVML_ERROR_UNINITIALIZED: nvmlReturn_t = nvmlReturn_t(1);
pub const NVML_ERROR_INVALID_ARGUMENT: nvmlReturn_t = nvmlReturn_t(2);
pub const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_t(3);
pub const NVML_ERROR_NO_PERMISSION: nvmlReturn_t = nvmlReturn_t(4);
pub const NVML_ERROR_NOT_FOUND: nvmlReturn_t = nvmlReturn_t(6);
pub const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_t(7);
pub const NVML_ERROR_DRIVER_NOT_LOADED: nvmlReturn_t = nvmlReturn_t(9);
pub const NVML_ERROR_TIMEOUT: nvmlReturn_t = nvmlReturn_t(10);
pub const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = nvmlReturn_t(13);
pub const NVML_ERROR_GPU_IS_LOST: nvmlReturn_t = nvmlReturn_t(15);
pub const NVML_ERROR_NO_DATA: nvmlReturn_t = nvmlReturn_t(21);
pub const NVML_ERROR_ARGUMENT_VERSION_MISMATCH: nvmlReturn_t = nvmlReturn_t(25);
pub const NVML_ERROR_UNKNOWN: nvmlReturn_t = nvmlReturn_t(999);

/// The numbers of `nvml.h` and their texts.
const TEXTS: &[(u32, &CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (5, c"Already Initialized"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (8, c"Insufficient External Power"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (11, c"Interrupt Request Issue"),
    (12, c"NVML Shared Library Not Found"),
    (13, c"Function Not Found"),
    (14, c"Corrupted infoROM"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"GPU access blocked by the operating system"),
    (18, c"Driver/library version mismatch"),
    (19, c"In use by another client"),
    (20, c"Insufficient Memory"),
    (21, c"No data"),
    (22, c"The requested vgpu operation is not available on target device, because ECC is enabled"),
    (23, c"Insufficient resources"),
    (24, c"Frequency not supported"),
    (25, c"Argument version mismatch"),
    (26, c"The requested functionality has been deprecated"),
    (27, c"Not Ready"),
    (28, c"GPU not found"),
    (29, c"Invalid state"),
    (999, c"Unknown Error"),
];

/// Returns the text of a result; works without initialisation.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let found = TEXTS.iter().find(|(number, _)| *number == result.0);
    found.map_or(c"Unknown Error", |(_, text)| text).as_ptr()
}

/// Converts an error of the session to NVML's.
pub fn of_call(error: CudaError) -> nvmlReturn_t {
    match error {
        CudaError::NOT_SUPPORTED => NVML_ERROR_NOT_SUPPORTED,
        CudaError::NO_DEVICE => NVML_ERROR_DRIVER_NOT_LOADED,
        CudaError::NOT_INITIALIZED | CudaError::DEINITIALIZED => NVML_ERROR_UNINITIALIZED,
        CudaError::INVALID_VALUE | CudaError::INVALID_DEVICE => NVML_ERROR_INVALID_ARGUMENT,
        CudaError::DEVICE_UNAVAILABLE | CudaError::LAUNCH_TIMEOUT => NVML_ERROR_GPU_IS_LOST,
        _ => NVML_ERROR_UNKNOWN,
    }
}
