// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes lowered code on host threads.
//!
//! Launch and scheduling: `grid` hands blocks to workers, `block` gives its warps turns, `schedule` runs a warp, `machine`
//! is what a handler sees. Handlers, one family a file: a function of such a file picks the handler for an instruction
//! and a type, and says which operands it works on.

pub(crate) mod access;
pub(crate) mod atomic;
pub(crate) mod barrier;
pub(crate) mod bits;
mod block;
pub(crate) mod builtin;
pub(crate) mod bulk;
mod by_type;
pub(crate) mod carry;
pub(crate) mod check;
mod checked;
mod circular;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
mod device_runtime;
mod directed;
mod exponential;
pub(crate) mod float;
mod format;
pub(crate) mod fragment;
pub(crate) mod grid;
pub(crate) mod half;
pub(crate) mod integer;
mod lanes;
pub(crate) mod load_store;
mod machine;
pub(crate) mod matrix_memory;
pub(crate) mod mbarrier;
pub(crate) mod moves;
mod native;
mod pattern;
mod printf;
pub(crate) mod quad_tensor;
pub(crate) mod ranges;
pub(crate) mod round;
pub(crate) mod scalar_video;
mod schedule;
pub(crate) mod special;
mod sweep;
pub(crate) mod tensor;
pub(crate) mod texture_ops;
pub(crate) mod tiny_float;
pub(crate) mod video;
mod warp;
pub(crate) mod warp_ops;

pub(crate) use lanes::has_wide_vectors;
pub(crate) use machine::{Flow, Machine};
pub use printf::Printf;
pub(crate) use schedule::POLL_COST;
