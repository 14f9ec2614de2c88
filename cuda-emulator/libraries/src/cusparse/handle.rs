// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles.

use std::ffi::{c_char, c_int};

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, give, status};
use crate::cublas::handle::Scalar;
use crate::handles::{self, Handle};
use crate::memory::Array;
use crate::numbers::{C64, Type};
use crate::stream::{self, Done, Fault, Stream};

/// The version that `cusparseGetVersion` answers: 12.6.0.
pub const VERSION: c_int = 12_600;

/// A `cusparseHandle_t`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    stream: Stream,
    device_scalars: bool,
}

fn with<R>(handle: Handle, body: impl FnOnce(&mut Settings) -> R) -> Result<R, Status> {
    handles::with(handle, body).ok_or(NOT_INITIALIZED)
}

/// The settings of a handle.
pub fn settings(handle: Handle) -> Result<Settings, Status> {
    with(handle, |settings| *settings)
}

impl Settings {
    /// Returns a scalar from the memory that the pointer mode selects.
    pub fn scalar(&self, kind: Type, address: usize) -> Result<Scalar, Status> {
        Scalar::at(self.device_scalars, kind, address).map_err(|_| INVALID_VALUE)
    }

    /// Queues work in the stream.
    pub fn queue(&self, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), Status> {
        stream::queue(self.stream, work).map_err(|_| EXECUTION_FAILED)
    }

    /// Queues work that leaves a result for the caller, and waits for it.
    pub fn wait<T: Send + 'static>(
        &self,
        work: impl Fn() -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<T, Status> {
        stream::result_of(self.stream, work).map_err(|_| EXECUTION_FAILED)
    }

    /// Queues work whose result is for the place that the program gives. One in host memory is waited for.
    pub fn result(
        &self,
        kind: Type,
        place: usize,
        work: impl Fn() -> Result<C64, Fault> + Send + Sync + 'static,
    ) -> Result<(), Status> {
        if place == 0 {
            return Err(INVALID_VALUE);
        }
        if self.device_scalars {
            return self.queue(move || {
                let place = Array::new(kind, place, 1)?;
                place.set(0, work()?);
                Ok(())
            });
        }
        let found = self.wait(work)?;
        // SAFETY: in this mode the caller gives a place for a value of that type in host memory.
        unsafe { kind.write(place, found) };
        Ok(())
    }

    /// The same for a number of 32 bits.
    pub fn count(
        &self,
        place: usize,
        work: impl Fn() -> Result<usize, Fault> + Send + Sync + 'static,
    ) -> Result<(), Status> {
        let work = move || c_int::try_from(work()?).map_err(|_| Fault);
        self.result(Type::I32, place, move || Ok(C64::new(work()?.into(), 0.0)))
    }
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreate(place: *mut Handle) -> Status {
    // SAFETY: the caller gives a place for a handle, or null.
    unsafe { give(place, Ok(Settings::default())) }
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroy(handle: Handle) -> Status {
    if handles::end::<Settings>(handle) { SUCCESS } else { NOT_INITIALIZED }
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSetStream(handle: Handle, stream: Stream) -> Status {
    status(with(handle, |settings| settings.stream = stream))
}

/// Sets where scalars lie.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseSetPointerMode(handle: Handle, mode: c_int) -> Status {
    if !(0..=1).contains(&mode) {
        return INVALID_VALUE;
    }
    status(with(handle, |settings| settings.device_scalars = mode == 1))
}

/// Returns the location of scalars.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseGetPointerMode(handle: Handle, mode: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { mode.as_mut() }) else { return INVALID_VALUE };
    status(with(handle, |settings| *place = c_int::from(settings.device_scalars)))
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseGetVersion(_handle: Handle, version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(version) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    *version = VERSION;
    SUCCESS
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorName(status: Status) -> *const c_char {
    let name = match status {
        0 => c"CUSPARSE_STATUS_SUCCESS",
        1 => c"CUSPARSE_STATUS_NOT_INITIALIZED",
        3 => c"CUSPARSE_STATUS_INVALID_VALUE",
        6 => c"CUSPARSE_STATUS_EXECUTION_FAILED",
        8 => c"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
        10 => c"CUSPARSE_STATUS_NOT_SUPPORTED",
        11 => c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        _ => c"CUSPARSE_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(status: Status) -> *const c_char {
    cusparseGetErrorName(status)
}
