// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The life of the process that holds the session: alive, forked child, or exiting.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use crate::CudaError;

const ALIVE: u8 = 0;
const FORKED: u8 = 1;
const EXITING: u8 = 2;

static PHASE: AtomicU8 = AtomicU8::new(ALIVE);

/// Most descriptors that a transport hands to [`close_in_children`].
const MAX_DESCRIPTORS: usize = 64;
static TO_CLOSE: [AtomicI32; MAX_DESCRIPTORS] = [const { AtomicI32::new(-1) }; MAX_DESCRIPTORS];

/// Whether calls may be made: not in the child of a fork, whose session is its parent's, and not once the
/// library's destructor has run.
pub fn check() -> Result<(), CudaError> {
    match PHASE.load(Ordering::Relaxed) {
        ALIVE => Ok(()),
        FORKED => Err(CudaError::NOT_INITIALIZED),
        _ => Err(CudaError::DEINITIALIZED),
    }
}

/// Every later call answers `CUDA_ERROR_DEINITIALIZED`.
pub fn exiting() {
    // A forked child stays one.
    let _ = PHASE.compare_exchange(ALIVE, EXITING, Ordering::Relaxed, Ordering::Relaxed);
}

/// From now on, a forked child closes `descriptors` and answers `CUDA_ERROR_NOT_INITIALIZED` to every call.
pub fn close_in_children(descriptors: &[RawFd]) {
    for (slot, fd) in TO_CLOSE.iter().zip(descriptors) {
        slot.store(*fd, Ordering::Relaxed);
    }
    // SAFETY: `in_child` may run in a forked child: it uses atomics and close(2) only.
    let rc = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if rc != 0 {
        log::error!("pthread_atfork failed ({rc}): do not use fork in this process");
    }
}

extern "C" fn in_child() {
    PHASE.store(FORKED, Ordering::Relaxed);
    for slot in &TO_CLOSE {
        let fd = slot.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor is the transport's, and the transport is never used or dropped in a
            // forked child: every call is refused by `check`.
            unsafe { libc::close(fd) };
        }
    }
}
