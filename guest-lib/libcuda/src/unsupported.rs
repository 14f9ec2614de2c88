// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library does not have. The build script makes a weak function for each name of the driver
//! API; where there is no real one, it ends here.

use std::ffi::{CStr, c_char};

use virtio_cuda_client::{CudaError, process};

use crate::entry::CUresult;

/// What a call that is not served answers.
///
/// # Safety
///
/// `name` is a C string; only the generated functions call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn virtio_cuda_unsupported(name: *const c_char) -> CUresult {
    if let Err(error) = process::check() {
        return error.code();
    }
    // SAFETY: the generated functions pass string literals.
    let name = unsafe { CStr::from_ptr(name) };
    log::debug!("{} is not supported", name.to_string_lossy());
    CudaError::NOT_SUPPORTED.code()
}
