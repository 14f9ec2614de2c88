// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of other processes, by handles that are opaque to this library.

use core::ffi::{c_uint, c_void};

use crate::abi::CUdeviceptr;
use crate::abi::shared::cudaIpcMemHandle_t;
use crate::memory::address;
use crate::pointers::not_null;
use crate::{driver, state};

api! {
    fn cudaIpcGetMemHandle(handle: *mut cudaIpcMemHandle_t, memory: *mut c_void) {
        not_null(handle)?;
        state::context()?;
    } => driver::cuIpcGetMemHandle(handle, address(memory));

    fn cudaIpcOpenMemHandle(memory: *mut *mut c_void, handle: cudaIpcMemHandle_t, flags: c_uint) {
        not_null(memory)?;
        state::context()?;
    } => driver::cuIpcOpenMemHandle_v2(memory.cast::<CUdeviceptr>(), handle, flags);

    fn cudaIpcCloseMemHandle(memory: *mut c_void) {
        state::context()?;
    } => driver::cuIpcCloseMemHandle(address(memory));
}
