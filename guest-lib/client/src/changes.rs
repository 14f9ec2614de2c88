// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Counts the calls that change what launches do. Each of them outdates the guest's knowledge about launches.

use std::sync::atomic::{AtomicU64, Ordering};

use virtio_cuda_protocol::cuda::Opcode;

static CHANGES: AtomicU64 = AtomicU64::new(0);

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
