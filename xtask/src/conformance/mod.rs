// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask conformance`: other people's programs, compiled and run on every way to a device.

pub mod archive;
mod built;
mod command;
mod compile;
mod discover;
mod execute;
mod mask;
mod results;
mod running;
mod table;
mod toolkit;
mod verdict;
mod ways;

pub use command::{ConformanceArguments, run};
pub use execute::execute;
pub use running::for_each;
pub use toolkit::{Cudart, Toolkit};
pub use ways::{Invocation, Ready, Way};
