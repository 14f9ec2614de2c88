// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of this library itself, and of the program in its callbacks: nobody is told of them.

use std::cell::Cell;

thread_local! {
    // Must not have destructors: calls are made while a thread ends, too.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread's calls are not recorded.
pub fn is_quiet() -> bool {
    QUIET.get()
}

/// Runs `body` without recording its calls. Returns `None`, without running `body`, if it is called within itself.
pub fn quietly<T>(body: impl FnOnce() -> T) -> Option<T> {
    if QUIET.replace(true) {
        return None;
    }
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            QUIET.set(false);
        }
    }
    let _restore = Restore;
    Some(body())
}

/// Runs `body` without recording its calls, also within [`quietly`]: in a callback of the program the thread is quiet already.
pub fn unrecorded<T>(body: impl Fn() -> T) -> T {
    quietly(&body).unwrap_or_else(body)
}
