// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUresult: the driver API's error codes, their names and their meanings.

use std::ffi::{CStr, c_char};

use cuda_abi::prototypes::{Parameter, Shape};

use super::ffi::Out;

/// An error code of the driver API.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CUresult(pub u32);

impl Parameter for CUresult {
    const SHAPE: Shape = Shape::Integer(size_of::<u32>());
}

/// The result of the body of an entry point.
pub type CuResult<T> = Result<T, CUresult>;

// The constants of `CUresult`, and `RESULTS`: name and meaning of each code (`build.rs`).
include!(concat!(env!("OUT_DIR"), "/results.rs"));

impl std::fmt::Debug for CUresult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name =
            entry_of(*self).map_or("unknown CUresult", |(_, name, _)| name.to_str().unwrap_or_default());
        write!(f, "{name} ({})", self.0)
    }
}

fn entry_of(code: CUresult) -> Option<&'static (CUresult, &'static CStr, &'static CStr)> {
    RESULTS.iter().find(|(result, ..)| *result == code)
}

fn get_error_name(error: CUresult, text: Out<*const c_char>) -> CuResult<()> {
    describe(text, entry_of(error).map(|(_, name, _)| *name))
}

fn get_error_string(error: CUresult, text: Out<*const c_char>) -> CuResult<()> {
    describe(text, entry_of(error).map(|(_, _, meaning)| *meaning))
}

fn describe(text: Out<*const c_char>, found: Option<&'static CStr>) -> CuResult<()> {
    text.check()?;
    text.set_if_wanted(found.map_or(std::ptr::null(), CStr::as_ptr));
    found.map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

super::ffi::entries! { before_init
    cuGetErrorName => get_error_name(error: CUresult, text: Out<*const c_char>);
    cuGetErrorString => get_error_string(error: CUresult, text: Out<*const c_char>);
}
