// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that return errors and their texts.

use core::cell::Cell;
use core::ffi::c_char;

use crate::error::{self, cudaError_t, cudaErrorCudartUnloading, cudaSuccess, describe};
use crate::state;

fn text(
    error: cudaError_t,
    pick: fn((&'static core::ffi::CStr, &'static core::ffi::CStr)) -> &'static core::ffi::CStr,
) -> *const c_char {
    describe(error).map_or(c"unrecognized error code", pick).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(error: cudaError_t) -> *const c_char {
    text(error, |(name, _)| name)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(error: cudaError_t) -> *const c_char {
    text(error, |(_, text)| text)
}

/// Returns the last error and clears it. Starts the driver like every other call; if that fails, every later call
/// returns that error.
#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> cudaError_t {
    last(|cell| cell.replace(cudaSuccess))
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> cudaError_t {
    last(Cell::get)
}

fn last(read: fn(&Cell<cudaError_t>) -> cudaError_t) -> cudaError_t {
    if state::is_unloading() {
        return cudaErrorCudartUnloading;
    }
    match state::initialization_error() {
        Some(error) => error,
        None => error::last(read),
    }
}
