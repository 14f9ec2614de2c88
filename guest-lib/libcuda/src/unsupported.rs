// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library does not have. The build script makes a weak function for each name of the driver
//! API, which checks arguments as NVIDIA's driver does; where there is no real one, it ends here.

use std::ffi::{CStr, c_char};

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry::{CUresult, state_error};

/// What a call that is not served answers, `code` if nothing is the matter with the process or the context.
///
/// # Safety
///
/// `name` is a C string; only the generated functions call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn virtio_cuda_refuse(name: *const c_char, code: CUresult) -> CUresult {
    // SAFETY: the generated functions pass string literals.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Err(error) = state_error(&name) {
        return error.code();
    }
    if code == CudaError::NOT_SUPPORTED.code() {
        log::debug!("{name} is not supported");
    }
    code
}

/// Whether there is a device of that number.
#[unsafe(no_mangle)]
extern "C" fn virtio_cuda_is_device(device: i32) -> i32 {
    Driver::get().is_none_or(|driver| driver.devices.check(device).is_ok()).into()
}
