// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment variable that selects how code is translated.

/// Returns whether the environment variable `CUDA_EMULATOR_JIT`, a list of words with commas, has `word`.
pub(crate) fn is_requested(word: &str) -> bool {
    std::env::var("CUDA_EMULATOR_JIT").is_ok_and(|words| words.split(',').any(|wanted| wanted == word))
}
