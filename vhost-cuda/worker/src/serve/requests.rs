// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's requests that concern the recipe, and what a suspended session keeps.

use vhost_cuda_common::link::{Frame, TO_DEEPEN, TO_RECIPE};
use virtio_cuda_protocol::transport::REPLY_OK;

use crate::call::ThreadState;
use crate::handlers::graph::again;
use crate::recipe::describe;
use crate::run::replies::Reply;
use crate::state::SessionState;
use crate::suspend::deep::deepen;
use crate::suspend::saving;

/// Executes a request of the daemon.
pub fn execute(session: &'static SessionState, _: &mut ThreadState, frame: &mut Frame) -> Reply {
    let description = match frame.header.kind {
        TO_RECIPE => describe(session),
        TO_DEEPEN => deepen(session, again::describe),
        _ => saving::execute(session, frame),
    };
    (REPLY_OK, description.to_bytes())
}
