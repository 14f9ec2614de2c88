// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls a library that reads memory of a call after the call.

use std::cell::Cell;
use std::ptr;

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::Calls;

const PLAN: u64 = FIRST_HANDLE;
const NAME: &[u8; 8] = b"load_it\0";
const CODE: [u64; 3] = [11, 22, 33];
/// `CUFFT_INTERNAL_ERROR`
const FAILED: i32 = 5;

thread_local! {
    /// The addresses of the name and the code of a callback.
    static CALLBACK: Cell<(*const [u8; 8], *const [u64; 3])> = const { Cell::new((ptr::null(), ptr::null())) };
}

extern "C" fn set_callback(_: i32, name: *const [u8; 8], code: *const [u64; 3]) -> i32 {
    CALLBACK.set((name, code));
    0
}

extern "C" fn make_plan() -> i32 {
    let (name, code) = CALLBACK.get();
    // SAFETY: the row lends the memory until the plan is destroyed.
    if unsafe { (&*name, &*code) == (NAME, &CODE) } { 0 } else { FAILED }
}

/// Returns the address of the function of that name in the library of this test.
fn function(name: &str) -> Option<usize> {
    match name {
        "cufftXtSetJITCallback" => Some(set_callback as *const () as usize),
        "cufftMakePlan1d" => Some(make_plan as *const () as usize),
        _ => None,
    }
}

#[test]
fn what_is_lent_stays_as_long_as_the_handle() {
    let mut calls = Calls::of(&["cufft"], function);
    assert_eq!(calls.call("cufftCreate", &[PLAN], &[]), Ok((0, vec![])));
    let slots = [PLAN, NAME.len() as u64, PRESENT, size_of_val(&CODE) as u64, 0, 0];
    let [first, second, third] = CODE;
    let data = [u64::from_le_bytes(*NAME), first, second, third];
    assert_eq!(calls.call("cufftXtSetJITCallback", &slots, &data), Ok((0, vec![])));
    for _ in 0..8 {
        assert_eq!(calls.call("cufftSetAutoAllocation", &[PLAN, 0], &[]).map(|(status, _)| status), Ok(0));
        let made = calls.call("cufftMakePlan1d", &[PLAN, 10, 41, 1, PRESENT], &[]);
        assert_eq!(made.map(|(status, _)| status), Ok(0));
    }
    assert_eq!(calls.call("cufftDestroy", &[PLAN], &[]).map(|(status, _)| status), Ok(0));
}
