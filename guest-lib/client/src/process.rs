// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The life of the process that holds the session: alive, forked child, or exiting.

use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::virtio_user::forks;
use crate::{CudaError, session};

const ALIVE: u8 = 0;
const FORKED: u8 = 1;
const EXITING: u8 = 2;

static PHASE: AtomicU8 = AtomicU8::new(ALIVE);
/// Checks that calls may be made. They may not in the child of a fork, whose session is its parent's, nor after the
/// library's destructor has run.
pub fn check() -> Result<(), CudaError> {
    match PHASE.load(Ordering::Relaxed) {
        ALIVE => Ok(()),
        FORKED => Err(CudaError::NOT_INITIALIZED),
        _ => Err(CudaError::DEINITIALIZED),
    }
}

/// Makes every later call return `CUDA_ERROR_DEINITIALIZED`.
pub fn exiting() {
    // A forked child stays one.
    let _ = PHASE.compare_exchange(ALIVE, EXITING, Ordering::Relaxed, Ordering::Relaxed);
}

/// From now on, a forked child leaves the session to its parent and returns `CUDA_ERROR_NOT_INITIALIZED` from
/// every call.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` may run in a forked child: see there.
        let rc = unsafe { libc::pthread_atfork(None, Some(in_parent), Some(in_child)) };
        if rc != 0 {
            log::error!("pthread_atfork failed ({rc}): do not use fork in this process");
        }
    });
}

extern "C" fn in_parent() {
    forks::note();
}

/// Runs in a forked child, whose other threads have ended in any state: takes no lock and allocates nothing.
extern "C" fn in_child() {
    PHASE.store(FORKED, Ordering::Relaxed);
    if let Some(session) = session::current() {
        session.transport().in_child();
    }
}
