// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream capture and graphs. A program of its own, one test at a time: a capture forbids calls to all threads.

mod capture;
mod launches;
mod memory;
mod nodes;
mod rules;

/// The driver API, and what tests begin with.
mod cu {
    pub use cuda_emulator_testing::cu::*;

    /// The addresses of kernel arguments, as an array that must outlive its use. It is no function: the arguments are of any
    /// types.
    macro_rules! pointers {
        ($($arg:expr),* $(,)?) => {
            [$(std::ptr::from_ref(&$arg).cast_mut().cast::<std::ffi::c_void>()),*]
        };
    }
    pub(crate) use pointers;
}

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
