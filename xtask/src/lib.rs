// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every command a person types, and the virtual machine for the tests.

pub mod bench;
pub mod build;
pub mod bundle;
pub mod checkpatch;
pub mod cli;
pub mod conformance;
pub mod coverage;
pub mod daemon;
pub mod demo;
pub mod deny;
pub mod dkms;
pub mod emulator;
pub mod explain;
pub mod fuzz;
pub mod instructions;
pub mod layers;
pub mod package;
pub mod paths;
pub mod process;
pub mod program;
mod programs;
pub mod progress;
pub mod run;
pub mod setup;
pub mod signatures;
pub mod test;
pub mod virtio_user;
pub mod vm;
pub mod wheels;
