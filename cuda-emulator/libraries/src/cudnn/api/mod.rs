// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The C interface of the legacy API.

pub(crate) mod activation;
pub(crate) mod algorithms;
pub(crate) mod arithmetic;
pub(crate) mod batch_norm;
pub(crate) mod convolution;
pub(crate) mod convolution_descriptor;
pub(crate) mod ctc;
pub(crate) mod ctc_descriptor;
pub(crate) mod filter;
pub(crate) mod handle;
pub(crate) mod pooling;
pub(crate) mod tensor;

use std::ffi::c_void;

use super::layout::Layout;
use super::{BAD_PARAM, Blend, Operand, SUCCESS, Status, give, status};
use crate::handles::{self, Handle};

/// A descriptor that has been made, and perhaps set.
#[derive(Clone, Debug)]
struct Descriptor<T>(Option<T>);

/// Returns the settings of a descriptor, which must have been set.
fn described<T: Clone + Send + 'static>(handle: Handle) -> Result<T, Status> {
    handles::with(handle, |descriptor: &mut Descriptor<T>| descriptor.0.clone()).flatten().ok_or(BAD_PARAM)
}

/// Sets a descriptor.
fn set<T: Send + 'static>(handle: Handle, value: Result<T, Status>) -> Result<(), Status> {
    let value = value?;
    handles::with(handle, |descriptor: &mut Descriptor<T>| descriptor.0 = Some(value)).ok_or(BAD_PARAM)
}

/// Creates a descriptor.
///
/// # Safety
///
/// `place` is null or has room for a handle.
unsafe fn create<T: Send + 'static>(place: *mut Handle) -> Status {
    if place.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: the place has room by this function's contract.
    status(unsafe { give(place, handles::make(Descriptor::<T>(None))) })
}

/// Ends a descriptor.
fn destroy<T: Send + 'static>(handle: Handle) -> Status {
    if handles::end::<Descriptor<T>>(handle) { SUCCESS } else { BAD_PARAM }
}

/// A tensor of a descriptor in device memory.
fn operand(descriptor: Handle, base: usize) -> Result<Operand, Status> {
    Operand::new(described::<Layout>(descriptor)?, base)
}

/// A factor in host memory, whose type follows from the tensor that it is for.
///
/// # Safety
///
/// `place` is null or has such a number.
unsafe fn factor(place: *const c_void, layout: &Layout) -> Result<f64, Status> {
    if place.is_null() {
        return Err(BAD_PARAM);
    }
    // SAFETY: the place has a number of the type of factors by this function's contract.
    Ok(unsafe { layout.scaling().read(place as usize) }.re)
}

/// The factors of a result.
///
/// # Safety
///
/// As [`factor`].
unsafe fn blend(alpha: *const c_void, beta: *const c_void, layout: &Layout) -> Result<Blend, Status> {
    // SAFETY: `factor` demands that each is null or has a number of the type of factors.
    unsafe { Ok(Blend { alpha: factor(alpha, layout)?, beta: factor(beta, layout)? }) }
}

#[cfg(test)]
mod api_test;
