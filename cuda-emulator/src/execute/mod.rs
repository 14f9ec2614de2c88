// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes lowered code on host threads.
//!
//! Launch and scheduling: `grid` hands blocks to workers, `block` gives its warps turns, `schedule` runs a warp,
//! `machine` is what a handler sees. Handlers (`arithmetic`, `data` and others), one family a file: a function of such
//! a file picks the handler for an instruction and a type, and says which operands it works on.

mod arithmetic;
pub(crate) mod barrier;
mod block;
pub(crate) mod builtin;
mod by_type;
pub(crate) mod cluster;
pub(crate) mod control;
mod data;
mod device_runtime;
mod format;
pub(crate) mod fragment;
pub(crate) mod grid;
mod lanes;
mod machine;
pub(crate) mod matrix_memory;
pub(crate) mod mbarrier;
mod native;
mod printf;
pub(crate) mod quad_tensor;
pub(crate) mod scalar_video;
mod schedule;
pub(crate) mod special;
mod sweep;
pub(crate) mod tensor;
pub(crate) mod video;
mod warp;
pub(crate) mod warp_ops;

// The names by which `lower` and `jit` use the families.
pub(crate) use arithmetic::{bits, carry, compare, convert, float, half, integer, round, tiny_float};
pub(crate) use data::{access, atomic, bulk, load_store, moves, ranges, texture_ops};
pub(crate) use lanes::has_wide_vectors;
pub(crate) use machine::{Flow, Machine};
pub use printf::Printf;
pub(crate) use schedule::POLL_COST;
