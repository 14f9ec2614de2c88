// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of API functions, from CUPTI's headers of CUDA 12.9 and 13.5 (`cbids.txt`).

use std::ffi::CStr;

use cuda_abi::{API_DRIVER, API_RUNTIME};

include!(concat!(env!("OUT_DIR"), "/cbids.rs"));

/// `cudaLaunchKernel`, with which NVIDIA's libraries launch kernels.
pub const LAUNCH_KERNEL: u32 = 211;
/// Exceeds every number.
pub const COUNT: usize = 1024;

/// Returns the number of a function, and its name as a C string.
pub fn find(api: u32, name: &[u8]) -> Option<(u32, &'static CStr)> {
    let table = table(api)?;
    let at = table.binary_search_by(|(known, _)| known.to_bytes().cmp(name)).ok()?;
    Some((table[at].1, table[at].0))
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
