// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's error log.

use core::ffi::{c_char, c_uint, c_void};

use cuda_abi::prototypes::types::CUlogIterator as cudaLogIterator;

use crate::abi::{cudaLogsCallback_t, cudaLogsCallbackHandle};
use crate::{driver, state};

api! {
    fn cudaLogsRegisterCallback(
        callback: cudaLogsCallback_t, data: *mut c_void, handle: *mut cudaLogsCallbackHandle,
    ) {
        state::runtime()?;
    } => driver::cuLogsRegisterCallback(callback, data, handle);

    fn cudaLogsUnregisterCallback(handle: cudaLogsCallbackHandle) {
        state::runtime()?;
    } => driver::cuLogsUnregisterCallback(handle);

    fn cudaLogsCurrent(iterator: *mut cudaLogIterator, flags: c_uint) {
        state::runtime()?;
    } => driver::cuLogsCurrent(iterator, flags);

    fn cudaLogsDumpToFile(iterator: *mut cudaLogIterator, path: *const c_char, flags: c_uint) {
        state::runtime()?;
    } => driver::cuLogsDumpToFile(iterator, path, flags);

    fn cudaLogsDumpToMemory(
        iterator: *mut cudaLogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint,
    ) {
        state::runtime()?;
    } => driver::cuLogsDumpToMemory(iterator, buffer, size, flags);
}
