// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lookup of driver functions by name. The driver itself answers.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::driver::{CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
use crate::abi::version::RUNTIME_VERSION;
use crate::error::{Result, cudaErrorInvalidValue, cudaErrorNotSupported};
use crate::pointers::{In, not_null};
use crate::{driver, state};

/// The version of the functions that programs get unless they ask for another one.
pub const OWN_VERSION: c_uint = RUNTIME_VERSION as c_uint;

api! {
    #[cfg(not(cuda_major = "11"))]
    fn cudaGetDriverEntryPoint(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint,
    ) {} => find(symbol, function, OWN_VERSION, flags, status);

    #[cfg(not(cuda_major = "11"))]
    fn cudaGetDriverEntryPoint_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut c_uint,
    ) {} => find(symbol, function, OWN_VERSION, per_thread(flags), status);

    fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, version: c_uint, flags: u64, status: *mut c_uint,
    ) {} => find(symbol, function, version, flags, status);

    fn cudaGetDriverEntryPointByVersion_ptsz(
        symbol: *const c_char, function: *mut *mut c_void, version: c_uint, flags: u64, status: *mut c_uint,
    ) {} => find(symbol, function, version, per_thread(flags), status);

    /// Returns a table of functions that no header declares. NVIDIA's tables are not imitated, so no id is known.
    fn cudaGetExportTable(table: *mut *const c_void, id: In<[u8; 16]>) {
        not_null(table)?;
        // No table has this id.
        Err(if id.get()? == [0; 16] { cudaErrorInvalidValue } else { cudaErrorNotSupported })
    }
}

/// Always returns null, as NVIDIA's runtimes of CUDA 13 do. No header declares this function.
#[cfg(cuda_major = "13")]
#[unsafe(no_mangle)]
pub extern "C" fn __cudaGetProcAddress() -> *mut c_void {
    core::ptr::null_mut()
}

/// Flags and lookup results have the same numbers in both APIs.
///
/// # Safety
/// `symbol` is a string, `function` and `status` are valid for a write, or null.
pub unsafe fn find(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_uint,
) -> Result {
    state::runtime()?;
    not_null(symbol)?;
    not_null(function)?;
    let version = version as c_int;
    // SAFETY: `symbol` is a string, `function` and `status` are places or null, by this function's contract.
    unsafe { driver::cuGetProcAddress_v2(symbol, function, version, flags, status) }
}

/// A program that is compiled for per-thread default streams gets the per-thread variants unless it requests others.
pub fn per_thread(flags: u64) -> u64 {
    if flags == CU_GET_PROC_ADDRESS_DEFAULT { CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM } else { flags }
}
