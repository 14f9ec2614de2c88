// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that this library lacks. The build script defines a weak function for each name of the driver API. Without a strong
//! function of the name, the call is refused here, after the checks of NVIDIA's driver.

#![allow(non_snake_case)]

use cuda_absent_names::{Arguments, Check, Refusal};
use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry::states::State;
use crate::entry::{CUresult, state_error};

/// The answer of each name, in the order of `protocol/names/libcuda.txt`.
static REFUSALS: &[Refusal] = include!(concat!(env!("OUT_DIR"), "/refusals.rs"));

// Declares all names, and defines `FUNCTIONS`, a table of them.
include!(concat!(env!("OUT_DIR"), "/functions.rs"));

/// Returns the result of an unsupported call: that of its arguments, unless the process or the context is in an invalid state.
#[unsafe(no_mangle)]
extern "C" fn virtio_cuda_absent(name: u32, arguments: &Arguments) -> CUresult {
    let Some(refusal) = REFUSALS.get(name as usize) else { return CudaError::NOT_SUPPORTED.code() };
    if let Err(error) = state_error(State::of(refusal.name)) {
        return error.code();
    }
    let is_device = |device| Driver::get().is_none_or(|driver| driver.devices.check(device).is_ok());
    let code = refusal.code(arguments, is_device);
    if code == CudaError::NOT_SUPPORTED.code() {
        log::debug!("{} is not supported", refusal.name);
    }
    code
}

/// Returns every exported name of the driver API, with the address of this library's function or of the one that
/// refuses the call.
pub fn functions() -> impl Iterator<Item = (&'static str, usize)> {
    FUNCTIONS.iter().map(|(name, function)| (*name, *function as usize))
}
