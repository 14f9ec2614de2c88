// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the daemon does for a session's worker on request.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use log::debug;
use vhost_cuda_common::budget::{Budget, Charge};
use vhost_cuda_common::exchange::Shortage;

use crate::confine::threads;
use crate::exchange::Services;
use crate::owner::{Machine, Owner};
use crate::sessions::endings::{Endings, PATIENCE, SHORT_PATIENCE};
use crate::suspend::suspender::{Selection, Suspender};

/// The descriptors of a recording: both ends of its socket.
const RECORDING: usize = 2;

/// Begins a recording of sessions for a profiler in the guest, which keeps the charges. Returns its socket, for the worker.
///
/// Errors: those of the socket and of the thread.
pub type Record = fn(Arc<Suspender>, Selection, (Charge, Charge)) -> io::Result<OwnedFd>;

/// The services for one session.
pub(super) struct OfSession {
    pub endings: Arc<Endings>,
    pub suspender: Arc<Suspender>,
    pub descriptors: Arc<Budget>,
    /// Its number in the log.
    pub label: u64,
    pub owner: Owner,
    /// Its recordings: one at a time. Limits the daemon's threads.
    pub recordings: Arc<Budget>,
    pub record: Record,
}

impl Services for OfSession {
    fn settle(&self, shortage: Shortage) -> bool {
        let on_host = self.owner.machine == Machine::Host;
        match shortage {
            Shortage::None => self.endings.settle(SHORT_PATIENCE, false),
            Shortage::Limit => self.endings.settle(PATIENCE, on_host),
            Shortage::Device(device) => {
                // A number that no device has stands for any.
                let devices = 1_u64.checked_shl(device).unwrap_or(0);
                self.endings.settle(PATIENCE, on_host) || self.suspender.make_room(Some(self.label), devices)
            }
        }
    }

    fn record(&self, pid: u32) -> Option<OwnedFd> {
        let selected = match pid {
            0 => Selection::Session(self.label),
            pid => Selection::Process(self.owner, pid),
        };
        if self.suspender.members(selected).is_empty() {
            return None;
        }
        let charges = (self.recordings.charge(1)?, self.descriptors.charge(RECORDING)?);
        let (suspender, label, record) = (self.suspender.clone(), self.label, self.record);
        let (made, socket) = sync_channel(1);
        // The worker's questions are answered by a confined thread, which makes no sockets.
        threads::outside(move || {
            let recording = record(suspender, selected, charges);
            let _ =
                made.send(recording.inspect_err(|error| debug!("session {label}: no recording: {error}")));
        });
        socket.recv().ok()?.ok()
    }
}
