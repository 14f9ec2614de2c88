// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits on the host resources that guests use: device memory, descriptors, requests, log messages, control groups.

pub mod account;
pub mod cgroup;
pub mod descriptors;
pub mod rate;
pub mod request_budget;
pub mod room;
pub mod throttle;
