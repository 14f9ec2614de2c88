// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice between the two versions of code that works on vectors.

use std::sync::OnceLock;

/// Returns whether programs get the second version of the handlers: when the CPU can run it, unless the environment variable
/// `CUDA_EMULATOR_VECTORS` is `base` (for tests of the first).
pub(crate) fn has_wide_vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        if std::env::var_os("CUDA_EMULATOR_VECTORS").is_some_and(|wanted| wanted == "base") {
            return false;
        }
        #[cfg(target_arch = "x86_64")]
        {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    })
}
