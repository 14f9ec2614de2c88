// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a kernel over a grid; the ways in which it can fail.

mod description;
mod fault;

pub use description::Launch;
pub use fault::{Fault, FaultKind};

use crate::execute::run_launch;

/// Executes a grid and everything that it launches. Returns when all blocks have ended, after the first fault, or when the
/// launch was cancelled.
pub fn launch(launch: &Launch<'_>) -> Result<(), Fault> {
    run_launch(launch)
}
