// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels executed by the emulated GPU, against what Rust computes.

mod forms;
mod harness;
mod programs;
