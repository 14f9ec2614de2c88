// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checks that `CUDA_EMULATOR_CHECK` names.

use std::sync::OnceLock;

/// The enabled checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checks {
    pub(crate) race: bool,
    pub(crate) init: bool,
    /// Handles that are used after they were destroyed; kernels are not concerned.
    pub(crate) handles: bool,
}

impl Checks {
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
