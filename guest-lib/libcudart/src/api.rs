// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wrapper of every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_abi::{API_RUNTIME, TraceArguments};

use crate::error::{
    self, Result, cudaError_t, cudaErrorCudartUnloading, cudaErrorNotSupported, cudaErrorUnknown,
};
use crate::{state, trace};

/// Runs the body of an exported function. After the library's destructor the body does not run. Panics do not reach C,
/// and failures are stored as the thread's last error. Profilers get its name.
#[inline]
pub fn enter(
    name: &'static str,
    arguments: impl FnOnce() -> TraceArguments,
    body: impl FnOnce() -> Result,
) -> cudaError_t {
    if state::is_unloading() {
        return cudaErrorCudartUnloading;
    }
    match trace::hooks() {
        None => run(body),
        Some(hooks) => {
            let number = || run(body).0.cast_signed();
            cudaError_t(hooks.told(API_RUNTIME, name, &arguments(), number).cast_unsigned())
        }
    }
}

#[inline]
fn run(body: impl FnOnce() -> Result) -> cudaError_t {
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

/// The number of names that CUDA had first. Those behind them were added after 13.0.
const FIRST_NAMES: u32 = include!(concat!(env!("OUT_DIR"), "/first_names.rs"));

/// Implements every name of `names/` that has no function here (`build.rs`).
#[unsafe(no_mangle)]
extern "C" fn vhost_cudart_absent(name: u32) -> cudaError_t {
    let is_newer = name >= FIRST_NAMES;
    enter("", TraceArguments::new, || {
        Err(if is_newer { error::cudaErrorCallRequiresNewerDriver } else { cudaErrorNotSupported })
    })
}

/// Declares exported functions. The forms:
///
/// * `fn name(arguments) { body }`
/// * `fn name, name_ptsz(arguments) per_thread stream { body }`: the second function turns the argument
///   `stream` from 0 into `cudaStreamPerThread`.
/// * `fn name, name_ptds(arguments) on stream { body }`: a call without a stream argument; `stream` is the
///   default stream it works on.
///
/// `fn name / name_in_12`: the library of 12 exports this function under the second name, and a different function
/// under the first (see `v12`). That of 11 has the second name from the same sources, and hides it if it is not one of 11.
///
/// A body returns a `Result`. With `{ body } => driver::cuName(arguments);` the body is a sequence of statements. An
/// unsafe function, usually the driver's, then takes the arguments and returns the result.
///
/// # Safety
///
/// An exported function has the contract that NVIDIA's documentation of the function states, and its caller
/// keeps it: each pointer is null or valid, during the call, for what the function reads and writes there; each handle
/// is live. Comments in this crate call this "the program's promise".
macro_rules! api {
    () => {};
    ($(#[$meta:meta])* fn $name:ident $(/ $in_12:ident)? $(, $other:ident $(/ $other_in_12:ident)?)? ($($args:tt)*) $($how:ident $stream:ident)? {
        $($body:tt)*
    } => $($function:ident)::+($($given:expr),* $(,)?); $($rest:tt)*) => {
        api! {
            $(#[$meta])*
            fn $name $(/ $in_12)? $(, $other $(/ $other_in_12)?)? ($($args)*) $($how $stream)? {
                $($body)*
                hand_over! { [$($function)::+]($($given),*) () a b c d e f g h i j k l }
            }
        }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident / $in_12:ident $args:tt $body:block $($rest:tt)*) => {
        #[cfg(cuda_major = "13")]
        api! { $(#[$meta])* fn $name $args $body }
        #[cfg(not(cuda_major = "13"))]
        api! { $(#[$meta])* fn $in_12 $args $body }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident / $in_12:ident, $ptsz:ident / $ptsz_in_12:ident $args:tt per_thread $stream:ident $body:block $($rest:tt)*) => {
        #[cfg(cuda_major = "13")]
        api! { $(#[$meta])* fn $name, $ptsz $args per_thread $stream $body }
        #[cfg(not(cuda_major = "13"))]
        api! { $(#[$meta])* fn $in_12, $ptsz_in_12 $args per_thread $stream $body }
        api! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The pointers are those that NVIDIA's manual asks for.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::error::cudaError_t {
            $crate::api::enter(stringify!($name), || ::cuda_abi::trace_arguments!($($arg),*), move || $body)
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

/// Calls an unsafe function at the end of an exported function: `[function](arguments) () names`. The arguments are
/// bound to the names, so that they are evaluated outside of `unsafe`.
macro_rules! hand_over {
    ([$($function:ident)::+]() ($($bound:ident)*) $($free:ident)*) => {
        // SAFETY: the arguments are numbers, locals of the exported function, which live until the call returns, and
        // the exported function's own parameters. For these the called function has the contract of the exported
        // function, which the program promises to keep (see `api`).
        unsafe { $($function)::+($($bound),*) }
    };
    ([$($function:ident)::+]($given:expr $(, $more:expr)*) ($($bound:ident)*) $next:ident $($free:ident)*) => {{
        let $next = $given;
        hand_over! { [$($function)::+]($($more),*) ($($bound)* $next) $($free)* }
    }};
}
