// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effect of a bad kernel on its process. Other processes are not affected.

use std::ptr::null_mut;

use crate::cu::{self, cu, function, launch_in, params};
use crate::output::{in_child, run_child};

const SUCCESS: i32 = 0;
const NOT_INITIALIZED: i32 = 3;
const ILLEGAL_ADDRESS: i32 = 700;
const CONTEXT_IS_DESTROYED: i32 = 709;
const ASSERT: i32 = 710;

fn assert_ran(test: &str) -> String {
    let output = run_child(test);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{error}", String::from_utf8_lossy(&output.stdout));
    error
}

#[test]
fn an_illegal_address_is_the_answer_for_ever() {
    if in_child() {
        let context = cu::use_primary_context();
        let module = cu::load_module();
        let (mut stream, mut event, mut ptr) = (null_mut(), null_mut(), 0);
        assert_eq!(cu!(cuStreamCreate(&mut stream, 0)), SUCCESS);
        assert_eq!(cu!(cuEventCreate(&mut event, 0)), SUCCESS);
        assert_eq!(launch_in(stream, function(module, "store"), 1, 1, 0, params![0u64]), SUCCESS);
        assert_eq!(cu!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuEventRecord(event, stream)), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuModuleUnload(module)), ILLEGAL_ADDRESS);
        // A new context does not help, nor does a reset.
        let mut other = null_mut();
        assert_eq!(cu!(cuCtxCreate_v2(&mut other, 0, 0)), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)), SUCCESS);
        assert_eq!(cu!(cuDevicePrimaryCtxRetain(&mut other, 0)), ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuCtxSetCurrent(context)), SUCCESS);
        assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), CONTEXT_IS_DESTROYED);
        return;
    }
    let error = assert_ran("faults::an_illegal_address_is_the_answer_for_ever");
    assert!(error.contains("kernel `store`") && error.contains("0x0"), "{error}");
}

#[test]
fn a_failed_assertion_says_where() {
    if in_child() {
        let module = cu::load_module();
        assert_eq!(launch_in(null_mut(), function(module, "check"), 1, 1, 0, params![1i32]), SUCCESS);
        assert_eq!(cu!(cuCtxSynchronize()), ASSERT);
        return;
    }
    let error = assert_ran("faults::a_failed_assertion_says_where");
    assert!(
        error.contains("void check(int): block: [0,0,0], thread: [0,0,0] Assertion `n == 0` failed."),
        "{error}"
    );
}

#[test]
fn a_forked_child_is_refused_and_the_parent_goes_on() {
    if in_child() {
        cu::use_primary_context();
        // SAFETY: the child only calls the driver, which refuses before it takes a lock, and ends.
        let child = unsafe { libc::fork() };
        let mut ptr = 0;
        if child == 0 {
            let refused =
                cu!(cuMemAlloc_v2(&mut ptr, 4)) == NOT_INITIALIZED && cu!(cuInit(0)) == NOT_INITIALIZED;
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: `status` is a variable of this function.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), SUCCESS);
        return;
    }
    assert_ran("faults::a_forked_child_is_refused_and_the_parent_goes_on");
}
