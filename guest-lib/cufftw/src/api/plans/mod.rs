// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that plan. The flags are ignored, as NVIDIA's library does.

mod basic;
mod guru;
mod many;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use super::{Array, FftwPlan};
use crate::error::{Error, Result, report};
use crate::plan::Plan;
use crate::problem::{Form, Kind, Precision, Problem};

/// Returns a plan, or NULL after printing the reason.
fn planned(arrays: [Array; 2], problem: Result<Problem>) -> FftwPlan {
    let arrays = arrays.map(|array| array as usize);
    let plan = catch_unwind(AssertUnwindSafe(|| Plan::new(problem?, arrays)));
    match plan.unwrap_or(Err(Error::Internal)) {
        Ok(plan) => Box::into_raw(Box::new(plan)).cast(),
        Err(error) => {
            report("no plan of cuFFTW", &error);
            null_mut()
        }
    }
}

fn complex(precision: Precision, sign: c_int) -> Form {
    Form { kind: Kind::Complex(sign), precision }
}

fn forward(precision: Precision) -> Form {
    Form { kind: Kind::Forward, precision }
}

fn inverse(precision: Precision) -> Form {
    Form { kind: Kind::Inverse, precision }
}
