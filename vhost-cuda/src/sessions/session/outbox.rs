// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages to the worker of a session: written at once as long as its socket takes them, and by a thread of their own otherwise.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use log::debug;
use vhost_cuda_common::link::{self, Region, TO_MEMORY, ToWorker};

use super::{Assigned, Session};
use crate::guest::memory::SharedRegion;
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

impl Session {
    pub(super) fn send(&self, outgoing: Outgoing) {
        let outbox = self.outbox.lock();
        let Some(writer) = outbox.writer.as_ref() else {
            // Not running yet, or ending: then its end answers outstanding requests. Memory is sent before all else.
            self.memory_changed.store(false, Ordering::Release);
            return;
        };
        let rest = match outgoing {
            Outgoing::Frame(mut frame, request, charge) if outbox.waiting.load(Ordering::Acquire) == 0 => {
                self.begin(request);
                let sent = link::write_now(&self.assigned().worker.sockets.link, &frame);
                if sent == frame.len() {
                    return;
                }
                Outgoing::Frame(frame.split_off(sent), request, charge)
            }
            other => other,
        };
        outbox.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = writer.send(rest);
    }

    /// Notes that the worker sees a request from now on.
    fn begin(&self, request: u64) {
        self.begun.fetch_max(request, Ordering::AcqRel);
    }

    pub(super) fn write_all(&self, inbox: &Receiver<Outgoing>) {
        let waiting = self.outbox.lock().waiting.clone();
        for outgoing in inbox {
            let assigned = self.assigned();
            if let Err(error) = self.write(&assigned, &outgoing) {
                debug!("session {}: its worker does not read: {error}", self.label);
                // The reader notices the end. A worker that only closed its socket must not survive.
                assigned.worker.kill();
            }
            waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn write(&self, assigned: &Assigned, outgoing: &Outgoing) -> std::io::Result<()> {
        let mut stream = &assigned.worker.sockets.link;
        match outgoing {
            Outgoing::Frame(frame, request, _) => {
                self.begin(*request);
                stream.write_all(frame)
            }
            Outgoing::File(header, payload, file) => {
                self.begin(header.id);
                link::send_with_file(stream, header, payload, file)
            }
            Outgoing::Memory => {
                // In this order, so that a later change is sent once more.
                self.memory_changed.store(false, Ordering::SeqCst);
                self.write_memory(assigned)
            }
        }
    }

    /// Tells a worker the present guest memory.
    pub(super) fn write_memory(&self, Assigned { worker, named }: &Assigned) -> std::io::Result<()> {
        let mut stream = &worker.sockets.link;
        let table = (self.tables)();
        if let Some(named) = named {
            named.set_files(&table.regions)?;
        }
        for SharedRegion { region, file, read_only } in &table.regions {
            if read_only.is_none() {
                link::send_region(stream, region, file.file())?;
            } else if let Some(number) = named.as_ref().and_then(|named| named.number(file.file())) {
                let region = Region { number: number.into(), ..*region };
                link::send_named_region(stream, &region)?;
            }
        }
        let header = ToWorker { kind: TO_MEMORY, ..ToWorker::default() };
        stream.write_all(&link::encode_request(&header, &[], &[], &[]))
    }
}
