// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tracks whether the device is known to have no work for this process: waiting for it then needs no call.

use cuda_environment::speed;
use virtio_cuda_protocol::cuda::Opcode;
use virtio_cuda_ring::Outstanding;

/// Calls that may have given the device something to do.
static CALLS: Outstanding = Outstanding::new();

/// Must be called after each call was sent.
pub(crate) fn count(opcode: Opcode, posted: bool) {
    if posted || !opcode.facts().is_idle() {
        CALLS.begin();
    }
}

/// Returns the number of calls so far; for a caller that then waits for all work.
pub fn so_far() -> u64 {
    CALLS.so_far()
}

/// Marks the work of these calls as done.
pub fn done(so_far: u64) {
    CALLS.end(so_far);
}

/// Returns whether all work is done. Calls that other threads are making just now do not count: they could equally come
/// later.
pub(crate) fn is_idle() -> bool {
    speed::is_on() && CALLS.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_until_it_was_waited_for() {
        count(Opcode::cuLaunchKernel, true);
        assert!(!is_idle());
        let before = so_far();
        count(Opcode::cuCtxSynchronize, false);
        done(before);
        assert!(is_idle());
        count(Opcode::memcpy_wait, false);
        assert!(is_idle());
        // A wait for earlier calls says nothing about calls that came meanwhile.
        let before = so_far();
        count(Opcode::cuMemcpyAsync, false);
        done(before);
        assert!(!is_idle());
        done(so_far());
        count(Opcode::memcpy_wait, true);
        assert!(!is_idle(), "nobody has waited for it");
    }
}
