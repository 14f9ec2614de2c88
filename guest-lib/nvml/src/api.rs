// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame around every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NO_PERMISSION,
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, NVML_SUCCESS, Result, nvmlReturn_t,
};
use crate::state::{self, nvmlDevice_t};

/// Runs the body of an exported function; no panic goes into C.
pub fn enter(body: impl FnOnce() -> Result) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => NVML_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => NVML_ERROR_UNKNOWN,
    }
}

/// Answers every name of `names.txt` that has no function here; `build.rs` makes the aliases.
#[unsafe(no_mangle)]
extern "C" fn vhost_nvml_not_supported() -> nvmlReturn_t {
    enter(|| state::devices().and(Err(NVML_ERROR_NOT_SUPPORTED)))
}

/// Answers every name of `setters.txt`: a card is the host's to change. All begin with a device.
#[unsafe(no_mangle)]
extern "C" fn vhost_nvml_no_permission(device: nvmlDevice_t) -> nvmlReturn_t {
    enter(|| state::device(device).and(Err(NVML_ERROR_NO_PERMISSION)))
}

/// Declares exported functions: `fn name(arguments) { body }`, or `fn name, same_under_another_name(…) { … }`. A body
/// gives a `Result` and may use unsafe operations.
macro_rules! api {
    () => {};
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::error::nvmlReturn_t {
            // SAFETY: the caller of an NVML function vouches for what it passes, as NVML's documentation of the
            // function demands; null is checked before a pointer is used.
            $crate::api::enter(move || unsafe { $body })
        }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident, $other:ident $args:tt $body:block $($rest:tt)*) => {
        api! { $(#[$meta])* fn $name $args $body }
        api! { $(#[$meta])* fn $other $args $body }
        api! { $($rest)* }
    };
}

/// `*pointer = value`, refusing null.
///
/// # Safety
/// `pointer` is null or valid for a write of `T`.
pub unsafe fn store<T>(pointer: *mut T, value: T) -> Result {
    if pointer.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null, so valid by this function's contract.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes `text` and a NUL into a buffer of `length` bytes.
///
/// # Safety
/// `buffer` is null or valid for writing `length` bytes.
pub unsafe fn store_text(buffer: *mut core::ffi::c_char, length: u32, text: &[u8]) -> Result {
    if buffer.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: text and NUL fit, and the buffer is valid by this function's contract.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}
