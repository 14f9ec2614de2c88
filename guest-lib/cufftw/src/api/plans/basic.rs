// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Plans of one transform of arrays without gaps.

use std::ffi::{c_int, c_uint};

use super::{complex, forward, inverse, planned};
use crate::api::lists::list;
use crate::api::{Array, FftwPlan, exports};
use crate::problem::{Form, Problem, Side};

/// A plan of one transform of arrays without gaps.
fn basic(form: Form, arrays: [Array; 2], sizes: &[c_int]) -> FftwPlan {
    let sizes: Vec<i64> = sizes.iter().map(|size| i64::from(*size)).collect();
    let side = || Side { embed: None, stride: 1, distance: 0 };
    planned(arrays, Problem::many(form, &sizes, 1, arrays[0] == arrays[1], [side(), side()]))
}

/// The same, with a list of `rank` sizes.
///
/// # Safety
///
/// The list is NULL or has `rank` elements.
unsafe fn listed(form: Form, arrays: [Array; 2], rank: c_int, n: *const c_int) -> FftwPlan {
    // SAFETY: the list has `rank` elements by this function's contract.
    match unsafe { list(n, rank) } {
        Ok(sizes) => basic(form, arrays, &sizes),
        Err(error) => planned(arrays, Err(error)),
    }
}

exports! {
    /// Plans a complex transform of one dimension.
    fn fftw_plan_dft_1d fftwf_plan_dft_1d(n: c_int, input: Array, output: Array, sign: c_int, _flags: c_uint) -> FftwPlan
    |precision| { basic(complex(precision, sign), [input, output], &[n]) }

    /// Plans a complex transform of two dimensions.
    fn fftw_plan_dft_2d fftwf_plan_dft_2d(
        n0: c_int, n1: c_int, input: Array, output: Array, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(complex(precision, sign), [input, output], &[n0, n1]) }

    /// Plans a complex transform of three dimensions.
    fn fftw_plan_dft_3d fftwf_plan_dft_3d(
        n0: c_int, n1: c_int, n2: c_int, input: Array, output: Array, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(complex(precision, sign), [input, output], &[n0, n1, n2]) }

    /// Plans a complex transform.
    fn fftw_plan_dft fftwf_plan_dft(
        rank: c_int, n: *const c_int, input: Array, output: Array, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the list has `rank` elements by the contract of FFTW's function.
        unsafe { listed(complex(precision, sign), [input, output], rank, n) }
    }

    /// Plans a transform of real numbers, of one dimension.
    fn fftw_plan_dft_r2c_1d fftwf_plan_dft_r2c_1d(n: c_int, input: Array, output: Array, _flags: c_uint) -> FftwPlan
    |precision| { basic(forward(precision), [input, output], &[n]) }

    /// Plans a transform of real numbers, of two dimensions.
    fn fftw_plan_dft_r2c_2d fftwf_plan_dft_r2c_2d(
        n0: c_int, n1: c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(forward(precision), [input, output], &[n0, n1]) }

    /// Plans a transform of real numbers, of three dimensions.
    fn fftw_plan_dft_r2c_3d fftwf_plan_dft_r2c_3d(
        n0: c_int, n1: c_int, n2: c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(forward(precision), [input, output], &[n0, n1, n2]) }

    /// Plans a transform of real numbers.
    fn fftw_plan_dft_r2c fftwf_plan_dft_r2c(
        rank: c_int, n: *const c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the list has `rank` elements by the contract of FFTW's function.
        unsafe { listed(forward(precision), [input, output], rank, n) }
    }

    /// Plans a transform to real numbers, of one dimension.
    fn fftw_plan_dft_c2r_1d fftwf_plan_dft_c2r_1d(n: c_int, input: Array, output: Array, _flags: c_uint) -> FftwPlan
    |precision| { basic(inverse(precision), [input, output], &[n]) }

    /// Plans a transform to real numbers, of two dimensions.
    fn fftw_plan_dft_c2r_2d fftwf_plan_dft_c2r_2d(
        n0: c_int, n1: c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(inverse(precision), [input, output], &[n0, n1]) }

    /// Plans a transform to real numbers, of three dimensions.
    fn fftw_plan_dft_c2r_3d fftwf_plan_dft_c2r_3d(
        n0: c_int, n1: c_int, n2: c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| { basic(inverse(precision), [input, output], &[n0, n1, n2]) }

    /// Plans a transform to real numbers.
    fn fftw_plan_dft_c2r fftwf_plan_dft_c2r(
        rank: c_int, n: *const c_int, input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the list has `rank` elements by the contract of FFTW's function.
        unsafe { listed(inverse(precision), [input, output], rank, n) }
    }
}
