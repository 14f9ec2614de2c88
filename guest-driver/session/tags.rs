// SPDX-License-Identifier: GPL-2.0-only

//! Memory that the device keeps for a session, and its release.

use super::{
    Session,
    SWEEPING, //
};
use crate::{
    linux::wait::Mode,
    memory::Memory,
    request::{
        purpose::Purpose,
        Draft,
        Payload,
        Request, //
    },
    session::watch::Watch,
    transport::OP_UNPIN, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
impl WorkItem<SWEEPING> for Session {
    type Pointer = Arc<Session>;

    fn run(this: Arc<Session>) {
        this.sweep();
    }
}

impl Session {
    /// Returns a tag for pages to keep. It is odd, so it never equals the offset of a shared area.
    pub(crate) fn new_tag(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_tag += 1;
        state.last_tag << 1 | 1
    }

    /// Records that the device keeps memory under `tag`, for which an entry is reserved.
    pub(crate) fn keep(self: &Arc<Self>, tag: u64, memory: Option<Memory>) {
        self.kept.fill(tag, memory);
        // Pages whose mapping has changed meanwhile could not be released before.
        self.sweep_soon();
    }

    /// Removes `tag`, under which the device does not keep memory.
    pub(crate) fn forget_tag(&self, tag: u64) {
        self.kept.forget(tag);
        let watch = self.watches.lock().take(tag);
        drop(watch);
    }

    /// Adds a watch for memory that a call will keep.
    pub(crate) fn watch(&self, watch: Watch) -> Result {
        let refused = self.watches.lock().add(watch);
        refused.map_err(|(watch, error)| {
            drop(watch);
            error
        })
    }

    /// Returns whether the pages kept under `tag` are still mapped in the process.
    pub(crate) fn is_fresh(&self, tag: u64) -> bool {
        self.watches.lock().is_fresh(tag)
    }

    /// Queues [`Self::sweep`]. For any context.
    pub(crate) fn sweep_soon(self: &Arc<Self>) {
        // If it is already queued, it has not begun.
        let works = self.device.works();
        let _ = works.queue().enqueue::<_, SWEEPING>(self.clone());
    }

    /// Asks the device to release pages that are no longer mapped at their addresses in the process. Does not wait.
    fn sweep(self: &Arc<Self>) {
        loop {
            let leave = |tag| self.kept.leave(tag).is_ok();
            let watch = self.watches.lock().take_stale(leave);
            let Some(watch) = watch else {
                return;
            };
            let tag = watch.tag;
            drop(watch);
            if self.send_unpin(tag).is_err() {
                // The device keeps the pages until the session ends.
                self.keep_on(tag);
            }
        }
    }

    fn send_unpin(self: &Arc<Self>, tag: u64) -> Result {
        let mut header = self.header(OP_UNPIN);
        header.tag = tag;
        let draft = Draft {
            header,
            payload: Payload::Kernel(&[]),
            reply_bytes: 0,
            input: None,
            output: None,
        };
        let request = Request::new(draft, Purpose::Unpin(self.clone(), tag))?;
        let (ticket, pending) = self.start(request, Mode::Killable)?;
        self.end(ticket);
        // The request settles when it is answered.
        drop(pending);
        Ok(())
    }

    /// Records that the device has not released the memory of `tag`.
    pub(crate) fn keep_on(&self, tag: u64) {
        self.kept.stay(tag);
    }
}
