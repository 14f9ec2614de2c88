// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `cargo xtask bench`: the named metrics of `tests/bench/calls.cu`, native beside the stack.
//!
//! Ratios against native in the same run are what counts; absolute figures belong to one machine.

mod competition;
mod cpu;
mod lines;
mod measure;
mod profile;
mod promises;
mod record;
mod replace;
mod report;
mod rounds;
mod shares;
mod suspend;
mod swap;
mod table;

pub use measure::{BenchArguments, run};
pub use profile::PROGRAM as PROFILE_PROGRAM;
pub use replace::PROGRAM as REPLACE_PROGRAM;
pub use shares::PROGRAM as SHARES_PROGRAM;
pub use suspend::PROGRAM as SUSPEND_PROGRAM;
