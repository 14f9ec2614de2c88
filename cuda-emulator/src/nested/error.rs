// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of the device runtime: cudaError_t, as driver_types.h has it.

/// A cudaError_t that is not cudaSuccess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeError(pub u32);

impl RuntimeError {
    /// cudaErrorInvalidValue
    pub const INVALID_VALUE: RuntimeError = RuntimeError(1);
    /// cudaErrorMemoryAllocation
    pub const MEMORY_ALLOCATION: RuntimeError = RuntimeError(2);
    /// cudaErrorInvalidConfiguration
    pub const INVALID_CONFIGURATION: RuntimeError = RuntimeError(9);
    /// cudaErrorInvalidPitchValue
    pub const INVALID_PITCH_VALUE: RuntimeError = RuntimeError(12);
    /// cudaErrorInvalidMemcpyDirection
    pub const INVALID_MEMCPY_DIRECTION: RuntimeError = RuntimeError(21);
    /// cudaErrorLaunchMaxDepthExceeded
    pub const LAUNCH_MAX_DEPTH_EXCEEDED: RuntimeError = RuntimeError(65);
    /// cudaErrorLaunchPendingCountExceeded
    pub const LAUNCH_PENDING_COUNT_EXCEEDED: RuntimeError = RuntimeError(69);
    /// cudaErrorInvalidDeviceFunction
    pub const INVALID_DEVICE_FUNCTION: RuntimeError = RuntimeError(98);
    /// cudaErrorInvalidDevice
    pub const INVALID_DEVICE: RuntimeError = RuntimeError(101);
    /// cudaErrorUnsupportedLimit
    pub const UNSUPPORTED_LIMIT: RuntimeError = RuntimeError(215);
    /// cudaErrorInvalidResourceHandle
    pub const INVALID_RESOURCE_HANDLE: RuntimeError = RuntimeError(400);
    /// cudaErrorIllegalAddress
    pub const ILLEGAL_ADDRESS: RuntimeError = RuntimeError(700);
    /// cudaErrorLaunchOutOfResources
    pub const LAUNCH_OUT_OF_RESOURCES: RuntimeError = RuntimeError(701);
    /// cudaErrorNotSupported
    pub const NOT_SUPPORTED: RuntimeError = RuntimeError(801);
    /// cudaErrorUnknown
    pub const UNKNOWN: RuntimeError = RuntimeError(999);
}

/// Values, names and texts.
static TEXTS: &[(u32, &str, &str)] = &[
    (0, "cudaSuccess", "no error"),
    (RuntimeError::INVALID_VALUE.0, "cudaErrorInvalidValue", "invalid argument"),
    (RuntimeError::MEMORY_ALLOCATION.0, "cudaErrorMemoryAllocation", "out of memory"),
    (
        RuntimeError::INVALID_CONFIGURATION.0,
        "cudaErrorInvalidConfiguration",
        "invalid configuration argument",
    ),
    (RuntimeError::INVALID_PITCH_VALUE.0, "cudaErrorInvalidPitchValue", "invalid pitch argument"),
    (
        RuntimeError::INVALID_MEMCPY_DIRECTION.0,
        "cudaErrorInvalidMemcpyDirection",
        "invalid copy direction for memcpy",
    ),
    (
        RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED.0,
        "cudaErrorLaunchMaxDepthExceeded",
        "launch would exceed maximum depth of nested launches",
    ),
    (
        RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED.0,
        "cudaErrorLaunchPendingCountExceeded",
        "launch would exceed limit set by cudaLimitDevRuntimePendingLaunchCount",
    ),
    (RuntimeError::INVALID_DEVICE_FUNCTION.0, "cudaErrorInvalidDeviceFunction", "invalid device function"),
    (RuntimeError::INVALID_DEVICE.0, "cudaErrorInvalidDevice", "invalid device ordinal"),
    (
        RuntimeError::UNSUPPORTED_LIMIT.0,
        "cudaErrorUnsupportedLimit",
        "limit is not supported on this architecture",
    ),
    (RuntimeError::INVALID_RESOURCE_HANDLE.0, "cudaErrorInvalidResourceHandle", "invalid resource handle"),
    (RuntimeError::ILLEGAL_ADDRESS.0, "cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    (
        RuntimeError::LAUNCH_OUT_OF_RESOURCES.0,
        "cudaErrorLaunchOutOfResources",
        "too many resources requested for launch",
    ),
    (RuntimeError::NOT_SUPPORTED.0, "cudaErrorNotSupported", "operation not supported"),
    (RuntimeError::UNKNOWN.0, "cudaErrorUnknown", "unknown error"),
];

/// Returns the name and the text of a code.
pub(crate) fn texts(code: u32) -> (&'static str, &'static str) {
    let found = TEXTS.iter().find(|(known, ..)| *known == code);
    found.map_or(("unrecognized error code", "unrecognized error code"), |(_, name, text)| (name, text))
}
