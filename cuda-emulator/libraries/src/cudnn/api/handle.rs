// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles, versions and the names of statuses.

use std::ffi::{c_char, c_int, c_void};

use super::super::{BAD_PARAM, NOT_SUPPORTED, SUCCESS, Settings, Status, give, status, stream_of};
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::stream::Stream;

/// The release whose functions these are: 9.19.0.
const VERSION: [c_int; 3] = [9, 19, 0];

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    (VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2]) as usize
}

/// The newest device that the library knows: compute capability 12.1.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetMaxDeviceVersion() -> usize {
    1210
}

/// The version of the runtime that the library was made with.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    crate::version::RUNTIME
}

/// A part of the version, by `libraryPropertyType`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetProperty(part: c_int, value: *mut c_int) -> Status {
    let found = usize::try_from(part).ok().and_then(|part| VERSION.get(part)).copied();
    // SAFETY: the caller gives a place for a number, or null.
    status(found.ok_or(BAD_PARAM).and_then(|found| unsafe { give(value, found) }))
}

exported! {
    /// All parts of the library are of one version.
    pub extern "C" fn [cudnnGraphVersionCheck, cudnnOpsVersionCheck, cudnnCnnVersionCheck, cudnnAdvVersionCheck]
    () -> Status {
        SUCCESS
    }
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: Status) -> *const c_char {
    let name = match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
        2000 => c"CUDNN_STATUS_BAD_PARAM",
        2002 => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
        2004 => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
        3000 => c"CUDNN_STATUS_NOT_SUPPORTED",
        4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        4003 => c"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        5000 => c"CUDNN_STATUS_EXECUTION_FAILED",
        _ => c"CUDNN_UNKNOWN_STATUS",
    };
    name.as_ptr()
}

/// The library keeps no message of its last error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, room: usize) {
    if !message.is_null() && room > 0 {
        // SAFETY: the caller gives as much room, which is not none.
        unsafe { message.write(0) };
    }
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(handle: *mut Handle) -> Status {
    if handle.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: the caller gives a place for a handle.
    status(unsafe { give(handle, handles::make(Settings::default())) })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroy(handle: Handle) -> Status {
    if handles::end::<Settings>(handle) { SUCCESS } else { BAD_PARAM }
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: Handle, stream: Stream) -> Status {
    status(handles::with(handle, |settings: &mut Settings| settings.stream = stream).ok_or(BAD_PARAM))
}

/// The stream of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(handle: Handle, stream: *mut Stream) -> Status {
    // SAFETY: the caller gives a place for a stream, or null.
    status(stream_of(handle).and_then(|found| unsafe { give(stream, found) }))
}

/// The error of work that has run. Work that fails ends the context, which CUDA reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnQueryRuntimeError(
    handle: Handle,
    found: *mut Status,
    mode: c_int,
    _tag: *mut c_void,
) -> Status {
    let answer = stream_of(handle).and_then(|_| match mode {
        // SAFETY: the caller gives a place for a status, or null.
        0 | 1 => unsafe { give(found, SUCCESS) },
        2 => Err(NOT_SUPPORTED),
        _ => Err(BAD_PARAM),
    });
    status(answer)
}
