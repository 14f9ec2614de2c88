// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles, and parameters of Jacobi's methods.

use std::ffi::c_int;

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use crate::exported::exported;
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

exported! {
    /// Sets a mode. None has an effect: results are the same in every run, the CPU has one kind of instructions, and nothing is
    /// emulated.
    pub extern "C" fn(set) [
        cusolverDnSetDeterministicMode(|dense: &mut Dense, mode| dense.deterministic = mode),
        cusolverDnSetMathMode(|dense: &mut Dense, mode| dense.math = mode),
        cusolverDnSetEmulationStrategy(|dense: &mut Dense, mode| dense.emulation = mode),
    ]
    (handle: Handle, mode: c_int) -> Status {
        status(with(handle, |dense| set(dense, mode)))
    }

    /// Returns a mode.
    pub unsafe extern "C" fn(get) [
        cusolverDnGetDeterministicMode(|dense: &mut Dense| dense.deterministic),
        cusolverDnGetMathMode(|dense: &mut Dense| dense.math),
        cusolverDnGetEmulationStrategy(|dense: &mut Dense| dense.emulation),
    ]
    (handle: Handle, place: *mut c_int) -> Status {
        // SAFETY: the caller gives a place for a number, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        status(with(handle, |dense| *place = get(dense)))
    }
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusolverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(version) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    *version = VERSION;
    SUCCESS
}

exported! {
    /// Creates it.
    pub unsafe extern "C" fn(make) [
        cusolverDnCreate(make::<Dense>), cusolverDnCreateParams(make::<Params>), cusolverDnCreateSyevjInfo(make::<SyevjInfo>),
        cusolverDnCreateGesvdjInfo(make::<GesvdjInfo>),
    ]
    (place: *mut Handle) -> Status {
        // SAFETY: the caller gives a place for a handle, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        *place = make();
        SUCCESS
    }

    /// Ends it.
    pub extern "C" fn(end) [
        cusolverDnDestroy(handles::end::<Dense>), cusolverDnDestroyParams(handles::end::<Params>), cusolverDnDestroySyevjInfo(handles::end::<SyevjInfo>),
        cusolverDnDestroyGesvdjInfo(handles::end::<GesvdjInfo>),
    ]
    (handle: Handle) -> Status {
        if end(handle) { SUCCESS } else { NOT_INITIALIZED }
    }
}

/// `cusolverDnParams_t`
#[derive(Default)]
struct Params;
/// `syevjInfo_t`
#[derive(Default)]
struct SyevjInfo;
/// `gesvdjInfo_t`
#[derive(Default)]
struct GesvdjInfo;

fn make<T: Default + Send + 'static>() -> Handle {
    handles::make(T::default())
}

/// Takes a setting. None changes anything: all methods converge as far as they can.
fn take<T: Send + 'static>(handle: Handle) -> Status {
    status(handles::with(handle, |_: &mut T| ()).ok_or(NOT_INITIALIZED))
}

exported! {
    /// Takes a tolerance.
    pub extern "C" fn(take) [
        cusolverDnXsyevjSetTolerance(take::<SyevjInfo>), cusolverDnXgesvdjSetTolerance(take::<GesvdjInfo>),
    ]
    (handle: Handle, _tolerance: f64) -> Status {
        take(handle)
    }

    /// Takes a number of sweeps, or whether values are sorted.
    pub extern "C" fn(take) [
        cusolverDnXsyevjSetMaxSweeps(take::<SyevjInfo>), cusolverDnXsyevjSetSortEig(take::<SyevjInfo>),
        cusolverDnXgesvdjSetMaxSweeps(take::<GesvdjInfo>), cusolverDnXgesvdjSetSortEig(take::<GesvdjInfo>),
    ]
    (handle: Handle, _value: c_int) -> Status {
        take(handle)
    }
}
