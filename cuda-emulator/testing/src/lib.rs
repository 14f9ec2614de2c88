// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Helpers that several test programs of the emulator use, and the program in which libFuzzer drives its targets.

pub mod bodies;
pub mod cu;
