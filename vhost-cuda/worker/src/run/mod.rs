// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running calls: from a frame or a lane's record to the handler, in order, and back to the guest with the answer.

pub(super) mod answer;
pub(super) mod call;
pub(super) mod callbacks;
pub(super) mod control;
pub(super) mod cores;
pub(super) mod dispatch;
pub(super) mod exec_callbacks;
pub(super) mod execute;
pub(super) mod executor;
pub(super) mod gate;
pub(super) mod lag;
pub(super) mod lane;
pub(super) mod left;
pub(super) mod lifecycle;
pub(super) mod marks;
pub(super) mod new_lane;
pub(super) mod order;
pub(super) mod output;
pub(super) mod prepared;
pub(super) mod resolve;
pub(super) mod sampler;
pub(super) mod signal;
pub(super) mod time_limit;
pub(super) mod turns;
pub(super) mod work;

/// The maximum number of guest threads that use CUDA. Each has a thread of the worker, and all workers of a virtual machine
/// together have `limits::cgroup`'s number of them.
pub const MAX_THREADS: usize = 4096;
/// The maximum number of lanes. The guest library uses fewer; its other threads send requests.
pub const MAX_LANES: usize = 1024;
