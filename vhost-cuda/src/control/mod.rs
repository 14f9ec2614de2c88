// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket: the operator suspends, resumes and traces sessions. `docs/suspend.md` and `docs/profiling.md` describe the
//! protocol.
//!
//! [`protocol`] has the requests and answers, [`server`] the daemon's side, and [`client`] `vhost-user-cuda ctl`. [`saving`] and [`file`] are
//! the two sides of saved sessions, and [`contents`] is the form of the file. [`renewing`] gives sessions other
//! workers. [`trace`] also serves profilers in the guest.

pub mod client;
mod contents;
mod file;
pub mod protocol;
pub mod renewing;
mod saving;
pub mod server;
pub mod trace;
