// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Windows and registrations of NCCL, which end together with a communicator.

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::{CALLS, Calls};

const SUCCESS: u64 = 0;
/// `ncclInvalidArgument`, and the status for a handle that does not exist.
const WRONG: u64 = 4;
const NO_HANDLE: u64 = 2;
const COMM: u64 = FIRST_HANDLE;
const OTHER: u64 = FIRST_HANDLE + 16;
const HANDLE: u64 = FIRST_HANDLE + 32;

extern "C" fn init(place: *mut u64) -> i32 {
    // SAFETY: the worker gives a place for a handle.
    unsafe { place.write(0x5000) };
    0
}

extern "C" fn register(_: u64, _: u64, _: u64, place: *mut u64) -> i32 {
    // SAFETY: the worker gives a place for a handle.
    unsafe { place.write(0x6000) };
    0
}

/// Checks the handle that it ends.
extern "C" fn deregister(comm: u64, handle: u64) -> i32 {
    CALLS.set(CALLS.get() + 1);
    assert!(comm == 0x5000 && matches!(handle, 0 | 0x6000), "{comm:#x}, {handle:#x}");
    0
}

fn function(name: &str) -> Option<usize> {
    Some(match name {
        "ncclCommInitRank" => init as *const () as usize,
        "ncclCommRegister" | "ncclCommWindowRegister" => register as *const () as usize,
        "ncclCommDeregister" | "ncclCommWindowDeregister" => deregister as *const () as usize,
        _ => return None,
    })
}

fn communicator(calls: &mut Calls, name: u64) {
    let made = calls.call("ncclCommInitRank", &[name, 1, PRESENT, 0], &[0; 16]);
    assert_eq!(made.map(|(status, _)| status), Ok(SUCCESS));
}

/// A number that nobody registered would be followed by the library, and freed.
#[test]
fn only_what_was_registered_with_a_communicator_is_ended_with_it() {
    for (register, deregister, flags) in [
        ("ncclCommRegister", "ncclCommDeregister", &[][..]),
        ("ncclCommWindowRegister", "ncclCommWindowDeregister", &[0]),
    ] {
        let mut calls = Calls::of(&["nccl"], function);
        [COMM, OTHER].into_iter().for_each(|name| communicator(&mut calls, name));
        let mut call = |function: &str, slots: &[u64]| {
            CALLS.set(0);
            let status = calls.call(function, slots, &[]).map(|(status, _)| status);
            (status, CALLS.get())
        };
        let slots = [&[COMM, 0x7000, 4096, HANDLE], flags].concat();
        for forged in [0x7000, HANDLE, u64::MAX] {
            assert_eq!(call(deregister, &[COMM, forged]), (Ok(NO_HANDLE), 0));
        }
        assert_eq!(call(register, &slots).0, Ok(SUCCESS));
        assert_eq!(call(deregister, &[OTHER, HANDLE]), (Ok(WRONG), 0));
        assert_eq!(call(deregister, &[COMM, HANDLE]), (Ok(SUCCESS), 1));
        assert_eq!(call(deregister, &[COMM, HANDLE]), (Ok(NO_HANDLE), 0), "it has ended");
        assert_eq!(call(deregister, &[COMM, 0]), (Ok(SUCCESS), 1), "null is the library's business");
        // The communicator has ended, and another one has its name.
        assert_eq!(call(register, &slots).0, Ok(SUCCESS));
        assert_eq!(call("ncclCommDestroy", &[COMM]).0, Ok(SUCCESS));
        communicator(&mut calls, COMM);
        CALLS.set(0);
        let late = calls.call(deregister, &[COMM, HANDLE], &[]);
        assert_eq!((late.map(|(status, _)| status), CALLS.get()), (Ok(WRONG), 0));
    }
}
