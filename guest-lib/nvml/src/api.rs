// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wrapper of every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{
    NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, NVML_SUCCESS, Result,
    nvmlReturn_t,
};
use crate::state::{self, nvmlDevice_t};

/// Runs the body of an exported function. Panics do not reach C.
pub fn enter(body: impl FnOnce() -> Result) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => NVML_SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => NVML_ERROR_UNKNOWN,
    }
}

/// Implements every name of `names.txt` that has no function here; `build.rs` makes the aliases.
#[unsafe(no_mangle)]
extern "C" fn vhost_nvml_not_supported() -> nvmlReturn_t {
    enter(|| state::devices().and(Err(NVML_ERROR_NOT_SUPPORTED)))
}

/// Implements every name of `setters.txt`: only the host may change a card. The first parameter is always a device.
#[unsafe(no_mangle)]
extern "C" fn vhost_nvml_no_permission(device: nvmlDevice_t) -> nvmlReturn_t {
    enter(|| state::device(device).and(Err(NVML_ERROR_NO_PERMISSION)))
}

/// Declares exported functions: `fn name(arguments) { body }`, or `fn name, same_under_another_name(…) { … }`. A body
/// returns a `Result`.
///
/// # Safety
///
/// An exported function has the contract that NVML's documentation of the function states, and its caller keeps it:
/// each pointer is null or valid, during the call, for what the function reads and writes there. Comments in this crate
/// call this "the program's promise".
macro_rules! api {
    () => {};
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The pointers are those that NVIDIA's manual asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::error::nvmlReturn_t {
            $crate::api::enter(move || $body)
        }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident, $other:ident $args:tt $body:block $($rest:tt)*) => {
        api! { $(#[$meta])* fn $name $args $body }
        api! { $(#[$meta])* fn $other $args $body }
        api! { $($rest)* }
    };
}
