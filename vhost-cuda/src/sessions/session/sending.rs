// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages to the worker are written at once as long as its socket takes them, and by a thread of their own otherwise.

use std::io::Write;
use std::sync::atomic::Ordering;

use vhost_cuda_common::link::{self, Region, TO_MEMORY, ToWorker};

use super::outbox::Outgoing;
use super::{Assigned, Session};
use crate::guest::memory::SharedRegion;

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

    /// Writes a message, by the thread that writes.
    pub(super) fn write(&self, assigned: &Assigned, outgoing: &Outgoing) -> std::io::Result<()> {
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
                let region = Region { number, ..*region };
                link::send_named_region(stream, &region)?;
            }
        }
        let header = ToWorker { kind: TO_MEMORY, ..ToWorker::default() };
        stream.write_all(&link::encode_request(&header, &[], &[], &[]))
    }
}
