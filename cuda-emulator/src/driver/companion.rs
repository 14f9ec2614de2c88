// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions for the CPU versions of NVIDIA's libraries (`cuda-emulator/libraries`), which look these names up with
//! dlsym. Their work runs in host functions, where CUDA functions must not be called. They are not part of CUDA.

use super::device;
use super::ffi::report_illegal_address;

/// Returns whether `bytes` bytes at `ptr` are memory that kernels may access. Ranges that touch each other count as one.
fn reaches(mut ptr: u64, mut bytes: u64) -> bool {
    while bytes > 0 {
        let Some((_, range)) = device::range_of(ptr) else { return false };
        let left = (range.base + range.bytes).saturating_sub(ptr).min(bytes);
        if left == 0 {
            return false;
        }
        (ptr, bytes) = (ptr.wrapping_add(left), bytes - left);
    }
    true
}

/// Returns 1 if `bytes` bytes at `ptr` are memory that kernels may access, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_emulator_reaches(ptr: u64, bytes: u64) -> u32 {
    u32::from(reaches(ptr, bytes))
}

/// Makes the running host function fail with `CUDA_ERROR_ILLEGAL_ADDRESS`.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_emulator_report_illegal_address() {
    report_illegal_address();
}
