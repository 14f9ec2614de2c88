// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Versions of runtime and driver.

use core::ffi::c_int;

use crate::abi::version::RUNTIME_VERSION;
use crate::pointers::Out;
use crate::state;

api! {
    fn cudaRuntimeGetVersion(version: Out<c_int>) {
        version.set(RUNTIME_VERSION)
    }

    /// Works without a driver: the version is 0 then.
    fn cudaDriverGetVersion(version: Out<c_int>) {
        version.check()?;
        version.set(state::driver_version())
    }
}
