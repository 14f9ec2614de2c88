// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library lacks. The build script generates a weak function for each name of the driver API, which
//! checks arguments as NVIDIA's driver does. Without a strong function of the name, the call is refused here.

use std::ffi::{CStr, c_char};

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry::{CUresult, state_error};
use crate::local::states::State;

/// Returns the result of an unsupported call: `code`, unless the process or the context is in an invalid state.
/// `before` and `bits` are the function's [`State`].
///
/// # Safety
///
/// `name` is a C string; only the generated functions call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn virtio_cuda_refuse(
    name: *const c_char,
    code: CUresult,
    before: CUresult,
    bits: u32,
) -> CUresult {
    if let Err(error) = state_error(State::from_bits(before, bits)) {
        return error.code();
    }
    if code == CudaError::NOT_SUPPORTED.code() {
        // SAFETY: the generated functions pass string literals.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        log::debug!("{name} is not supported");
    }
    code
}

/// Returns whether a device with this number exists.
#[unsafe(no_mangle)]
extern "C" fn virtio_cuda_is_device(device: i32) -> i32 {
    Driver::get().is_none_or(|driver| driver.devices.check(device).is_ok()).into()
}

/// An entry of the table that the build script generates.
#[repr(C)]
struct Function {
    name: *const c_char,
    address: *const (),
}

unsafe extern "C" {
    /// One entry per exported name, then one without a name.
    static virtio_cuda_functions: Function;
}

/// Returns every exported name of the driver API, with the address of this library's function or of the one that
/// refuses the call.
pub fn functions() -> impl Iterator<Item = (&'static str, usize)> {
    let first = &raw const virtio_cuda_functions;
    // SAFETY: the build script writes the table as an array of constants that ends with an entry without a name;
    // `take_while` stops there, so that `add` and the reference stay inside.
    let entries = (0..).map(move |index| unsafe { &*first.add(index) });
    entries.take_while(|entry| !entry.name.is_null()).map(|entry| {
        // SAFETY: the names are string literals of the build script.
        let name = unsafe { CStr::from_ptr(entry.name) };
        (name.to_str().unwrap_or_default(), entry.address as usize)
    })
}
