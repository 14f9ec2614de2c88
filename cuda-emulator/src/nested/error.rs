// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of the device runtime: cudaError_t, as driver_types.h has it.

/// A cudaError_t that is not cudaSuccess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeError(pub u32);

/// Names, values and texts.
macro_rules! errors {
    ($($constant:ident $code:literal $name:literal $text:literal;)*) => {
        impl RuntimeError {
            $(#[doc = $name] pub const $constant: RuntimeError = RuntimeError($code);)*
        }

        static TEXTS: &[(u32, &str, &str)] = &[(0, "cudaSuccess", "no error"), $(($code, $name, $text)),*];
    };
}

errors! {
    INVALID_VALUE 1 "cudaErrorInvalidValue" "invalid argument";
    MEMORY_ALLOCATION 2 "cudaErrorMemoryAllocation" "out of memory";
    INVALID_CONFIGURATION 9 "cudaErrorInvalidConfiguration" "invalid configuration argument";
    INVALID_PITCH_VALUE 12 "cudaErrorInvalidPitchValue" "invalid pitch argument";
    INVALID_MEMCPY_DIRECTION 21 "cudaErrorInvalidMemcpyDirection" "invalid copy direction for memcpy";
    LAUNCH_MAX_DEPTH_EXCEEDED 65 "cudaErrorLaunchMaxDepthExceeded" "launch would exceed maximum depth of nested launches";
    LAUNCH_PENDING_COUNT_EXCEEDED 69 "cudaErrorLaunchPendingCountExceeded"
        "launch would exceed limit set by cudaLimitDevRuntimePendingLaunchCount";
    INVALID_DEVICE_FUNCTION 98 "cudaErrorInvalidDeviceFunction" "invalid device function";
    INVALID_DEVICE 101 "cudaErrorInvalidDevice" "invalid device ordinal";
    UNSUPPORTED_LIMIT 215 "cudaErrorUnsupportedLimit" "limit is not supported on this architecture";
    INVALID_RESOURCE_HANDLE 400 "cudaErrorInvalidResourceHandle" "invalid resource handle";
    ILLEGAL_ADDRESS 700 "cudaErrorIllegalAddress" "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES 701 "cudaErrorLaunchOutOfResources" "too many resources requested for launch";
    NOT_SUPPORTED 801 "cudaErrorNotSupported" "operation not supported";
    UNKNOWN 999 "cudaErrorUnknown" "unknown error";
}

/// Returns the name and the text of a code.
pub(crate) fn texts(code: u32) -> (&'static str, &'static str) {
    let found = TEXTS.iter().find(|(known, ..)| *known == code);
    found.map_or(("unrecognized error code", "unrecognized error code"), |(_, name, text)| (name, text))
}
