// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels executed by the emulated GPU, compared with Rust's and an H200's results.

mod approximations;
mod checks;
mod control;
mod cooperation;
mod form;
mod forms;
mod harness;
mod hostile;
mod late_forms;
mod matrices;
mod memory;
mod nested;
mod parting;
mod programs;
mod scattered;
mod shorts;
mod spans;
mod sweeps;
mod translated;
mod video;
mod warpgroups;
mod warps;
mod wide_forms;
