// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSPARSELt: products with a matrix of which two in four neighbours are zero (one in two, for floats of 32 bits). It has two
//! algorithms, which compute the same.

mod matrix;
pub(crate) mod objects;
mod pattern;
pub(crate) mod product;
pub(crate) mod sparse;

use std::ffi::{c_char, c_int};

use crate::cusparse::handle::cusparseGetErrorName;
use crate::cusparse::{INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use crate::handles;

/// The version whose API these functions follow: 0.8.0.
const VERSION: [c_int; 3] = [0, 8, 0];

/// A `cusparseLtHandle_t` of this library has no state but its number, which is at the structure's start.
struct Light;

/// Returns whether there is a handle at an address.
///
/// # Safety
///
/// `handle` is null or a structure.
unsafe fn check_handle(handle: *const usize) -> Result<(), Status> {
    // SAFETY: null, or a structure that starts with a word by this function's contract.
    let number = if handle.is_null() { 0 } else { unsafe { handle.read_unaligned() } };
    handles::with(number, |_: &mut Light| ()).ok_or(NOT_INITIALIZED)
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtInit(handle: *mut usize) -> Status {
    if handle.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and the caller gives room for a handle.
    unsafe { handle.write_unaligned(handles::make(Light)) };
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtDestroy(handle: *const usize) -> Status {
    // SAFETY: the caller gives a handle, or null.
    let result = unsafe { check_handle(handle) };
    if result.is_ok() {
        // SAFETY: it is a handle.
        handles::end::<Light>(unsafe { handle.read_unaligned() });
    }
    status(result)
}

/// The version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtGetVersion(handle: *const usize, version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    let [major, minor, patch] = VERSION;
    *place = major * 1000 + minor * 100 + patch;
    // SAFETY: the caller gives a handle, or null.
    status(unsafe { check_handle(handle) })
}

/// A part of the version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtGetProperty(kind: c_int, value: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let place = unsafe { value.as_mut() };
    match (place, usize::try_from(kind).ok().and_then(|kind| VERSION.get(kind))) {
        (Some(place), Some(part)) => {
            *place = *part;
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorName(status: Status) -> *const c_char {
    cusparseGetErrorName(status)
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseLtGetErrorString(status: Status) -> *const c_char {
    cusparseGetErrorName(status)
}
