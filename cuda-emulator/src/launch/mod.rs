// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a kernel over a grid, and the ways in which it can fail.

mod description;
mod fault;

pub use description::Launch;
pub use fault::{Fault, FaultKind};

use crate::nested::run_launch;

/// Executes the grid and all that it launches, and returns when all blocks have ended, the first fault has stopped it or
/// it was cancelled.
pub fn launch(launch: &Launch<'_>) -> Result<(), Fault> {
    run_launch(launch)
}
