// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls a library that would accept anything, and counts the calls that reach it.

use std::cell::Cell;

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::{CALLS, Calls};
use crate::gpu::CudaError;

/// `CUSOLVER_STATUS_INVALID_VALUE`
const WRONG: u64 = 3;
const REFACTOR: u64 = FIRST_HANDLE;
const SPARSE: u64 = FIRST_HANDLE + 16;
const INFO: u64 = FIRST_HANDLE + 32;
const DESCRIPTOR: u64 = FIRST_HANDLE + 48;

thread_local! {
    /// The number of elements that the library says it has allocated.
    static COUNT: Cell<i32> = const { Cell::new(0) };
}

extern "C" fn extract(
    _: u64,
    count: *mut i32,
    starts: *mut *mut i32,
    columns: *mut *mut i32,
    values: *mut *mut f64,
) -> i32 {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the worker gives places for a number and three addresses; the memory is longer than any number here.
    unsafe {
        count.write(COUNT.get());
        for place in [starts.cast(), columns.cast(), values.cast::<*mut u64>()] {
            place.write(libc::calloc(64, size_of::<u64>()).cast());
        }
        (*columns).write(77);
    }
    0
}

/// Returns the address of the function of that name in the library of these tests.
fn function(name: &str) -> Option<usize> {
    (name == "cusolverRfExtractBundledFactorsHost").then_some(extract as *const () as usize)
}

impl Calls {
    /// Sets up a matrix of one element, and its factors, with these row pointers of A and this order of rows.
    fn set_up(&mut self, batch: u64, starts: [u32; 2], order: u64) -> Result<u64, CudaError> {
        let pair = u64::from(starts[0]) | u64::from(starts[1]) << 32;
        let places = [PRESENT; 3];
        let (mut slots, mut data) = (vec![batch], Vec::new());
        slots.extend([1, 1]);
        slots.extend(places);
        // Row pointers, column 0, and an element of each matrix.
        data.extend([pair, 0]);
        data.extend(vec![0; batch as usize]);
        for _ in 0..2 {
            slots.push(1);
            slots.extend(places);
            data.extend([1 << 32, 0, 0]);
        }
        slots.extend([PRESENT, PRESENT, REFACTOR]);
        data.extend([order, 0]);
        self.call("cusolverRfBatchSetupHost", &slots, &data).map(|(status, _)| status)
    }
}

#[test]
fn the_library_sees_no_call_that_notes_or_rules_refuse() {
    let mut calls = Calls::of(&["cusolver", "cusparse"], function);
    let reset = |batch: u64| [batch, 1, 1, 0, 0, 0, 0, 0, REFACTOR];
    assert_eq!(calls.call("cusolverRfCreate", &[REFACTOR], &[]), Ok((0, vec![])));
    let pivots = "cusolverRfBatchZeroPivot";
    assert_eq!(calls.call(pivots, &[REFACTOR, PRESENT, 2], &[]), Ok((WRONG, vec![])), "nothing is noted");
    assert_eq!(calls.call("cusolverRfBatchResetValues", &reset(2), &[]), Ok((WRONG, vec![])));
    for (starts, order) in [([0, 2], 0), ([1, 2], 0), ([0, 1], 1), ([0, u32::MAX], 0)] {
        assert_eq!(calls.set_up(2, starts, order), Ok(WRONG), "{starts:?} {order}");
    }
    assert_eq!(CALLS.get(), 0);
    assert_eq!(calls.set_up(2, [0, 1], 0), Ok(0));
    assert_eq!(CALLS.get(), 1);
    for batch in [0, 1, 3, u64::from(u32::MAX)] {
        assert_eq!(calls.call("cusolverRfBatchResetValues", &reset(batch), &[]), Ok((WRONG, vec![])));
    }
    for forged in [0, 1, 3, 1 << 20, u64::MAX] {
        let answer = calls.call(pivots, &[REFACTOR, PRESENT, forged], &[]);
        assert_eq!(answer, Err(CudaError::INVALID_VALUE), "{forged}");
    }
    assert_eq!(CALLS.get(), 1);
    assert_eq!(calls.call("cusolverRfBatchResetValues", &reset(2), &[]), Ok((0, vec![])));
    assert_eq!(calls.call(pivots, &[REFACTOR, PRESENT, 2], &[]), Ok((0, vec![0])));
    assert_eq!(CALLS.get(), 3);
    calls.thread.held.release();
}

/// The solution copies factors to places that the last setup may have moved.
#[test]
fn no_solution_has_the_factors_of_an_earlier_setup() {
    let mut calls = Calls::of(&["cusolver", "cusparse"], function);
    let matrix = [SPARSE, 1, 1, 1, DESCRIPTOR, 0, 0, 0];
    let mut status = |function: &str, slots: &[u64]| {
        calls.call(function, slots, &[]).map(|(status, _)| status).expect("a status")
    };
    assert_eq!(status("cusparseCreateMatDescr", &[DESCRIPTOR]), 0);
    assert_eq!(status("cusolverSpCreate", &[SPARSE]), 0);
    assert_eq!(status("cusolverSpCreateCsrqrInfo", &[INFO]), 0);
    assert_eq!(status("cusolverSpXcsrqrAnalysis", &[&matrix[..5], &[0, 0, INFO]].concat()), 0);
    assert_eq!(status("cusolverSpDcsrqrBufferInfo", &[&matrix[..], &[INFO, PRESENT, PRESENT]].concat()), 0);
    let set_up = [&matrix[..], &[0, INFO]].concat();
    let factor = [SPARSE, 1, 1, 1, 0, 0, INFO, 0];
    let solve = [SPARSE, 1, 1, 0, 0, INFO, 0];
    assert_eq!(status("cusolverSpDcsrqrSetup", &set_up), 0);
    assert_eq!(status("cusolverSpDcsrqrSolve", &solve), WRONG);
    assert_eq!(status("cusolverSpDcsrqrFactor", &factor), 0);
    assert_eq!(status("cusolverSpDcsrqrSolve", &solve), 0);
    assert_eq!(status("cusolverSpDcsrqrSetup", &set_up), 0);
    assert_eq!(status("cusolverSpDcsrqrSolve", &solve), WRONG);
    calls.thread.held.release();
}

#[test]
fn memory_of_the_library_crosses_as_far_as_it_may_go() {
    let mut calls = Calls::of(&["cusolver", "cusparse"], function);
    assert_eq!(calls.call("cusolverRfCreate", &[REFACTOR], &[]), Ok((0, vec![])));
    assert_eq!(calls.set_up(1, [0, 1], 0), Ok(0));
    // One row; at most an element of L, one of U and a diagonal.
    let slots = [REFACTOR, PRESENT, PRESENT, PRESENT, PRESENT, 1, 3];
    let mut extract = |count: i32| {
        COUNT.set(count);
        calls.call("cusolverRfExtractBundledFactorsHost", &slots, &[])
    };
    // The count, two row pointers, at most three columns and elements.
    assert_eq!(extract(3), Ok((0, vec![3, 0, 77, 0, 0, 0, 0])));
    assert_eq!(extract(0), Ok((0, vec![0; 7])), "no more than the library has written");
    for count in [4, i32::MAX, -1, i32::MIN] {
        let (status, _) = extract(count).expect("an answer");
        assert_eq!(status, 7, "CUSOLVER_STATUS_INTERNAL_ERROR for {count} elements");
    }
    calls.thread.held.release();
}
