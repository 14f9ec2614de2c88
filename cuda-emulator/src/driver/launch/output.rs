// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device output on the process's C streams, so that it mixes with the program's own in the right order.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::execute::Printf;

unsafe extern "C" {
    static mut stdout: *mut libc::FILE;
}

/// Writes the text that kernels have printed to the C stdout and flushes it.
pub(crate) fn flush(printf: &Printf) {
    static WRITING: Mutex<()> = Mutex::new(());
    // Also held while the output is taken, so that two threads write it in the order in which it was printed.
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let text = printf.drain();
    if text.is_empty() {
        return;
    }
    // SAFETY: `stdout` is the C library's own stream; the program promises to C not to change it at the same time.
    unsafe {
        libc::fwrite(text.as_ptr().cast::<c_void>(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}

/// Writes a line to standard error.
pub(crate) fn write_error(line: &str) {
    eprintln!("{line}");
}
