// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask programs`: programs as people have them (PyTorch, transformers) and test suites of libraries, natively beside
//! ours.

mod command;
mod results;
mod running;
mod table;

pub use command::{ProgramsArguments, run};
pub use running::libraries_of;
#[cfg(test)]
pub use table::programs;
