// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Numbers of the program's threads. Calls of one thread run in order on one thread of the worker.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Caller, caller, calls, lane, session};

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    // No destructor: it outlives the thread's other destructors, which may still make calls.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static EXIT: ExitNotice = const { ExitNotice };
}

/// Returns the number of the calling thread, from 1.
pub fn number() -> u32 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            // A thread that is already ending gets no notice; its number is simply never used again.
            let _ = EXIT.try_with(|_| ());
        }
        number.get()
    })
}

/// Notifies the worker that the thread has ended, so that its executor can end too.
struct ExitNotice;

impl Drop for ExitNotice {
    fn drop(&mut self) {
        // The main thread ends with the process, and the process's end ends the session.
        // SAFETY: getpid and gettid have no preconditions.
        let is_main = unsafe { libc::getpid() == libc::gettid() };
        if is_main {
            return;
        }
        if let Some(session) = session::current() {
            // The thread ends even if the worker is not notified. Its executor must have done everything before
            // another thread gets the lane.
            let ordered = caller::at_entry_point(|entry| lane::order(session, None, Caller::Program(entry)));
            if let Err(error) = ordered {
                caller::leave(error);
            }
            let ended = calls::session_thread_exit(&mut session.internal().direct());
            if ended.is_ok() {
                lane::retire(session);
            }
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
