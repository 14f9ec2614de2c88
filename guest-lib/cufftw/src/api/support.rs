// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Memory, and functions of FFTW's planner that exist and do nothing, as in NVIDIA's library.

use std::ffi::{c_double, c_int, c_void};
use std::ptr::null_mut;

use super::{FftwPlan, exports};
use crate::plan::Plan;

/// The alignment of memory: that of the longest vectors of x86-64.
const ALIGNMENT: usize = 64;
/// The costs of all plans.
const COST: c_double = 1.0;

/// Returns host memory, or NULL.
fn allocate(bytes: usize) -> *mut c_void {
    let mut address = null_mut();
    // SAFETY: `address` is a local, and the alignment a power of two.
    let result = unsafe { libc::posix_memalign(&raw mut address, ALIGNMENT, bytes) };
    if result == 0 { address } else { null_mut() }
}

/// Prints a plan to stdout.
fn print(plan: Option<&Plan>) {
    let text = match plan {
        Some(plan) => {
            let problem = plan.problem();
            format!("({:?} {:?} x {} by cuFFT)\n\0", problem.form.kind, problem.sizes, problem.batch)
        }
        None => "(no plan)\n\0".to_owned(),
    };
    // SAFETY: both are texts that end with a NUL. The program's other output goes through the same stream.
    unsafe { libc::printf(c"%s".as_ptr(), text.as_ptr()) };
}

exports! {
    /// Allocates host memory that is aligned for vectors.
    fn fftw_malloc fftwf_malloc(n: usize) -> *mut c_void |_| { allocate(n) }

    /// Frees memory of `fftw_malloc`.
    fn fftw_free fftwf_free(pointer: *mut c_void) |_| {
        // SAFETY: memory of `fftw_malloc`, which is not used any longer, by the contract of FFTW's function.
        unsafe { libc::free(pointer) }
    }

    /// Writes nothing: there is no wisdom.
    fn fftw_export_wisdom_to_file fftwf_export_wisdom_to_file(_output_file: *mut c_void) |_| {}

    /// Reads nothing, and answers that nothing was read.
    fn fftw_import_wisdom_from_file fftwf_import_wisdom_from_file(_input_file: *mut c_void) -> c_int |_| { 0 }

    /// Planning takes no time that could be limited.
    fn fftw_set_timelimit fftwf_set_timelimit(_seconds: c_double) |_| {}

    /// Prints a plan to stdout.
    fn fftw_print_plan fftwf_print_plan(plan: FftwPlan) |_| {
        // SAFETY: NULL, or a plan of this library by the contract of FFTW's function.
        print(unsafe { plan.cast::<Plan>().as_ref() })
    }

    /// Returns the same cost for all plans.
    fn fftw_cost fftwf_cost(_plan: FftwPlan) -> c_double |_| { COST }

    /// Stores the same numbers of operations for all plans.
    fn fftw_flops fftwf_flops(_plan: FftwPlan, add: *mut c_double, mul: *mut c_double, fma: *mut c_double) |_| {
        for place in [add, mul, fma].into_iter().filter(|place| !place.is_null()) {
            // SAFETY: places for numbers by the contract of FFTW's function. C does not promise their alignment.
            unsafe { place.write_unaligned(COST) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned() {
        for bytes in [1, 100, 1 << 20] {
            let address = allocate(bytes);
            assert!(!address.is_null() && (address as usize).is_multiple_of(ALIGNMENT));
            // SAFETY: memory that `allocate` has returned.
            unsafe { fftw_free(address) };
        }
        assert!(allocate(usize::MAX).is_null());
    }
}
