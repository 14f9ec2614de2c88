// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Counts the program's calls while one of its streams may capture. Each of them could change a capture, or end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Caller;

static ANY: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Sets whether calls are counted. Must be called before the first capture begins.
pub fn set(any: bool) {
    ANY.store(any, Ordering::SeqCst);
}

/// Must be called before each call is sent. Internal calls neither change captures nor end them.
pub(crate) fn count(caller: Caller) {
    if ANY.load(Ordering::SeqCst) && !caller.is_internal() {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns the number of calls that were counted so far.
pub fn calls() -> u64 {
    CALLS.load(Ordering::SeqCst)
}
