// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that execute and end plans. A plan knows its precision, so either name will do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Array, FftwPlan, exports};
use crate::error::{Error, Result, report};
use crate::plan::{Arrays, Plan};
use crate::problem::Kind;

/// The kind of plan that a function executes.
type Wanted = fn(Kind) -> bool;

/// Executes a plan with these arrays, or with its own. Prints the reason of a failure.
///
/// # Safety
///
/// `plan` is NULL or a plan. The arrays have its layouts.
unsafe fn execute(plan: FftwPlan, arrays: Option<Arrays>, wanted: Wanted) {
    // SAFETY: NULL, or a plan of this library by this function's contract.
    let plan = unsafe { plan.cast::<Plan>().as_ref() };
    let run = || -> Result {
        let plan = plan.ok_or(Error::Arguments("the plan is NULL"))?;
        if !wanted(plan.problem().form.kind) {
            return Err(Error::Arguments("the plan is of another kind than the function"));
        }
        // SAFETY: the arrays have the plan's layouts by this function's contract; the program vouches for its own.
        unsafe { plan.execute(arrays.unwrap_or(plan.arrays())) }
    };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::Internal));
    if let Err(error) = result {
        report("a transform of cuFFTW failed", &error);
    }
}

/// Ends a plan.
///
/// # Safety
///
/// `plan` is NULL or a plan, which is not used any longer.
unsafe fn destroy(plan: FftwPlan) {
    if plan.is_null() {
        return;
    }
    // SAFETY: a plan of this library, which comes from a box, and is not used any longer by this function's contract.
    let plan = unsafe { Box::from_raw(plan.cast::<Plan>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(plan)));
}

fn arrays(input: Array, output: Array) -> Option<Arrays> {
    Some([input as usize, output as usize])
}

exports! {
    /// Executes a plan with the arrays for which it was made.
    fn fftw_execute fftwf_execute(plan: FftwPlan) |_| {
        // SAFETY: a plan, whose arrays still exist, by the contract of FFTW's function.
        unsafe { execute(plan, None, |_| true) }
    }

    /// Executes a plan of complex transforms with other arrays.
    fn fftw_execute_dft fftwf_execute_dft(plan: FftwPlan, input: Array, output: Array) |_| {
        // SAFETY: a plan, and arrays of its layouts, by the contract of FFTW's function.
        unsafe { execute(plan, arrays(input, output), |kind| matches!(kind, Kind::Complex(_))) }
    }

    /// Executes a plan of transforms of real numbers with other arrays.
    fn fftw_execute_dft_r2c fftwf_execute_dft_r2c(plan: FftwPlan, input: Array, output: Array) |_| {
        // SAFETY: a plan, and arrays of its layouts, by the contract of FFTW's function.
        unsafe { execute(plan, arrays(input, output), |kind| kind == Kind::Forward) }
    }

    /// Executes a plan of transforms to real numbers with other arrays.
    fn fftw_execute_dft_c2r fftwf_execute_dft_c2r(plan: FftwPlan, input: Array, output: Array) |_| {
        // SAFETY: a plan, and arrays of its layouts, by the contract of FFTW's function.
        unsafe { execute(plan, arrays(input, output), |kind| kind == Kind::Inverse) }
    }

    /// Ends a plan.
    fn fftw_destroy_plan fftwf_destroy_plan(plan: FftwPlan) |_| {
        // SAFETY: a plan that is not used any longer by the contract of FFTW's function.
        unsafe { destroy(plan) }
    }

    /// Plans share nothing that could be cleaned up.
    fn fftw_cleanup fftwf_cleanup() |_| {}
}
