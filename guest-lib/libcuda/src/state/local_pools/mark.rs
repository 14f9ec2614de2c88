// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Marks, which report that a stream has reached a position ([`crate::pool::local_pool`]).

use std::sync::atomic::{AtomicBool, Ordering};

use virtio_cuda_client::protocol::{ContextId, EventId};
use virtio_cuda_client::{Call, Session, calls};

/// An event of this library that is recorded once.
#[derive(Debug)]
pub struct Mark {
    /// The session in which the event exists.
    pub session: &'static Session,
    /// The event.
    pub event: EventId,
    /// The context of the event.
    pub context: u64,
    /// Set once the context is destroyed, and the event with it.
    pub ended: AtomicBool,
}

impl Drop for Mark {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            let call = Call::internal(self.session).context(ContextId(self.context));
            if let Err(error) = calls::cuEventDestroy_v2(&mut call.unwatched(), self.event) {
                log::debug!("Destroying a mark: {error}");
            }
        }
    }
}
