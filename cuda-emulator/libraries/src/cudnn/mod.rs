// SPDX-License-Identifier: Apache-2.0 OR MIT

//! cuDNN 9. An operation reads its tensors into rows of doubles ([`layout`]), computes, and writes its result, all in one host
//! function of the handle's stream. The modules of operations compute on such rows alone; [`api`] is the C interface of the
//! legacy API over them, and [`backend`] that of graphs.

mod activation;
pub(crate) mod api;
mod arithmetic;
pub(crate) mod backend;
mod convolution;
mod ctc;
mod layout;
mod normalisation;
mod pooling;
mod reduction;
mod softmax;

use std::ffi::c_int;

use layout::Layout;

use crate::handles::{self, Handle};
use crate::stream::{self, Done, Stream};

/// `cudnnStatus_t`
type Status = i32;

/// `CUDNN_STATUS_SUCCESS`
const SUCCESS: Status = 0;
/// `CUDNN_STATUS_BAD_PARAM`
const BAD_PARAM: Status = 2000;
/// `CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED`
const NOT_FINALIZED: Status = 2004;
/// `CUDNN_STATUS_NOT_SUPPORTED`
const NOT_SUPPORTED: Status = 3000;
/// `CUDNN_STATUS_EXECUTION_FAILED`
const EXECUTION_FAILED: Status = 5000;

/// Maximum number of dimensions of a tensor (`CUDNN_DIM_MAX`).
const MAX_RANK: usize = 8;

/// A `cudnnHandle_t`.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    stream: Stream,
}

/// The stream of a handle.
fn stream_of(handle: Handle) -> Result<Stream, Status> {
    handles::with(handle, |settings: &mut Settings| settings.stream).ok_or(BAD_PARAM)
}

/// Queues an operation.
fn queue(stream: Stream, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), Status> {
    stream::queue(stream, work).map_err(|_| EXECUTION_FAILED)
}

/// The body of an exported function, as a status.
fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(SUCCESS)
}

/// Writes a value where the caller said.
///
/// # Safety
///
/// `place` is null or has room for a value.
unsafe fn give<T>(place: *mut T, value: T) -> Result<(), Status> {
    if place.is_null() {
        return Err(BAD_PARAM);
    }
    // SAFETY: the place is not null, so it has room by this function's contract.
    unsafe { place.write(value) };
    Ok(())
}

/// Numbers that the caller has.
///
/// # Safety
///
/// `place` is null or has `count` numbers.
unsafe fn taken<T: Copy>(place: *const T, count: usize) -> Result<Vec<T>, Status> {
    if place.is_null() {
        return Err(BAD_PARAM);
    }
    // SAFETY: the place is not null, so it has as many by this function's contract.
    Ok((0..count).map(|index| unsafe { place.add(index).read() }).collect())
}

/// A count of dimensions from `least` to `most`.
fn rank(number: c_int, least: usize, most: usize) -> Result<usize, Status> {
    usize::try_from(number).ok().filter(|rank| (least..=most).contains(rank)).ok_or(BAD_PARAM)
}

/// A tensor in device memory.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    layout: Layout,
    base: usize,
}

impl Operand {
    fn new(layout: Layout, base: usize) -> Result<Self, Status> {
        if base == 0 { Err(BAD_PARAM) } else { Ok(Self { layout, base }) }
    }

    fn dims(&self) -> &[usize] {
        &self.layout.dims
    }

    /// Checks its memory. The allocation of an operation is bounded by the memory of its tensors, so it checks a
    /// result that may be larger than its inputs before it computes it.
    fn check(&self) -> Done {
        self.layout.check(self.base)
    }

    /// All elements in the order of its dimensions.
    fn load(&self) -> Result<Vec<f64>, stream::Fault> {
        self.layout.load(self.base)
    }

    /// Changes all elements: `alpha` times the values, plus `beta` times the old elements.
    fn store(&self, values: &[f64], blend: Blend) -> Done {
        if blend == Blend::REPLACE {
            return self.layout.store(self.base, values);
        }
        let mut blended: Vec<f64> = values.iter().map(|value| blend.alpha * value).collect();
        // The old elements are not read if they are ignored, because they may be NaN.
        if blend.beta != 0.0 {
            blended.iter_mut().zip(self.load()?).for_each(|(value, old)| *value += blend.beta * old);
        }
        self.layout.store(self.base, &blended)
    }
}

/// The factors of a result and of the old elements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Blend {
    alpha: f64,
    beta: f64,
}

impl Blend {
    const REPLACE: Self = Self { alpha: 1.0, beta: 0.0 };
}
