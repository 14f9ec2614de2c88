// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Identifies the thread that runs functions of the program for the driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Id of that thread (gettid(2)); 0 before it exists.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Returns whether the calling thread runs a function of the program for the driver. Such functions must not make CUDA
/// calls.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Records that the calling thread runs such functions.
pub fn begin() {
    IN_CALLBACK.set(true);
    // SAFETY: takes nothing.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
}

/// Returns whether the thread with this id (gettid(2)) runs such functions.
pub fn is(thread: i32) -> bool {
    THREAD.load(Ordering::Relaxed) == thread
}
