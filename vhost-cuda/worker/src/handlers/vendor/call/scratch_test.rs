// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Workspaces in host memory, whose length the library does not check.

use std::cell::Cell;

use virtio_cuda_protocol::cuda::FIRST_HANDLE;

use super::super::PRESENT;
use super::super::calls::Calls;

/// `CUSOLVER_STATUS_INVALID_VALUE`
const INVALID_VALUE: u64 = 3;
const HANDLE: u64 = FIRST_HANDLE;
const NEED: u64 = 100_000;

thread_local! {
    /// The workspace that the library needs.
    static NEEDED: Cell<u64> = const { Cell::new(NEED) };
    /// The length that it was told. Zero: it was not called.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

#[allow(clippy::too_many_arguments)]
extern "C" fn size(
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    device: *mut u64,
    host: *mut u64,
) -> i32 {
    // SAFETY: the worker gives places for two numbers.
    unsafe {
        device.write(1 << 40);
        host.write(NEEDED.get());
    }
    0
}

#[allow(clippy::too_many_arguments)]
extern "C" fn factorize(
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
    workspace: *mut u8,
    bytes: u64,
) -> i32 {
    TOLD.set(bytes);
    if !workspace.is_null() {
        // SAFETY: the worker gives as many bytes as the library has said that it needs.
        unsafe { workspace.write_bytes(0x5a, NEEDED.get() as usize) };
    }
    0
}

fn function(name: &str) -> Option<usize> {
    Some(match name {
        "cusolverDnXpotrf_bufferSize" => size as *const () as usize,
        "cusolverDnXpotrf" => factorize as *const () as usize,
        _ => return None,
    })
}

#[test]
fn a_workspace_is_as_long_as_the_library_needs() {
    let mut calls = Calls::of(&["cusolver"], function);
    calls.call("cusolverDnCreate", &[HANDLE], &[]).expect("a handle");
    let mut call = |workspace: u64, bytes: u64| {
        TOLD.set(0);
        let slots = [HANDLE, 0, 0, 8, 1, 0x7000, 8, 1, 0x7000, 64, workspace, bytes, 0x7000];
        let status = calls.call("cusolverDnXpotrf", &slots, &[]).map(|(status, _)| status);
        (status, TOLD.get())
    };
    for short in [0, 1, NEED - 1] {
        assert_eq!(call(PRESENT, short), (Ok(INVALID_VALUE), 0), "{short} bytes");
    }
    assert_eq!(call(0, NEED), (Ok(INVALID_VALUE), 0), "none");
    assert_eq!(call(PRESENT, NEED), (Ok(0), NEED));
    assert_eq!(call(PRESENT, NEED + 1), (Ok(0), NEED + 1));
    NEEDED.set(0);
    assert_eq!(call(0, 7), (Ok(0), 7), "none is needed");
}
