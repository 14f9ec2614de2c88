// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enabling of activities.

use std::ffi::{CStr, c_void};

use cuda_abi::{API_DRIVER, API_RUNTIME};

use crate::cbids::COUNT;
use crate::result::{CUptiResult, INVALID_KIND, INVALID_PARAMETER, NOT_SUPPORTED, Result, enter, set};
use crate::{buffers, callbacks, kinds, library, numbers, pageable, queue, quiet, settings, work};

/// `CUPTI_API_VERSION` of CUDA 13.5 and 12.9, which define the records of this library.
const VERSION: u32 = 130_500;
const VERSION_12: u32 = 28;

/// Enables or disables a kind. A kind that cannot be measured does not stay enabled.
fn set_kind(kind: u32, enabled: bool) -> Result {
    if !kinds::exists(kind) {
        return Err(INVALID_KIND);
    }
    if !kinds::is_served(kind) {
        return if enabled { Err(NOT_SUPPORTED) } else { Ok(()) };
    }
    let before = kinds::is_enabled(kind);
    if kinds::is_work(kind) && before != enabled {
        // Earlier work is recorded with the earlier settings: programs disable first and flush afterwards.
        quiet::quietly(work::fetch);
        kinds::note_change(kind, numbers::last());
    }
    kinds::set(kind, enabled);
    settings::update().inspect_err(|_| {
        kinds::set(kind, before);
        let _ = settings::update();
    })
}

fn set_function(api: u32, cbid: u32, enabled: bool) -> Result {
    if cbid == 0 || cbid as usize >= COUNT {
        return Err(INVALID_PARAMETER);
    }
    kinds::set_function(api, cbid, enabled);
    settings::update()
}

/// Records activities of a kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> CUptiResult {
    enter(|| set_kind(kind, true))
}

/// Stops recording activities of a kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> CUptiResult {
    enter(|| set_kind(kind, false))
}

/// Like `cuptiActivityEnable`: applies to all contexts.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableContext(_context: *mut c_void, kind: u32) -> CUptiResult {
    cuptiActivityEnable(kind)
}

/// Like `cuptiActivityDisable`: applies to all contexts.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisableContext(_context: *mut c_void, kind: u32) -> CUptiResult {
    cuptiActivityDisable(kind)
}

/// Starts or stops recording calls of a function of the driver API.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(cbid: u32, enable: u8) -> CUptiResult {
    enter(|| set_function(API_DRIVER, cbid, enable != 0))
}

/// Starts or stops recording calls of a function of the runtime API.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(cbid: u32, enable: u8) -> CUptiResult {
    enter(|| set_function(API_RUNTIME, cbid, enable != 0))
}

/// Ends all activities and callbacks. Activities can be enabled again.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiFinalize() -> CUptiResult {
    enter(|| {
        kinds::clear();
        callbacks::clear();
        let ended = settings::update();
        queue::clear();
        // Returns the buffer to the program.
        buffers::deliver();
        library::forget();
        pageable::forget();
        ended
    })
}

/// Stores the version of the API.
///
/// # Safety
///
/// `version` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> CUptiResult {
    let value = if is_file_of_12() { VERSION_12 } else { VERSION };
    // SAFETY: this function's contract.
    enter(|| unsafe { set(version, value) })
}

/// Returns whether this code was linked into `libcupti.so.12`.
fn is_file_of_12() -> bool {
    // SAFETY: all zero is a valid value of a structure of pointers.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is one of this library's code; `about` is a local.
    let found = unsafe { libc::dladdr(is_file_of_12 as *const c_void, &raw mut about) };
    // SAFETY: dladdr has found the file, whose name is a C string.
    found != 0
        && !about.dli_fname.is_null()
        && unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes().ends_with(b".12")
}
