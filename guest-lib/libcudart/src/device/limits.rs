// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits and preferences of the current context. Their numbers are the same in both APIs.

use core::ffi::{c_int, c_uint};

use crate::pointers::not_null;
use crate::{driver, state};

api! {
    fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        not_null(value)?;
        state::context()?;
    } => driver::cuCtxGetLimit(value, limit);

    fn cudaDeviceSetLimit(limit: c_uint, value: usize) {
        state::context()?;
    } => driver::cuCtxSetLimit(limit, value);

    fn cudaDeviceGetCacheConfig(config: *mut c_uint) {
        not_null(config)?;
        state::context()?;
    } => driver::cuCtxGetCacheConfig(config);

    fn cudaDeviceSetCacheConfig(config: c_uint) {
        state::context()?;
    } => driver::cuCtxSetCacheConfig(config);

    fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) {
        not_null(config)?;
        state::context()?;
    } => driver::cuCtxGetSharedMemConfig(config);

    fn cudaDeviceSetSharedMemConfig(config: c_uint) {
        state::context()?;
    } => driver::cuCtxSetSharedMemConfig(config);

    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        state::context()?;
    } => driver::cuCtxGetStreamPriorityRange(least, greatest);

    fn cudaCtxResetPersistingL2Cache() {
        state::context()?;
    } => driver::cuCtxResetPersistingL2Cache();
}
