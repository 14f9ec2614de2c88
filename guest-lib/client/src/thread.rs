// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Numbers of the program's threads. Calls of one thread run in order on one thread of the worker.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(1);
/// Runs at the end of each thread that has a number, in that thread.
static AT_END: OnceLock<fn()> = OnceLock::new();

thread_local! {
    // No destructor: it outlives the thread's other destructors, which may still make calls.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static END: End = const { End };
}

/// Returns the number of the calling thread, from 1.
pub fn number() -> u32 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            // A thread that is already ending gets no notice; its number is simply never used again.
            let _ = END.try_with(|_| ());
        }
        number.get()
    })
}

/// Sets the function that runs at the end of each thread with a number, except the main thread. The first one stays.
pub(crate) fn at_end(function: fn()) {
    let _ = AT_END.set(function);
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        // The main thread ends with the process, and the process's end ends the session.
        // SAFETY: getpid and gettid have no preconditions.
        let is_main = unsafe { libc::getpid() == libc::gettid() };
        if !is_main && let Some(function) = AT_END.get() {
            function();
        }
    }
}

/// Runs `start` such that threads started in it receive no signals of the program, except those that they cause
/// themselves.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are locals, and zero is a valid one; the mask is the calling thread's own.
    unsafe {
        let (mut blocked, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut blocked);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        let outcome = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        outcome
    }
}
