// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Versions of runtime and driver.

use core::ffi::c_int;

use crate::abi::version::RUNTIME_VERSION;
use crate::pointers::{not_null, store};
use crate::state;

api! {
    fn cudaRuntimeGetVersion(version: *mut c_int) {
        store(version, RUNTIME_VERSION)
    }

    /// Works without a driver: the answer is 0 then.
    fn cudaDriverGetVersion(version: *mut c_int) {
        not_null(version)?;
        store(version, state::driver_version())
    }
}
