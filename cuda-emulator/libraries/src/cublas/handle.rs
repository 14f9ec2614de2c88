// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Handles, their settings, and where scalars lie (section 2.1).

use std::ffi::{c_char, c_int};

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, status};
use crate::exported::exported;
use crate::handles::{self, Handle};
use crate::memory::Array;
use crate::numbers::{C64, Type};
use crate::stream::{self, Done, Fault, Stream};

/// The version that `cublasGetVersion` answers: 13.1.0.
pub const VERSION: c_int = 130_100;

/// Settings of a handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The stream that executes its work.
    pub stream: Stream,
    /// `CUBLAS_POINTER_MODE_DEVICE`: results need not be waited for.
    pub device_scalars: bool,
    math_mode: c_int,
    atomics_mode: c_int,
}

/// Reads the settings of a handle.
pub fn settings(handle: Handle) -> Result<Settings, Status> {
    with(handle, |settings| *settings)
}

fn with<T>(handle: Handle, body: impl FnOnce(&mut Settings) -> T) -> Result<T, Status> {
    handles::with(handle, body).ok_or(NOT_INITIALIZED)
}

/// Queues an operation.
pub fn queue(stream: Stream, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), Status> {
    stream::queue(stream, work).map_err(|_| EXECUTION_FAILED)
}

/// Queues an operation that leaves a result where the program said; one in host memory is waited for.
pub fn queue_result(
    settings: &Settings,
    work: impl Fn() -> Done + Send + Sync + 'static,
) -> Result<(), Status> {
    if settings.device_scalars {
        return queue(settings.stream, work);
    }
    stream::queue_and_wait(settings.stream, work).map_err(|_| EXECUTION_FAILED)
}

/// A scalar that an operation reads: known now, or from device memory when it runs.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// It was in host memory.
    Known(C64),
    /// Its device address.
    At(Type, usize),
}

impl Scalar {
    /// The scalar of that type at an address.
    pub fn new(settings: &Settings, kind: Type, address: usize) -> Result<Self, Status> {
        Self::at(settings.device_scalars, kind, address)
    }

    /// The same where the place of scalars is known otherwise.
    pub fn at(is_device: bool, kind: Type, address: usize) -> Result<Self, Status> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        if is_device {
            return Ok(Self::At(kind, address));
        }
        // SAFETY: in this mode the caller gives the address of a value in host memory.
        Ok(Self::Known(unsafe { kind.read(address) }))
    }

    /// Its value when the operation runs.
    pub fn get(self) -> Result<C64, Fault> {
        match self {
            Self::Known(value) => Ok(value),
            Self::At(kind, address) => Ok(Array::new(kind, address, 1)?.get(0)),
        }
    }
}

/// A place for a result in host or device memory.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    is_device: bool,
    kind: Type,
    address: usize,
}

impl Place {
    /// The place at an address.
    pub fn new(settings: &Settings, kind: Type, address: usize) -> Result<Self, Status> {
        if address == 0 {
            return Err(INVALID_VALUE);
        }
        Ok(Self { is_device: settings.device_scalars, kind, address })
    }

    /// Its value when the operation runs.
    pub fn get(self) -> Result<C64, Fault> {
        if self.is_device {
            return Ok(Array::new(self.kind, self.address, 1)?.get(0));
        }
        // SAFETY: in this mode the caller gives a place in host memory, and waits until the operation has run.
        Ok(unsafe { self.kind.read(self.address) })
    }

    /// Leaves the result.
    pub fn set(self, value: C64) -> Done {
        if self.is_device {
            Array::new(self.kind, self.address, 1)?.set(0, value);
        } else {
            // SAFETY: in this mode the caller gives a place in host memory, and waits until the operation has run.
            unsafe { self.kind.write(self.address, value) };
        }
        Ok(())
    }
}

/// Creates a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut Handle) -> Status {
    if handle.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives a place for a handle.
    unsafe { handle.write(handles::make(Settings::default())) };
    SUCCESS
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: Handle) -> Status {
    if handles::end::<Settings>(handle) { SUCCESS } else { NOT_INITIALIZED }
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

exported! {
    /// Sets the allowed instructions or the atomics mode. Neither has an effect: the CPU has one kind of instructions, and
    /// results are always the same from run to run.
    pub extern "C" fn(set) [
        cublasSetMathMode(|settings: &mut Settings, mode| settings.math_mode = mode),
        cublasSetAtomicsMode(|settings: &mut Settings, mode| settings.atomics_mode = mode),
    ]
    (handle: Handle, mode: c_int) -> Status {
        status(with(handle, |settings| set(settings, mode)))
    }

    /// Returns such a mode.
    pub unsafe extern "C" fn(get) [
        cublasGetMathMode(|settings: &mut Settings| settings.math_mode),
        cublasGetAtomicsMode(|settings: &mut Settings| settings.atomics_mode),
    ]
    (handle: Handle, place: *mut c_int) -> Status {
        // SAFETY: the caller gives a place for a number, or null.
        let Some(place) = (unsafe { place.as_mut() }) else { return INVALID_VALUE };
        status(with(handle, |settings| *place = get(settings)))
    }
}

/// Returns the side that scalars are on, host or device.
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

/// Returns the name of a status.
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
