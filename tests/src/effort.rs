// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Rounds, seconds and seed of the tests that can run for long. `cargo xtask test` has options for them.

use std::env;

use anyhow::{Context, Result};

/// Rounds of a test that repeats something.
const ROUNDS: &str = "VHOST_CUDA_TEST_ROUNDS";
/// Seconds of a test that runs for a time. The driver's own test in C reads it, too.
pub const SECONDS: &str = "VHOST_CUDA_TEST_SECONDS";
/// The seed of random orders and moments.
const SEED: &str = "VHOST_CUDA_TEST_SEED";

/// The number of rounds, `usual` if nobody chose one.
///
/// Errors: the variable is not a number.
pub fn rounds(usual: u64) -> Result<u64> {
    Ok(number(ROUNDS)?.unwrap_or(usual))
}

/// The duration in seconds, `usual` if nobody chose one.
///
/// Errors: the variable is not a number.
pub fn seconds(usual: u64) -> Result<u64> {
    Ok(number(SECONDS)?.unwrap_or(usual))
}

/// The chosen seed.
///
/// Errors: the variable is not a number.
pub fn seed() -> Result<Option<u64>> {
    number(SEED)
}

fn number(variable: &str) -> Result<Option<u64>> {
    let text = env::var(variable).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).with_context(|| format!("{variable}={text} is not a number"))
}
