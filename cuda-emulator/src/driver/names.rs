// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exported names without an implementation. Each checks its arguments as NVIDIA's driver does and refuses the
//! call.

use super::device::device;
use super::result::{CUresult, CuResult};

/// A condition that arguments must meet, by the number of the argument, and the code if it does not.
#[derive(Clone, Copy)]
enum Check {
    NotNull(usize, u32),
    NotZero(usize, u32),
    Bits(usize, u32, u32),
    Device(usize, u32),
    OneOf(usize, &'static [u32], u32),
}

/// The number of arguments that are passed in registers and can be checked.
const ARGUMENTS: usize = 6;

macro_rules! not_supported {
    ($($name:ident [$($check:expr),*] $code:literal;)*) => { $(
        #[doc = "Refuses the call."]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "CUDA's name")]
        pub extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> CUresult {
            // Functions may have fewer arguments. The others are then arbitrary, and no check refers to them. The
            // calling conventions of all Linux targets allow that.
            refuse(stringify!($name), [a, b, c, d, e, f], &[$($check),*], $code)
        }
    )* };
}

fn refuse(name: &str, arguments: [usize; ARGUMENTS], checks: &[Check], code: u32) -> CUresult {
    super::ffi::before_init(|| {
        for check in checks {
            run(*check, &arguments)?;
        }
        if code == CUresult::CUDA_ERROR_NOT_SUPPORTED.0 {
            log::info!("{name} is not supported by the emulated device");
        }
        Err(CUresult(code))
    })
}

fn run(check: Check, arguments: &[usize; ARGUMENTS]) -> CuResult<()> {
    let (good, code) = match check {
        Check::NotNull(index, code) => (arguments[index] != 0, code),
        Check::NotZero(index, code) => (arguments[index] as u32 != 0, code),
        Check::Bits(index, mask, code) => (arguments[index] as u32 & !mask == 0, code),
        Check::Device(index, code) => (device(arguments[index] as i32).is_ok(), code),
        Check::OneOf(index, values, code) => (values.contains(&(arguments[index] as u32)), code),
    };
    if good { Ok(()) } else { Err(CUresult(code)) }
}

include!(concat!(env!("OUT_DIR"), "/not_supported.rs"));
