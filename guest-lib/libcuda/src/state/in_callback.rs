// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The thread that runs functions of the program for the driver.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// True while a function of the program runs.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Returns whether the calling thread runs a function of the program for the driver. Such functions must not make CUDA
/// calls.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Records that the calling thread runs such functions.
pub fn begin() {
    IN_CALLBACK.set(true);
}

/// Runs such a function.
pub fn run(function: impl FnOnce()) {
    RUNS.store(true, Ordering::Release);
    function();
    RUNS.store(false, Ordering::Release);
}

/// Returns whether such a function runs. Work may wait for it, and it may wait for any thread of the program.
pub fn runs() -> bool {
    RUNS.load(Ordering::Acquire)
}
