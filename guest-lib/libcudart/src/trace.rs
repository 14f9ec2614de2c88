// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells profilers of calls: this project's libcupti sets functions for that.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_abi::{API_RUNTIME, TraceHooks};

use crate::error::cudaError_t;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());

/// Who is told, if anybody.
#[inline]
pub fn hooks() -> Option<&'static TraceHooks> {
    // The pointer alone says all: the functions are constants of a library that stays loaded.
    // SAFETY: NULL, or what `__cudaVhostTraceHooks` stored: a constant.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Runs a call between both notices.
#[cold]
pub fn told(hooks: &TraceHooks, name: &'static str, body: impl FnOnce() -> cudaError_t) -> cudaError_t {
    (hooks.enter)(API_RUNTIME, name.as_ptr(), name.len());
    let result = body();
    (hooks.exit)(API_RUNTIME, result.0.cast_signed());
    result
}

/// Sets the functions that are told of calls; NULL: none.
///
/// # Safety
///
/// `hooks` is NULL or points to a constant of a library that stays loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaVhostTraceHooks(hooks: *const TraceHooks) {
    HOOKS.store(hooks.cast_mut(), Ordering::Relaxed);
}
