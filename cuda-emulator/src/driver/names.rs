// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported names without an implementation (`absent.txt`). Each checks its arguments as NVIDIA's driver does and refuses the
//! call.

use cuda_absent_names::{Arguments, Check, Refusal};

use super::device::device;
use super::result::CUresult;

/// The answer of each name of `absent.txt`.
static REFUSALS: &[Refusal] = include!(concat!(env!("OUT_DIR"), "/refusals.rs"));

/// Refuses the call of a function that is not implemented.
#[unsafe(no_mangle)]
extern "C" fn cuda_emulator_absent(name: u32, arguments: &Arguments) -> CUresult {
    super::ffi::before_init(|| {
        let Some(refusal) = REFUSALS.get(name as usize) else {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        };
        let code = CUresult(refusal.code(arguments, |number| device(number).is_ok()) as u32);
        if code == CUresult::CUDA_ERROR_NOT_SUPPORTED {
            log::info!("{} is not supported by the emulated device", refusal.name);
        }
        Err(code)
    })
}
