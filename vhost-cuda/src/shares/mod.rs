// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of GPU time between virtual machines, and room for device memory that they make for each other. `docs/shares.md` has the
//! operator's view.
//!
//! * [`policy`] decides whose turn it is.
//! * [`gates`](vhost_cuda_common::gates) is the memory between a worker and the arbiter: a gate for each GPU, and its work.
//! * [`arbiter`] is the process that reads all pages ([`machine`]) and sets the gates.
//! * [`room`] has the requests for room that the arbiter passes on.
//! * [`client`] is the daemon's side of the communication ([`message`]) with it.
//!
//! The gates themselves are in `worker::call::turns`.

pub mod arbiter;
pub mod client;
pub mod machine;
pub mod message;
pub mod policy;
pub mod room;
pub mod users;
