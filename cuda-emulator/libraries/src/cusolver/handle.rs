// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles, and parameters of Jacobi's methods.

use std::ffi::c_int;

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use crate::handles::{self, Handle};
use crate::stream::{self, Done, Fault, Stream};

/// The version that `cusolverGetVersion` answers: 12.0.0.
pub const VERSION: c_int = 12_000;

/// A `cusolverDnHandle_t`.
#[derive(Default)]
struct Dense {
    stream: Stream,
    deterministic: c_int,
    math: c_int,
    emulation: c_int,
}

fn with<R>(handle: Handle, body: impl FnOnce(&mut Dense) -> R) -> Result<R, Status> {
    handles::with(handle, body).ok_or(NOT_INITIALIZED)
}

/// The stream of a handle.
pub fn stream(handle: Handle) -> Result<Stream, Status> {
    with(handle, |dense| dense.stream)
}

/// Queues work in the stream of a handle.
pub fn queue(handle: Handle, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), Status> {
    stream::queue(stream(handle)?, work).map_err(|_| EXECUTION_FAILED)
}

/// Queues work that leaves a result for the caller, and waits for it.
pub fn queue_and_wait<T: Send + 'static>(
    handle: Handle,
    work: impl Fn() -> Result<T, Fault> + Send + Sync + 'static,
) -> Result<T, Status> {
    stream::result_of(stream(handle)?, work).map_err(|_| EXECUTION_FAILED)
}

/// Refuses a handle that is neither null nor a `cusolverDnParams_t`.
pub fn check_params(handle: Handle) -> Result<(), Status> {
    if handle == 0 { Ok(()) } else { handles::with(handle, |_: &mut Params| ()).ok_or(INVALID_VALUE) }
}

/// Takes a choice of an algorithm, of which there is one here.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnSetAdvOptions(params: Handle, _function: c_int, _algorithm: c_int) -> Status {
    status(handles::with(params, |_: &mut Params| ()).ok_or(INVALID_VALUE))
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusolverDnSetStream(handle: Handle, stream: Stream) -> Status {
    status(with(handle, |dense| dense.stream = stream))
}

/// Returns the stream of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverDnGetStream(handle: Handle, place: *mut Stream) -> Status {
    // SAFETY: the caller gives a place for a stream, or null.
    let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
    status(with(handle, |dense| *place = dense.stream))
}

macro_rules! modes {
    ($($(#[$doc:meta])* $set:ident $get:ident $field:ident;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(handle: Handle, mode: c_int) -> Status {
            status(with(handle, |dense| dense.$field = mode))
        }

        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: Handle, mode: *mut c_int) -> Status {
            // SAFETY: the caller gives a place for a number, or null.
            let Some(place) = (unsafe { mode.as_mut() }) else { return INVALID_VALUE };
            status(with(handle, |dense| *place = dense.$field))
        }
    )* };
}

modes! {
    /// Results are the same in every run whatever the mode is.
    cusolverDnSetDeterministicMode cusolverDnGetDeterministicMode deterministic;
    /// The allowed instructions, without effect: the CPU has one kind.
    cusolverDnSetMathMode cusolverDnGetMathMode math;
    /// When lower precision may stand for a higher one: nothing is emulated here.
    cusolverDnSetEmulationStrategy cusolverDnGetEmulationStrategy emulation;
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(version) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    *version = VERSION;
    SUCCESS
}

/// Parameters that change nothing here: all methods converge as far as they can.
macro_rules! objects {
    ($($type:ident $value:expr, $create:ident $destroy:ident $($set:ident $argument:ty,)*;)*) => { $(
        /// Creates it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(place: *mut Handle) -> Status {
            // SAFETY: the caller gives a place for a handle, or null.
            let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
            *place = handles::make::<$type>($value);
            SUCCESS
        }

        /// Ends it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(handle: Handle) -> Status {
            if handles::end::<$type>(handle) { SUCCESS } else { NOT_INITIALIZED }
        }

        $(
            /// Takes a setting.
            #[unsafe(no_mangle)]
            pub extern "C" fn $set(handle: Handle, _value: $argument) -> Status {
                status(handles::with(handle, |_: &mut $type| ()).ok_or(NOT_INITIALIZED))
            }
        )*
    )* };
}

/// `cusolverDnParams_t`
struct Params;
/// `syevjInfo_t`
struct SyevjInfo;
/// `gesvdjInfo_t`
struct GesvdjInfo;

objects! {
    Dense Dense::default(), cusolverDnCreate cusolverDnDestroy;
    Params Params, cusolverDnCreateParams cusolverDnDestroyParams;
    SyevjInfo SyevjInfo, cusolverDnCreateSyevjInfo cusolverDnDestroySyevjInfo cusolverDnXsyevjSetTolerance f64,
        cusolverDnXsyevjSetMaxSweeps c_int, cusolverDnXsyevjSetSortEig c_int,;
    GesvdjInfo GesvdjInfo, cusolverDnCreateGesvdjInfo cusolverDnDestroyGesvdjInfo cusolverDnXgesvdjSetTolerance f64,
        cusolverDnXgesvdjSetMaxSweeps c_int, cusolverDnXgesvdjSetSortEig c_int,;
}
