// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks that `CUDA_EMULATOR_CHECK` enables.

use std::sync::OnceLock;

/// The enabled checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checks {
    /// Conflicting accesses of a kernel without a barrier or an atomic operation between them.
    pub(crate) race: bool,
    /// Reads of memory that was never written, by a kernel.
    pub(crate) init: bool,
    /// Calls of the driver that use a handle after its object was destroyed.
    pub(crate) handles: bool,
}

impl Checks {
    /// Returns whether the accesses of kernels to memory are checked.
    pub(crate) fn any(self) -> bool {
        self.race || self.init
    }
}

/// Returns the checks that the environment enables. It is read once.
pub(crate) fn checks() -> Checks {
    static CHECKS: OnceLock<Checks> = OnceLock::new();
    *CHECKS.get_or_init(|| {
        let wanted = std::env::var("CUDA_EMULATOR_CHECK").unwrap_or_default();
        let has = |name: &str| wanted.split(',').any(|part| part.trim() == name);
        Checks { race: has("race"), init: has("init"), handles: has("handles") }
    })
}
