// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: the operator suspends, resumes and traces sessions. `docs/suspend.md` and `docs/profiling.md` describe the
//! protocol.
//!
//! [`protocol`] has the requests and answers, [`server`] the daemon's side, and [`client`] `vhost-user-cuda ctl`. [`trace`] also serves
//! profilers in the guest.

pub mod client;
pub mod protocol;
pub mod server;
pub mod trace;
