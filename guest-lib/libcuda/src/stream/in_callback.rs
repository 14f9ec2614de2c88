// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Whether a thread runs functions of the program for the driver.

use std::cell::Cell;

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a function of the program for the driver. Such functions may not make
/// CUDA calls.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// The calling thread does so from now on.
pub fn begin() {
    IN_CALLBACK.set(true);
}
