// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask suites`: the test suites of other people's software, unchanged, on every way to a device.

mod command;
mod prepare;
mod running;
mod table;
mod verdicts;

pub use command::{SuitesArguments, run};
