// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `CUptiResult`, and the wrapper of every exported function.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `CUptiResult`
pub type CUptiResult = u32;

pub const INVALID_PARAMETER: CUptiResult = 1;
pub const INVALID_DEVICE: CUptiResult = 2;
pub const INVALID_CONTEXT: CUptiResult = 3;
pub const INVALID_OPERATION: CUptiResult = 7;
pub const PARAMETER_SIZE_NOT_SUFFICIENT: CUptiResult = 10;
pub const MAX_LIMIT_REACHED: CUptiResult = 12;
pub const NOT_INITIALIZED: CUptiResult = 15;
pub const QUEUE_EMPTY: CUptiResult = 18;
pub const INVALID_STREAM: CUptiResult = 20;
pub const INVALID_KIND: CUptiResult = 21;
pub const NOT_SUPPORTED: CUptiResult = 27;
pub const MULTIPLE_SUBSCRIBERS: CUptiResult = 39;
pub const UNKNOWN: CUptiResult = 999;

/// The result of a body.
pub type Result<T = ()> = std::result::Result<T, CUptiResult>;

/// Numbers and names.
static RESULTS: &[(CUptiResult, &CStr)] = include!(concat!(env!("OUT_DIR"), "/results.rs"));

/// Runs the body of an exported function. Panics do not reach C.
pub fn enter(body: impl FnOnce() -> Result) -> CUptiResult {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error,
        Err(_) => UNKNOWN,
    }
}

/// Stores a result.
///
/// Errors: `CUPTI_ERROR_INVALID_PARAMETER` for NULL.
///
/// # Safety
///
/// `place` is NULL or valid for writing.
pub unsafe fn set<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: not NULL, so valid by this function's contract. C does not promise alignment in packed structures.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Implements each name of `names.txt` that has no function here (`build.rs`).
#[unsafe(no_mangle)]
extern "C" fn vhost_cupti_absent() -> CUptiResult {
    NOT_SUPPORTED
}

fn name_of(result: CUptiResult) -> Option<&'static CStr> {
    RESULTS.iter().find(|(number, _)| *number == result).map(|(_, name)| *name)
}

/// Stores the name of a result.
///
/// # Safety
///
/// `name` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(result: CUptiResult, name: *mut *const c_char) -> CUptiResult {
    enter(|| {
        let text = name_of(result).ok_or(INVALID_PARAMETER)?;
        // SAFETY: this function's contract.
        unsafe { set(name, text.as_ptr()) }
    })
}

/// Stores the message of a result: its name.
///
/// # Safety
///
/// `message` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetErrorMessage(
    result: CUptiResult,
    message: *mut *const c_char,
) -> CUptiResult {
    // SAFETY: this function's contract.
    unsafe { cuptiGetResultString(result, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_names() {
        assert_eq!(name_of(0), Some(c"CUPTI_SUCCESS"));
        assert_eq!(name_of(NOT_SUPPORTED), Some(c"CUPTI_ERROR_NOT_SUPPORTED"));
        assert_eq!(name_of(12345), None);
        assert_eq!(enter(|| panic!("expected in this test")), UNKNOWN);
    }
}
