// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice between the two versions of vector code.

use std::sync::OnceLock;

use crate::requests::is_requested;

/// Returns whether programs get the version with wide vectors. They do if the CPU can run it, unless the environment variable
/// `CUDA_EMULATOR_JIT` has the word `base`, which tests of the other version set.
pub(crate) fn has_wide_vectors() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        if is_requested("base") {
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
