// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuSOLVER (chapter 2 of NVIDIA's manual): dense functions, which need no workspace, and sparse ones.

pub(crate) mod batched;
pub(crate) mod decompose;
pub(crate) mod factor;
mod general;
pub(crate) mod generalised;
pub(crate) mod generic;
mod given;
pub mod handle;
pub(crate) mod range;
pub(crate) mod sparse;

use std::ffi::c_int;

/// `cusolverStatus_t`
pub type Status = i32;

/// `CUSOLVER_STATUS_SUCCESS`
pub const SUCCESS: Status = 0;
/// `CUSOLVER_STATUS_NOT_INITIALIZED`
pub const NOT_INITIALIZED: Status = 1;
/// `CUSOLVER_STATUS_INVALID_VALUE`
pub const INVALID_VALUE: Status = 3;
/// `CUSOLVER_STATUS_EXECUTION_FAILED`
pub const EXECUTION_FAILED: Status = 6;
/// `CUSOLVER_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: Status = 9;

/// Elements of a workspace, as the functions that ask for it answer: a program may allocate nothing for 0.
pub const WORKSPACE: c_int = 16;

/// The body of an exported function, as a status.
pub fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// A size that is not negative.
pub fn size(value: impl TryInto<usize>) -> Result<usize, Status> {
    value.try_into().map_err(|_| INVALID_VALUE)
}

/// Answers [`WORKSPACE`].
fn workspace(handle: usize, place: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    *place = WORKSPACE;
    status(handle::stream(handle).map(|_| ()))
}
