// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of kernels. Each test runs itself as a process of its own, whose output it reads.

use std::env;
use std::ffi::CStr;
use std::process::{Command, Output};
use std::ptr::null_mut;

use crate::cu::{self, cu, function, launch, params};

/// Set in the process that executes the tested calls.
const CHILD: &str = "CUDA_EMULATOR_TEST_CHILD";

/// Returns whether this is the process that does it.
pub fn in_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Returns the role of this process ([`run_child_as`]); `None` in the first process.
pub fn child_role() -> Option<String> {
    env::var(CHILD).ok()
}

/// Runs one test of this program as a process of its own.
pub fn run_child(test: &str) -> Output {
    run_child_as(test, "1")
}

/// As [`run_child`], where the process finds `role`.
pub fn run_child_as(test: &str, role: &str) -> Output {
    let program = env::current_exe().unwrap();
    let arguments = [test, "--exact", "--nocapture", "--test-threads=1"];
    Command::new(program).args(arguments).env(CHILD, role).output().unwrap()
}

/// Prints through the C library, unbuffered output of Rust's own would come in another order.
fn say(text: &CStr) {
    // SAFETY: a C string without format directives; NULL flushes all streams.
    unsafe {
        libc::printf(text.as_ptr());
        libc::fflush(null_mut());
    }
}

#[test]
fn printf_comes_out_when_the_host_waits() {
    if in_child() {
        let module = cu::load_module();
        let hello = function(module, "hello");
        say(c"[begin]\n");
        assert_eq!(launch(hello, 1, 2, 0, params![1i32]), 0);
        assert_eq!(cu!(cuStreamSynchronize(null_mut())), 0);
        say(c"[synchronised]\n");
        assert_eq!(launch(hello, 1, 1, 0, params![2i32]), 0);
        let ptr = cu::upload(&[0u8]);
        say(c"[copied]\n");
        assert_eq!(launch(hello, 1, 1, 0, params![3i32]), 0);
        assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
        assert_eq!(launch(hello, 1, 1, 0, params![4i32]), 0);
        assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)), 0);
        say(c"[end]\n");
        return;
    }
    let output = run_child("output::printf_comes_out_when_the_host_waits");
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = text.split_once("[begin]\n").expect("the child ran");
    let (printed, _) = rest.split_once("[end]").expect("the child came to its end");
    let expected = "hello 1 from thread 0\nhello 1 from thread 1\n[synchronised]\nhello 2 from thread 0\n[copied]\n\
                    hello 3 from thread 0\nhello 4 from thread 0\n";
    assert_eq!(printed, expected);
    assert!(output.status.success());
}

#[test]
fn exit_handlers_may_still_call_the_driver() {
    /// Frees memory as a static destructor of a C++ program does.
    extern "C" fn at_exit() {
        let mut ptr = 0;
        let results = [cu!(cuMemAlloc_v2(&mut ptr, 16)), cu!(cuMemFree_v2(ptr)), cu!(cuCtxSynchronize())];
        say(if results == [0; 3] { c"[handler ok]\n" } else { c"[handler failed]\n" });
    }
    if in_child() {
        cu::use_primary_context();
        // SAFETY: the handler is a function of this program, which stays loaded.
        unsafe {
            libc::atexit(at_exit);
            libc::exit(0);
        }
    }
    let output = run_child("output::exit_handlers_may_still_call_the_driver");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("[handler ok]"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
