// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a running kernel, below everything that acts on it.
//!
//! `grid` is shared by all workers of a launch. Each worker has a `machine`, which handlers access. It runs one
//! `block` at a time, warp by warp.
//!
//! These types form a circle of definitions that has to be: a machine belongs to a grid, which has a launch of a program, whose
//! code consists of instructions with handlers, which take a machine.

mod block;
mod cluster;
mod grid;
mod history;
mod machine;
mod native;
mod ranges;
mod warp;

pub(in crate::execute) use block::{BARRIERS, Block, WARPGROUP, shared_spare};
pub(in crate::execute) use cluster::Cluster;
pub(in crate::execute) use grid::Grid;
pub(in crate::execute) use history::{History, SEVERAL, Shadow};
pub(crate) use machine::{Flow, Machine};
pub(in crate::execute) use native::{AtBarrier, NativeState};
pub(crate) use ranges::Known;
pub(in crate::execute) use ranges::RangeCache;
pub(in crate::execute) use warp::Warp;
