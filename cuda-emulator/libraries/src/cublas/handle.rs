// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles, their settings, and where scalars lie (section 2.1).

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use crate::stream::{self, Stream};

/// The version that `cublasGetVersion` answers: 13.1.0.
const VERSION: c_int = 130_100;

/// Settings of a handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Where its work goes.
    pub stream: Stream,
    /// `CUBLAS_POINTER_MODE_DEVICE`: results need not be waited for.
    pub device_scalars: bool,
    math_mode: c_int,
    atomics_mode: c_int,
}

/// A `cublasHandle_t`.
pub type Handle = *mut c_void;

/// Reads the settings of a handle.
pub fn settings(handle: Handle) -> Result<Settings, Status> {
    with(handle, |settings| *settings)
}

fn with<T>(handle: Handle, body: impl FnOnce(&mut Settings) -> T) -> Result<T, Status> {
    // SAFETY: a handle is null or what `cublasCreate_v2` gave out, and lives until `cublasDestroy_v2`.
    let handle = unsafe { handle.cast::<Mutex<Settings>>().as_ref() }.ok_or(NOT_INITIALIZED)?;
    Ok(body(&mut handle.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Queues an operation.
pub fn queue(stream: Stream, work: impl Fn() + Send + Sync + 'static) -> Result<(), Status> {
    stream::queue(stream, work).map_err(|_| EXECUTION_FAILED)
}

/// Queues an operation that leaves a result where the program said; one in host memory is waited for.
pub fn queue_result(settings: &Settings, work: impl Fn() + Send + Sync + 'static) -> Result<(), Status> {
    queue(settings.stream, work)?;
    if settings.device_scalars {
        return Ok(());
    }
    stream::wait(settings.stream).map_err(|_| EXECUTION_FAILED)
}

/// A scalar that an operation reads: known now, or from device memory when it runs.
#[derive(Clone, Copy, Debug)]
pub enum Scalar<T> {
    /// It was in host memory.
    Known(T),
    /// Its device address.
    At(usize),
}

impl<T: Copy> Scalar<T> {
    /// The scalar at an address.
    pub fn new(settings: &Settings, address: *const T) -> Result<Self, Status> {
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        if settings.device_scalars {
            return Ok(Self::At(address as usize));
        }
        // SAFETY: in this mode the caller gives the address of a value in host memory.
        Ok(Self::Known(unsafe { address.read() }))
    }

    /// Its value when the operation runs.
    pub fn get(self) -> T {
        match self {
            Self::Known(value) => value,
            // SAFETY: in this mode the caller gives the address of a value in device memory, which is this process's.
            Self::At(address) => unsafe { (address as *const T).read_unaligned() },
        }
    }
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut Handle) -> Status {
    if handle.is_null() {
        return INVALID_VALUE;
    }
    let new: *mut Mutex<Settings> = Box::into_raw(Box::default());
    // SAFETY: the caller gives a place for a handle.
    unsafe { handle.write(new.cast()) };
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: Handle) -> Status {
    if handle.is_null() {
        return NOT_INITIALIZED;
    }
    // SAFETY: `cublasCreate_v2` made it of a box, and the caller uses it no more.
    drop(unsafe { Box::from_raw(handle.cast::<Mutex<Settings>>()) });
    SUCCESS
}

/// Sets the stream of a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: Handle, stream: Stream) -> Status {
    status(with(handle, |settings| settings.stream = stream))
}

/// The stream of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStream_v2(handle: Handle, stream: *mut Stream) -> Status {
    // SAFETY: the caller gives a place for a stream, or null.
    let Some(place) = (unsafe { stream.as_mut() }) else { return INVALID_VALUE };
    status(with(handle, |settings| *place = settings.stream))
}

/// Takes a workspace, of which the CPU needs none.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetWorkspace_v2(handle: Handle, _workspace: usize, _bytes: usize) -> Status {
    status(with(handle, |_| ()))
}

/// Sets where scalars lie.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetPointerMode_v2(handle: Handle, mode: c_int) -> Status {
    if !(0..=1).contains(&mode) {
        return INVALID_VALUE;
    }
    status(with(handle, |settings| settings.device_scalars = mode == 1))
}

macro_rules! settings {
    ($($(#[$doc:meta])* $set:ident $get:ident $field:ident;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(handle: Handle, value: c_int) -> Status {
            status(with(handle, |settings| settings.$field = value))
        }
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: Handle, value: *mut c_int) -> Status {
            // SAFETY: the caller gives a place for a number, or null.
            let Some(place) = (unsafe { value.as_mut() }) else { return INVALID_VALUE };
            status(with(handle, |settings| *place = settings.$field))
        }
    )* };
}

settings! {
    /// Which instructions may be used: the CPU has one kind.
    cublasSetMathMode cublasGetMathMode math_mode;
    /// Whether results may differ from run to run: they do not.
    cublasSetAtomicsMode cublasGetAtomicsMode atomics_mode;
}

/// Where scalars lie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetPointerMode_v2(handle: Handle, mode: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { mode.as_mut() }) else { return INVALID_VALUE };
    status(with(handle, |settings| *place = c_int::from(settings.device_scalars)))
}

/// The version of the API that these functions follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(_handle: Handle, version: *mut c_int) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(place) = (unsafe { version.as_mut() }) else { return INVALID_VALUE };
    *place = VERSION;
    SUCCESS
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: Status) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        8 => c"CUBLAS_STATUS_ARCH_MISMATCH",
        11 => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        16 => c"CUBLAS_STATUS_LICENSE_ERROR",
        _ => c"CUBLAS_STATUS_UNKNOWN",
    };
    name.as_ptr()
}
