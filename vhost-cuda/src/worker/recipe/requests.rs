// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's requests for what is known of the recipe.

use virtio_cuda_protocol::transport::REPLY_OK;

use super::describe;
use crate::sessions::link::Frame;
use crate::worker::run::call::{Reply, ThreadState};
use crate::worker::state::SessionState;

/// Executes a request of the daemon.
pub fn execute(session: &'static SessionState, _: &mut ThreadState, _: &mut Frame) -> Reply {
    (REPLY_OK, describe(session).to_bytes())
}
