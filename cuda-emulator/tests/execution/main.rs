// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels executed by the emulated GPU, against what Rust computes and what an H200 computed.

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
mod sweeps;
mod translated;
mod video;
mod warps;
mod wide_forms;
