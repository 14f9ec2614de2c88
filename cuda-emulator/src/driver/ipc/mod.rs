// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing between processes (cuIpc…). Memory and events lie in memory files, which pass from process to process over
//! a socket of the offering one (`exchange`). NCCL's memory passes in the same way (`files`).

mod event_api;
mod exchange;
mod files;
mod memory_api;
pub(super) mod offers;
mod shared_event;

pub(super) use memory_api::{can_share, forget_all_of};
pub(super) use shared_event::SharedEvent;
