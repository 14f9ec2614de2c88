// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of API functions, from CUPTI's headers of CUDA 12.9 and 13.5 (`cbids.txt`).

use std::ffi::CStr;
use std::sync::LazyLock;

use cuda_abi::{API_DRIVER, API_RUNTIME};
use rustc_hash::FxHashMap;

include!(concat!(env!("OUT_DIR"), "/cbids.rs"));

/// `cudaLaunchKernel`, with which NVIDIA's libraries launch kernels.
pub const LAUNCH_KERNEL: u32 = 211;
/// Exceeds every number.
pub const COUNT: usize = 1024;

type Numbers = FxHashMap<&'static [u8], (u32, &'static CStr)>;

/// The functions of both APIs by name: each call is looked up.
static NUMBERS: LazyLock<[Numbers; 2]> = LazyLock::new(|| {
    [DRIVER, RUNTIME]
        .map(|table| table.iter().map(|(name, number)| (name.to_bytes(), (*number, *name))).collect())
});

/// Returns the number of a function, and its name as a C string.
pub fn find(api: u32, name: &[u8]) -> Option<(u32, &'static CStr)> {
    let numbers = match api {
        API_DRIVER => &NUMBERS[0],
        API_RUNTIME => &NUMBERS[1],
        _ => return None,
    };
    numbers.get(name).copied()
}

/// Returns the name of a function.
pub fn name(api: u32, cbid: u32) -> Option<&'static CStr> {
    table(api)?.iter().find(|(_, number)| *number == cbid).map(|(name, _)| *name)
}

fn table(api: u32) -> Option<&'static [(&'static CStr, u32)]> {
    match api {
        API_DRIVER => Some(DRIVER),
        API_RUNTIME => Some(RUNTIME),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_numbers_of_the_headers() {
        assert_eq!(find(API_RUNTIME, b"cudaLaunchKernel").map(|found| found.0), Some(LAUNCH_KERNEL));
        assert_eq!(find(API_DRIVER, b"cuLaunchKernel").map(|found| found.0), Some(307));
        assert_eq!(find(API_RUNTIME, b"cudaMemcpyAsync").map(|found| found.0), Some(41));
        assert_eq!(find(API_DRIVER, b"cudaLaunchKernel"), None);
        assert_eq!(name(API_DRIVER, 307), Some(c"cuLaunchKernel"));
        for (name, number) in DRIVER.iter().chain(RUNTIME) {
            assert!((*number as usize) < COUNT, "{name:?}");
        }
    }
}
