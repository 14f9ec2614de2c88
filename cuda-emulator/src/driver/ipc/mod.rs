// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sharing between processes (cuIpc…): memory and events lie in memory files, which go from process to process over a socket
//! of the one that offers them (`exchange`). NCCL's memory goes the same way (`files`).

mod event_api;
mod exchange;
mod files;
mod memory_api;
pub(super) mod offers;
mod shared_event;

pub(super) use memory_api::{can_share, forget_all_of};
pub(super) use shared_event::SharedEvent;
