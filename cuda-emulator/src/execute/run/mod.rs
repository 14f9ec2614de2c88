// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a grid: everything between a launch and the handlers of instructions.
//!
//! `grid` checks a launch. `workers` hand the blocks to threads, and `sweep` does so for blocks that need only translated code.
//! `block` gives the warps of a block turns; `schedule` runs a warp, `native` as far as its code is translated. `barrier` and
//! `cluster` count the threads that wait. `nested` runs a launch with all that its kernels launch. Handlers are reached through the instructions only.

mod barrier;
mod block;
mod cluster;
mod grid;
mod native;
mod nested;
mod outcome;
mod schedule;
mod sweep;
mod workers;

pub(crate) use barrier::BarrierKind;
pub(crate) use nested::run_launch;
pub(in crate::execute) use nested::{prepare, slot, submit};
pub(crate) use schedule::POLL_COST;
