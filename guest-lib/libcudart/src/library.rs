// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries that programs load themselves. Options have the same numbers in both APIs.

use core::ffi::{c_char, c_uint, c_void};

use crate::abi::{CUdeviceptr, cudaKernel_t, cudaLibrary_t};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::{driver, state};

api! {
    fn cudaLibraryLoadData(
        library: *mut cudaLibrary_t, code: *const c_void,
        jit_options: *mut c_uint, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    ) {
        state::runtime()?;
    } => driver::cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count);

    fn cudaLibraryLoadFromFile(
        library: *mut cudaLibrary_t, file: *const c_char,
        jit_options: *mut c_uint, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    ) {
        state::runtime()?;
        // SAFETY: the program promises a string or null.
        unsafe { not_empty(file) }?;
    } => driver::cuLibraryLoadFromFile(library, file, jit_options, jit_values, jit_count, options, values, count);

    fn cudaLibraryUnload(library: cudaLibrary_t) {
        state::runtime()?;
    } => driver::cuLibraryUnload(library);

    fn cudaLibraryGetKernel(kernel: *mut cudaKernel_t, library: cudaLibrary_t, name: *const c_char) {
        state::runtime()?;
    } => driver::cuLibraryGetKernel(kernel, library, name);

    fn cudaLibraryGetKernelCount(count: *mut c_uint, library: cudaLibrary_t) {
        state::runtime()?;
    } => driver::cuLibraryGetKernelCount(count, library);

    fn cudaLibraryEnumerateKernels(kernels: *mut cudaKernel_t, count: c_uint, library: cudaLibrary_t) {
        state::runtime()?;
    } => driver::cuLibraryEnumerateKernels(kernels, count, library);

    fn cudaLibraryGetGlobal(
        address: *mut *mut c_void, size: *mut usize, library: cudaLibrary_t, name: *const c_char,
    ) {
        state::context()?;
        // SAFETY: the program promises a string or null.
        unsafe { not_empty(name) }?;
    } => driver::cuLibraryGetGlobal(address.cast::<CUdeviceptr>(), size, library, name);

    fn cudaLibraryGetManaged(
        address: *mut *mut c_void, size: *mut usize, library: cudaLibrary_t, name: *const c_char,
    ) {
        state::context()?;
        // SAFETY: the program promises a string or null.
        unsafe { not_empty(name) }?;
    } => driver::cuLibraryGetManaged(address.cast::<CUdeviceptr>(), size, library, name);

    fn cudaLibraryGetUnifiedFunction(
        function: *mut *mut c_void, library: cudaLibrary_t, symbol: *const c_char,
    ) {
        state::context()?;
        // SAFETY: the program promises a string or null.
        unsafe { not_empty(symbol) }?;
    } => driver::cuLibraryGetUnifiedFunction(function, library, symbol);
}

/// # Safety
/// `text` is a string that ends with NUL, or null, which the driver validates.
unsafe fn not_empty(text: *const c_char) -> Result {
    // SAFETY: not null, so a string by this function's contract, which has at least its NUL.
    if !text.is_null() && unsafe { *text } == 0 { Err(cudaErrorInvalidValue) } else { Ok(()) }
}
