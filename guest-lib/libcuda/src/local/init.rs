// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Initialisation, versions and the profiler control functions.

use virtio_cuda_client::{CudaError, open};

use crate::driver::Driver;
use crate::entry_points;
use crate::ffi::Out;
use crate::local::injection;

/// The CUDA version whose functions this library exports.
pub const API_VERSION: i32 = 13000;
/// `CU_MODULE_*_LOADING`.
const EAGER_LOADING: i32 = 1;
const LAZY_LOADING: i32 = 2;

entry_points! {
    /// Opens the session.
    early cuInit(_, Flags: u32) {
        if Flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        Driver::init()?;
        injection::load();
        Ok(())
    }

    /// Returns the version that programs can rely on: that of the host's driver, but at most that of this library.
    early cuDriverGetVersion(_, driverVersion: Out<i32>) {
        driverVersion.check()?;
        // Works without a device, as in NVIDIA's driver.
        driverVersion.set(open::session().map_or(API_VERSION, |session| session.driver_version().min(API_VERSION)))
    }

    /// Returns when the runtime should load modules.
    call cuModuleGetLoadingMode(api, mode: Out<i32>) {
        mode.set(if api.driver.environment.eager_loading { EAGER_LOADING } else { LAZY_LOADING })
    }

    /// No effect: there is no profiler.
    call cuProfilerStart(_) {
        Ok(())
    }

    /// No effect: there is no profiler.
    call cuProfilerStop(_) {
        Ok(())
    }
}
