// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's requests that concern the recipe.

use vhost_cuda_common::link::{Frame, TO_DEEPEN};
use virtio_cuda_protocol::transport::REPLY_OK;

use super::describe;
use crate::run::call::{Reply, ThreadState};
use crate::state::SessionState;
use crate::suspend::deep::deepen;

/// Executes a request of the daemon.
pub fn execute(session: &'static SessionState, _: &mut ThreadState, frame: &mut Frame) -> Reply {
    let description = if frame.header.kind == TO_DEEPEN { deepen(session) } else { describe(session) };
    (REPLY_OK, description.to_bytes())
}
