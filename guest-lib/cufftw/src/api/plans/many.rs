// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Plans of transforms that are a distance apart.

use std::ffi::{c_int, c_uint};

use super::{complex, forward, inverse, planned};
use crate::api::lists::{list, optional_list};
use crate::api::{Array, FftwPlan, exports};
use crate::error::Result;
use crate::problem::{Form, Problem, Side};

/// A side of the `many` functions: the list of sizes, the stride and the distance.
type ManySide = (*const c_int, c_int, c_int);

/// The arguments of the `many` functions.
///
/// # Safety
///
/// The lists are NULL or have `rank` elements.
unsafe fn many(
    form: Form,
    rank: c_int,
    n: *const c_int,
    count: c_int,
    in_place: bool,
    sides: [ManySide; 2],
) -> Result<Problem> {
    // SAFETY: the lists have `rank` elements by this function's contract.
    let side = |(embed, stride, distance): ManySide| unsafe {
        let embed = optional_list(embed, rank)?;
        Ok(Side { embed, stride: i64::from(stride), distance: i64::from(distance) })
    };
    // SAFETY: `n` has `rank` sizes by this function's contract.
    let sizes: Vec<i64> = unsafe { list(n, rank) }?;
    Problem::many(form, &sizes, i64::from(count), in_place, [side(sides[0])?, side(sides[1])?])
}

exports! {
    /// Plans complex transforms that are a distance apart.
    fn fftw_plan_many_dft fftwf_plan_many_dft(
        rank: c_int, n: *const c_int, batch: c_int, input: Array, inembed: *const c_int, istride: c_int, idist: c_int,
        output: Array, onembed: *const c_int, ostride: c_int, odist: c_int, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        // SAFETY: the lists have `rank` elements by the contract of FFTW's function.
        planned([input, output], unsafe { many(complex(precision, sign), rank, n, batch, input == output, sides) })
    }

    /// Plans transforms of real numbers that are a distance apart.
    fn fftw_plan_many_dft_r2c fftwf_plan_many_dft_r2c(
        rank: c_int, n: *const c_int, batch: c_int, input: Array, inembed: *const c_int, istride: c_int, idist: c_int,
        output: Array, onembed: *const c_int, ostride: c_int, odist: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        // SAFETY: the lists have `rank` elements by the contract of FFTW's function.
        planned([input, output], unsafe { many(forward(precision), rank, n, batch, input == output, sides) })
    }

    /// Plans transforms to real numbers that are a distance apart.
    fn fftw_plan_many_dft_c2r fftwf_plan_many_dft_c2r(
        rank: c_int, n: *const c_int, batch: c_int, input: Array, inembed: *const c_int, istride: c_int, idist: c_int,
        output: Array, onembed: *const c_int, ostride: c_int, odist: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        // SAFETY: the lists have `rank` elements by the contract of FFTW's function.
        planned([input, output], unsafe { many(inverse(precision), rank, n, batch, input == output, sides) })
    }
}
