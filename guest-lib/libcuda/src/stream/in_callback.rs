// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A mark for threads that run functions of the program for the driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// The thread that does so, as gettid(2) has it; 0 before there is one.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Returns whether the calling thread runs a function of the program for the driver. Such functions may not make
/// CUDA calls.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// The calling thread does so from now on.
pub fn begin() {
    IN_CALLBACK.set(true);
    // SAFETY: takes nothing.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
}

/// Returns whether a thread does so, as gettid(2) has it.
pub fn is(thread: i32) -> bool {
    THREAD.load(Ordering::Relaxed) == thread
}
