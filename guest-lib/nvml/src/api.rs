// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wrapper of every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_absent_names::Arguments;

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

/// The number of names of functions that change a card. They come first, and their first parameter is a device.
const SETTERS: u32 = include!(concat!(env!("OUT_DIR"), "/setters.rs"));

/// Implements every name of `names.txt` that has no function here (`build.rs`). Only the host may change a card.
#[unsafe(no_mangle)]
extern "C" fn vhost_nvml_absent(name: u32, arguments: &Arguments) -> nvmlReturn_t {
    enter(|| {
        if name < SETTERS {
            state::device(arguments[0] as nvmlDevice_t).and(Err(NVML_ERROR_NO_PERMISSION))
        } else {
            state::devices().and(Err(NVML_ERROR_NOT_SUPPORTED))
        }
    })
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
