// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame around every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{
    self, Result, cudaError_t, cudaErrorCudartUnloading, cudaErrorNotSupported, cudaErrorUnknown,
};
use crate::state;

/// Runs the body of an exported function: nothing after the library's destructor, no panic into C, failures
/// remembered for the thread.
#[inline]
pub fn enter(body: impl FnOnce() -> Result) -> cudaError_t {
    if state::is_unloading() {
        return cudaErrorCudartUnloading;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => error::cudaSuccess,
        Ok(Err(error)) => {
            error::record(error);
            error
        }
        Err(_) => {
            error::record(cudaErrorUnknown);
            cudaErrorUnknown
        }
    }
}

/// Answers every name of `names/` that has no function here; `build.rs` makes the aliases.
#[unsafe(no_mangle)]
extern "C" fn vhost_cudart_not_supported() -> cudaError_t {
    enter(|| Err(cudaErrorNotSupported))
}

/// Answers the names that CUDA added after 13.0 and that have no function here.
#[cfg(cuda_major = "13")]
#[unsafe(no_mangle)]
extern "C" fn vhost_cudart_needs_newer_driver() -> cudaError_t {
    enter(|| Err(error::cudaErrorCallRequiresNewerDriver))
}

/// Declares exported functions. The forms:
///
/// * `fn name(arguments) { body }`
/// * `fn name, name_ptsz(arguments) per_thread stream { body }`: the second function turns the argument
///   `stream` from 0 into `cudaStreamPerThread`.
/// * `fn name, name_ptds(arguments) on stream { body }`: a call without a stream argument; `stream` is the
///   default stream it works on.
///
/// `fn name / name_in_12`: the library of 12 knows this function by the second name, and another one by the
/// first (see `v12`).
///
/// A body gives a `Result` and may use unsafe operations.
macro_rules! api {
    () => {};
    ($(#[$meta:meta])* fn $name:ident / $in_12:ident $args:tt $body:block $($rest:tt)*) => {
        #[cfg(cuda_major = "13")]
        api! { $(#[$meta])* fn $name $args $body }
        #[cfg(cuda_major = "12")]
        api! { $(#[$meta])* fn $in_12 $args $body }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident / $in_12:ident, $ptsz:ident / $ptsz_in_12:ident $args:tt per_thread $stream:ident $body:block $($rest:tt)*) => {
        #[cfg(cuda_major = "13")]
        api! { $(#[$meta])* fn $name, $ptsz $args per_thread $stream $body }
        #[cfg(cuda_major = "12")]
        api! { $(#[$meta])* fn $in_12, $ptsz_in_12 $args per_thread $stream $body }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::error::cudaError_t {
            // SAFETY: the caller of a CUDA function vouches for what it passes, as CUDA's documentation of
            // the function demands; pointers are only handed on to the driver or used as documented there.
            $crate::api::enter(move || unsafe { $body })
        }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident, $ptsz:ident($($arg:ident: $ty:ty),* $(,)?) per_thread $stream:ident $body:block $($rest:tt)*) => {
        api! {
            $(#[$meta])* fn $name($($arg: $ty),*) $body
            $(#[$meta])* fn $ptsz($($arg: $ty),*) {
                let $stream = $crate::abi::shared::or_per_thread($stream);
                $body
            }
            $($rest)*
        }
    };
    ($(#[$meta:meta])* fn $name:ident, $ptds:ident($($arg:ident: $ty:ty),* $(,)?) on $stream:ident $body:block $($rest:tt)*) => {
        api! {
            $(#[$meta])* fn $name($($arg: $ty),*) {
                let $stream = $crate::abi::shared::DEFAULT_STREAM;
                $body
            }
            $(#[$meta])* fn $ptds($($arg: $ty),*) {
                let $stream = $crate::abi::shared::PER_THREAD_STREAM;
                $body
            }
            $($rest)*
        }
    };
}
