// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Plans with strides for each dimension.

use std::ffi::{c_int, c_uint};

use super::{complex, forward, inverse, planned};
use crate::api::lists::{ShortDimension, batch, list};
use crate::api::{Array, FftwPlan, exports};
use crate::error::Result;
use crate::problem::{Dimension, Form, Problem};

/// The arguments of the `guru` functions.
///
/// # Safety
///
/// The lists are NULL or have as many elements as their ranks say.
unsafe fn guru<T: Copy + Into<Dimension>>(
    form: Form,
    (rank, dims): (c_int, *const T),
    (batch_rank, batch_dims): (c_int, *const T),
) -> Result<Problem>
where
    Dimension: From<T>,
{
    // SAFETY: the lists are as long by this function's contract.
    let (dimensions, batch) = unsafe { (list::<T, Dimension>(dims, rank)?, batch(batch_dims, batch_rank)?) };
    Problem::guru(form, &dimensions, batch)
}

exports! {
    /// Plans complex transforms with strides for each dimension.
    fn fftw_plan_guru_dft fftwf_plan_guru_dft(
        rank: c_int, dims: *const ShortDimension, batch_rank: c_int, batch_dims: *const ShortDimension,
        input: Array, output: Array, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(complex(precision, sign), (rank, dims), (batch_rank, batch_dims)) })
    }

    /// Plans transforms of real numbers with strides for each dimension.
    fn fftw_plan_guru_dft_r2c fftwf_plan_guru_dft_r2c(
        rank: c_int, dims: *const ShortDimension, batch_rank: c_int, batch_dims: *const ShortDimension,
        input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(forward(precision), (rank, dims), (batch_rank, batch_dims)) })
    }

    /// Plans transforms to real numbers with strides for each dimension.
    fn fftw_plan_guru_dft_c2r fftwf_plan_guru_dft_c2r(
        rank: c_int, dims: *const ShortDimension, batch_rank: c_int, batch_dims: *const ShortDimension,
        input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(inverse(precision), (rank, dims), (batch_rank, batch_dims)) })
    }

    /// Plans complex transforms with strides of 64 bits for each dimension.
    fn fftw_plan_guru64_dft fftwf_plan_guru64_dft(
        rank: c_int, dims: *const Dimension, batch_rank: c_int, batch_dims: *const Dimension,
        input: Array, output: Array, sign: c_int, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(complex(precision, sign), (rank, dims), (batch_rank, batch_dims)) })
    }

    /// Plans transforms of real numbers with strides of 64 bits for each dimension.
    fn fftw_plan_guru64_dft_r2c fftwf_plan_guru64_dft_r2c(
        rank: c_int, dims: *const Dimension, batch_rank: c_int, batch_dims: *const Dimension,
        input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(forward(precision), (rank, dims), (batch_rank, batch_dims)) })
    }

    /// Plans transforms to real numbers with strides of 64 bits for each dimension.
    fn fftw_plan_guru64_dft_c2r fftwf_plan_guru64_dft_c2r(
        rank: c_int, dims: *const Dimension, batch_rank: c_int, batch_dims: *const Dimension,
        input: Array, output: Array, _flags: c_uint,
    ) -> FftwPlan
    |precision| {
        // SAFETY: the lists are as long as their ranks say by the contract of FFTW's function.
        planned([input, output], unsafe { guru(inverse(precision), (rank, dims), (batch_rank, batch_dims)) })
    }
}
