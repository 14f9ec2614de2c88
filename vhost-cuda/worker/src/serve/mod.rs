// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves the session: from a frame or a lane's record to the handler, and back to the guest with the answer.

pub(super) mod again;
pub(super) mod control;
pub(super) mod execute;
pub(super) mod executor;
pub(super) mod lane;
pub(super) mod left;
mod parked;
mod requests;
