// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Counts the calls that change what launches do, and all that are sent while a stream may capture. Each of them outdates the guest's
//! knowledge about launches or captures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use virtio_cuda_protocol::cuda::Opcode;

use crate::Caller;

static CHANGES: AtomicU64 = AtomicU64::new(0);
static CAPTURING: AtomicBool = AtomicBool::new(false);
static IN_CAPTURES: AtomicU64 = AtomicU64::new(0);

/// Must be called after each call was sent.
pub(crate) fn count(opcode: Opcode) {
    if opcode.facts().is_change_of_launches() {
        CHANGES.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns the number of such calls so far. An answer that the device gives later includes the effects of all of them.
pub fn so_far() -> u64 {
    CHANGES.load(Ordering::SeqCst)
}

/// Sets whether a stream may capture. Must be called before the first capture begins.
pub fn set_capturing(any: bool) {
    CAPTURING.store(any, Ordering::SeqCst);
}

/// Must be called before each call is sent. Internal calls neither change captures nor end them.
pub(crate) fn count_in_captures(caller: Caller) {
    if CAPTURING.load(Ordering::SeqCst) && !caller.is_internal() {
        IN_CAPTURES.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns the number of calls of the program so far that were sent while a stream could capture.
pub fn in_captures() -> u64 {
    IN_CAPTURES.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_count_and_launches_do_not() {
        let before = so_far();
        count(Opcode::cuLaunchKernel);
        assert_eq!(so_far(), before);
        count(Opcode::cuFuncSetCacheConfig);
        assert_eq!(so_far(), before + 1);
    }
}
