// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The choice of an algorithm for a convolution. Here all algorithms are one, which needs no workspace.

use std::ffi::{c_float, c_int};

use super::super::convolution::Direction;
use super::super::layout::Layout;
use super::super::{BAD_PARAM, SUCCESS, Status, give, status, stream_of};
use super::convolution::geometry;
use super::described;
use super::filter::Filter;
use crate::exported::exported;
use crate::handles::Handle;

/// `cudnnConvolutionFwdAlgoPerf_t`, `cudnnConvolutionBwdDataAlgoPerf_t` and `cudnnConvolutionBwdFilterAlgoPerf_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Performance {
    algorithm: c_int,
    status: Status,
    /// Milliseconds; negative where nothing was measured.
    time: c_float,
    memory: usize,
    /// `CUDNN_DETERMINISTIC` is 1.
    determinism: c_int,
    math_type: c_int,
    reserved: [c_int; 3],
}
const _: () = assert!(size_of::<Performance>() == 48);

/// Number of algorithms of cuDNN.
const fn algorithms(direction: Direction) -> c_int {
    match direction {
        Direction::Forward => 8,
        Direction::Data => 6,
        Direction::Filter => 7,
    }
}

/// Checks the number of an algorithm.
pub fn check(direction: Direction, algorithm: c_int) -> Result<(), Status> {
    if (0..algorithms(direction)).contains(&algorithm) { Ok(()) } else { Err(BAD_PARAM) }
}

/// The tensors and the filter of a convolution, in the order in which the functions of a direction have them.
fn check_sizes(
    handle: Handle,
    direction: Direction,
    convolution: Handle,
    [first, second, third]: [Handle; 3],
) -> Result<(), Status> {
    stream_of(handle)?;
    let (x, w, y) = match direction {
        Direction::Forward => (first, second, third),
        Direction::Data => (third, first, second),
        Direction::Filter => (first, third, second),
    };
    let (x, w, y) = (described::<Layout>(x)?, described::<Filter>(w)?.layout, described::<Layout>(y)?);
    geometry(convolution, [&x, &w, &y]).map(drop)
}

/// Returns the one algorithm: the second of each list, which NVIDIA's library has for all types and without atomics.
///
/// # Safety
///
/// `returned` is null or has room for a number, `results` is null or has room for `requested` elements.
unsafe fn choose(
    sizes: Result<(), Status>,
    requested: c_int,
    returned: *mut c_int,
    results: *mut Performance,
) -> Result<(), Status> {
    sizes?;
    if requested < 1 || results.is_null() {
        return Err(BAD_PARAM);
    }
    let found = Performance {
        algorithm: 1,
        status: SUCCESS,
        time: -1.0,
        memory: 0,
        determinism: 1,
        math_type: 0,
        reserved: [0; 3],
    };
    // SAFETY: the places have room for a number and for at least one element by this function's contract.
    unsafe {
        give(returned, 1)?;
        give(results, found)
    }
}

exported! {
    /// Number of algorithms.
    pub unsafe extern "C" fn(direction) [
        cudnnGetConvolutionForwardAlgorithmMaxCount(Direction::Forward),
        cudnnGetConvolutionBackwardDataAlgorithmMaxCount(Direction::Data),
        cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(Direction::Filter),
    ]
    (handle: Handle, count: *mut c_int) -> Status {
        let found = stream_of(handle).map(|_| algorithms(direction));
        // SAFETY: the caller gives a place for a number, or null.
        status(found.and_then(|found| unsafe { give(count, found) }))
    }

    /// The algorithms for a convolution.
    pub unsafe extern "C" fn(direction) [
        cudnnGetConvolutionForwardAlgorithm_v7(Direction::Forward),
        cudnnGetConvolutionBackwardDataAlgorithm_v7(Direction::Data),
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(Direction::Filter),
    ]
    (
        handle: Handle, first: Handle, second: Handle, convolution: Handle, third: Handle, requested: c_int,
        returned: *mut c_int, results: *mut Performance,
    ) -> Status {
        let sizes = check_sizes(handle, direction, convolution, [first, second, third]);
        // SAFETY: the caller gives room for what it has requested, or null.
        status(unsafe { choose(sizes, requested, returned, results) })
    }

    /// The algorithms for a convolution, of which there is nothing to measure.
    pub unsafe extern "C" fn(get) [
        cudnnFindConvolutionForwardAlgorithm(cudnnGetConvolutionForwardAlgorithm_v7),
        cudnnFindConvolutionBackwardDataAlgorithm(cudnnGetConvolutionBackwardDataAlgorithm_v7),
        cudnnFindConvolutionBackwardFilterAlgorithm(cudnnGetConvolutionBackwardFilterAlgorithm_v7),
    ]
    (
        handle: Handle, first: Handle, second: Handle, convolution: Handle, third: Handle, requested: c_int,
        returned: *mut c_int, results: *mut Performance,
    ) -> Status {
        // SAFETY: this function's contract is that function's.
        unsafe { get(handle, first, second, convolution, third, requested, returned, results) }
    }

    /// The algorithms for a convolution of tensors, which stay as they are.
    pub unsafe extern "C" fn(get) [
        cudnnFindConvolutionForwardAlgorithmEx(cudnnGetConvolutionForwardAlgorithm_v7),
        cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnGetConvolutionBackwardDataAlgorithm_v7),
        cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnGetConvolutionBackwardFilterAlgorithm_v7),
    ]
    (
        handle: Handle, first: Handle, _: usize, second: Handle, _: usize, convolution: Handle, third: Handle, _: usize,
        requested: c_int, returned: *mut c_int, results: *mut Performance, _: usize, _: usize,
    ) -> Status {
        // SAFETY: this function's contract is that function's.
        unsafe { get(handle, first, second, convolution, third, requested, returned, results) }
    }

    /// Bytes of workspace that an algorithm needs.
    pub unsafe extern "C" fn(direction) [
        cudnnGetConvolutionForwardWorkspaceSize(Direction::Forward),
        cudnnGetConvolutionBackwardDataWorkspaceSize(Direction::Data),
        cudnnGetConvolutionBackwardFilterWorkspaceSize(Direction::Filter),
    ]
    (
        handle: Handle, first: Handle, second: Handle, convolution: Handle, third: Handle, algorithm: c_int, bytes: *mut usize,
    ) -> Status {
        let sizes = check_sizes(handle, direction, convolution, [first, second, third]);
        let sizes = sizes.and_then(|()| check(direction, algorithm));
        // SAFETY: the caller gives a place for a number, or null.
        status(sizes.and_then(|()| unsafe { give(bytes, 0) }))
    }
}
