// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prevents Rust's runtime from mapping a second stack for each thread.
//!
//! The runtime maps it in the new thread, to print a message when the thread's stack overflows, and ends the process
//! if that fails. A daemon without address space would thereby end the sessions of all machines. The runtime does so
//! only if it finds the default actions of SIGSEGV and SIGBUS when it starts. Stacks keep their guard pages: an
//! overflow is a SIGSEGV, without the message. A thread that cannot be started is then an error of `spawn`.

use std::ffi::c_int;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The dynamic linker runs it before the C library's `main`, in which the runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE: extern "C" fn() = before;

extern "C" fn before() {
    act(libc::SIG_IGN);
}

/// Restores the default actions of the signals. Must be called first.
pub fn begun() {
    act(libc::SIG_DFL);
}

fn act(action: libc::sighandler_t) {
    for signal in SIGNALS {
        // SAFETY: no handler is installed, and both actions are valid for these signals.
        unsafe { libc::signal(signal, action) };
    }
}
