// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device memory that sessions give back while they do not use it. `docs/suspend.md` has the operator's view.
//!
//! * [`suspender`] suspends and resumes the sessions of a daemon: for the operator, for programs whose calls wait, and
//!   for allocations that find no room.
//! * [`policy`] decides which session has to make room.
//! * [`host_memory`] is the host memory that contents may take.
//! * [`files`] are those of contents that are saved with their machine.
//!
//! The moves themselves are made by the workers ([`crate::sessions::session`]).

pub mod files;
pub mod host_memory;
pub mod policy;
pub mod suspender;
