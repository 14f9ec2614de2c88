// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Algorithms: there is one.

use std::ffi::c_int;

use super::matmul::check;
use crate::cublas::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status};
use crate::handles::Handle;

/// The number of the algorithm.
const ID: c_int = 1;

/// `cublasLtMatmulAlgo_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Algorithm {
    data: [u64; 8],
}

const ALGORITHM: Algorithm = Algorithm { data: [ID as u64, 0, 0, 0, 0, 0, 0, 0] };

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Found>() == 96);

/// Algorithms for a product: one, which needs no workspace, if the product can be computed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: Handle,
    description: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    preference: usize,
    wanted: c_int,
    results: *mut Found,
    count: *mut c_int,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null.
    let Some(count) = (unsafe { count.as_mut() }) else { return INVALID_VALUE };
    *count = 0;
    if results.is_null() || preference == 0 || wanted < 1 {
        return INVALID_VALUE;
    }
    let answer = check(description, [a, b, c, d]);
    if answer != SUCCESS {
        return answer;
    }
    // SAFETY: the caller gives an array of `wanted` results.
    unsafe { results.write(Found { algorithm: ALGORITHM, waves: 1.0, ..Found::default() }) };
    *count = 1;
    SUCCESS
}

/// The numbers of algorithms for products of some types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetIds(
    _handle: Handle,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    wanted: c_int,
    ids: *mut c_int,
    count: *mut c_int,
) -> Status {
    // SAFETY: the caller gives a place for a number, or null, and an array of `wanted` numbers.
    let (Some(count), Some(id), true) = (unsafe { (count.as_mut(), ids.as_mut(), wanted > 0) }) else {
        return INVALID_VALUE;
    };
    (*count, *id) = (1, ID);
    SUCCESS
}

/// Creates an algorithm from its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoInit(
    _handle: Handle,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    id: c_int,
    algorithm: *mut Algorithm,
) -> Status {
    if algorithm.is_null() {
        return INVALID_VALUE;
    }
    if id != ID {
        return NOT_SUPPORTED;
    }
    // SAFETY: the caller gives a place for an algorithm.
    unsafe { algorithm.write(ALGORITHM) };
    SUCCESS
}

/// Checks that an algorithm can compute a product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    _handle: Handle,
    description: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    algorithm: *const Algorithm,
    result: *mut Found,
) -> Status {
    // SAFETY: the caller gives an algorithm and a place for a result, or null.
    let (Some(algorithm), Some(result)) = (unsafe { (algorithm.as_ref(), result.as_mut()) }) else {
        return INVALID_VALUE;
    };
    let answer = check(description, [a, b, c, d]);
    *result = Found { algorithm: *algorithm, state: answer, waves: 1.0, ..Found::default() };
    answer
}
