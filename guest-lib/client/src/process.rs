// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The life of the process that holds the session: alive, forked child, or exiting.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::CudaError;

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

/// Makes every later call return `CUDA_ERROR_NOT_INITIALIZED`, in the child of a fork. Takes no lock and allocates nothing.
pub(crate) fn forked() {
    PHASE.store(FORKED, Ordering::Relaxed);
}
