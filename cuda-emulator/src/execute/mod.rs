// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes lowered code on host threads.
//!
//! `state` is the state of a running kernel; `run` executes it, from a launch to the instructions of a warp. Handlers
//! (`arithmetic`, `data` and others) have one family per file: a function of such a file selects the handler for an
//! instruction and a type, and documents its operands.

mod argument;
mod arithmetic;
pub(crate) mod barrier;
pub(crate) mod builtin;
mod by_type;
pub(crate) mod cluster;
pub(crate) mod control;
mod data;
mod device_runtime;
mod format;
mod heap;
mod lanes;
pub(crate) mod matrix_memory;
pub(crate) mod mbarrier;
mod printf;
pub(crate) mod quad_tensor;
mod run;
pub(crate) mod scalar_video;
pub(crate) mod special;
mod state;
pub(crate) mod tensor;
pub(crate) mod video;
pub(crate) mod warp_ops;
pub(crate) mod warpgroup;

// The names by which `lower` and `jit` refer to the families.
pub(crate) use arithmetic::{bits, carry, compare, convert, float, half, integer, round, tiny_float};
pub(crate) use data::{access, atomic, bulk, load_store, moves, tensor_copy, texture_ops};
pub use printf::Printf;
pub(crate) use run::{BarrierKind, POLL_COST, run_launch};
pub(crate) use state::{Flow, Known, Machine};
