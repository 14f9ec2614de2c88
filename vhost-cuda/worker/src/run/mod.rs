// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls pass and wait for: their order, the gate, signals, prepared launches, callbacks, output and replies. Nothing here
//! knows a call ([`crate::call`]).

pub(super) mod callbacks;
pub(super) mod cores;
pub(super) mod exec_callbacks;
pub(super) mod gate;
pub(super) mod lag;
pub(super) mod marks;
pub(super) mod new_lane;
pub(super) mod order;
pub(super) mod output;
pub(super) mod prepared;
pub(super) mod replies;
pub(super) mod sampler;
pub(super) mod signal;

/// The maximum number of guest threads that use CUDA. Each has a thread of the worker, and all workers of a virtual machine
/// together have `limits::cgroup`'s number of them.
pub const MAX_THREADS: usize = 4096;
/// The maximum number of lanes. The guest library uses fewer; its other threads send requests.
pub const MAX_LANES: usize = 1024;
