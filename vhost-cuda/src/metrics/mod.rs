// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics for operators: per connection and session, in Prometheus' text format.
//!
//! [`statistics`](vhost_cuda_common::statistics) has the counters that workers write, [`report`](crate::sessions::report) the daemon's data about a connection, [`text`] the
//! format, [`server`] the listener, and [`top`] a view in a terminal. [`gpu_time`] queries NVIDIA's library for the
//! time on GPUs.

pub mod gpu_time;
pub mod server;
pub mod text;
pub mod top;

#[cfg(test)]
mod dashboard_test;
