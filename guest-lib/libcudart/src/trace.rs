// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports calls to profilers through functions that this project's libcupti sets.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_abi::TraceHooks;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());

/// Returns the functions that receive calls, if a profiler has set them.
#[inline]
pub fn hooks() -> Option<&'static TraceHooks> {
    // SAFETY: NULL, or what `__cudaVhostTraceHooks` stored: a constant of a library that stays loaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Sets the functions that receive calls; NULL removes them.
///
/// # Safety
///
/// `hooks` is NULL or points to a constant of a library that stays loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaVhostTraceHooks(hooks: *const TraceHooks) {
    HOOKS.store(hooks.cast_mut(), Ordering::Relaxed);
}
