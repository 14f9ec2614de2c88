// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every command a person types, and the virtual machine for the tests.

pub mod build;
pub mod checkpatch;
pub mod cli;
pub mod daemon;
pub mod demo;
pub mod paths;
pub mod process;
pub mod progress;
pub mod run;
pub mod setup;
pub mod test;
pub mod vm;
