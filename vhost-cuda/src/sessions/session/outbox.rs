// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages to the worker of a session.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Sender;

use vhost_cuda_common::link::{self, ToWorker};

use crate::limits::request_budget::RequestCharge;

/// The connection to the worker: direct as long as the socket accepts everything, otherwise through the writer's
/// thread.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) writer: Option<Sender<Outgoing>>,
    /// The number of messages that the writer has not written yet. While it is not zero, all messages must pass
    /// through the writer.
    pub(super) waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) enum Outgoing {
    /// A frame, or the rest of one, with the number of its request. The request's memory is charged until the frame
    /// is written.
    Frame(Vec<u8>, u64, Option<Arc<RequestCharge>>),
    /// A frame without entries, and its file.
    File(ToWorker, Vec<u8>, OwnedFd),
    /// Guest memory has changed.
    Memory,
}

impl Outgoing {
    /// Returns a frame of the daemon's own, with the number of its request, or 0.
    pub(super) fn of(header: &ToWorker, payload: &[u8]) -> Self {
        Self::Frame(link::encode_request(header, payload, &[], &[]), header.id, None)
    }
}
