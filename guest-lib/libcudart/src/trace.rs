// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports calls to profilers through functions that this project's libcupti sets.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_abi::{API_RUNTIME, TraceHooks};

use crate::error::cudaError_t;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());

/// Returns the functions that receive calls, if a profiler has set them.
#[inline]
pub fn hooks() -> Option<&'static TraceHooks> {
    // SAFETY: NULL, or what `__cudaVhostTraceHooks` stored: a constant of a library that stays loaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Runs a call, and reports its beginning and end to the profiler.
#[cold]
pub fn told(hooks: &TraceHooks, name: &'static str, body: impl FnOnce() -> cudaError_t) -> cudaError_t {
    (hooks.enter)(API_RUNTIME, name.as_ptr(), name.len());
    let result = body();
    (hooks.exit)(API_RUNTIME, result.0.cast_signed());
    result
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
