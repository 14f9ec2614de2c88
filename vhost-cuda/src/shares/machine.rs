// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arbiter's state of one daemon: its workers, their pages, and the values in these.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use vhost_cuda_common::gates::{ANNOUNCE, GO, HOLD, MAX_GPUS, OPEN, Page, Slot};

use super::policy::{Grant, Seen};

/// A GPU's UUID.
pub type Gpu = [u8; 16];

/// A virtual machine: a daemon that is connected.
#[derive(Debug)]
pub struct Machine {
    /// The connection.
    pub socket: UnixStream,
    /// Its weight, once it has been sent.
    pub weight: Option<u32>,
    /// Its workers.
    pub workers: HashMap<u64, Worker>,
    /// The use that was last reported to it.
    pub told: HashMap<Gpu, (u64, u64)>,
    /// Set when it has named a GPU since the last step.
    named: bool,
}

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    page: Page,
    /// Wakes the arbiter when the page has changed.
    pub bell: File,
    gpus: [Option<Place>; MAX_GPUS],
}

/// A GPU of a worker, as its daemon has named it.
#[derive(Clone, Copy, Debug)]
struct Place {
    gpu: Gpu,
    reported: u64,
    pieces: u64,
}

impl Worker {
    /// Creates a worker with its page.
    pub fn new(page: Page, bell: File) -> Self {
        Self { page, bell, gpus: [None; MAX_GPUS] }
    }

    /// Sets the GPU of a slot. Returns false if it has one, or if there is no such slot.
    fn name(&mut self, slot: usize, gpu: Gpu) -> bool {
        let (Some(place), Some(values)) = (self.gpus.get_mut(slot), self.page.slots().get(slot)) else {
            return false;
        };
        let (reported, pieces) =
            (values.reported.load(Ordering::Relaxed), values.pieces.load(Ordering::Relaxed));
        place.is_none() && place.replace(Place { gpu, reported, pieces }).is_none()
    }

    fn slot(&self, gpu: Gpu) -> Option<(usize, &Slot)> {
        let index = self.gpus.iter().position(|place| place.is_some_and(|place| place.gpu == gpu))?;
        Some((index, &self.page.slots()[index]))
    }

    fn look(&mut self, gpu: Gpu, now: u64) -> Option<Seen> {
        let index = self.slot(gpu)?.0;
        let (slot, place) = (&self.page.slots()[index], self.gpus[index].as_mut()?);
        let total = slot.reported.load(Ordering::Relaxed);
        let reported = total.wrapping_sub(std::mem::replace(&mut place.reported, total));
        let count = slot.pieces.load(Ordering::Relaxed);
        let pieces = count.wrapping_sub(std::mem::replace(&mut place.pieces, count));
        let announced =
            slot.announced.load(Ordering::Relaxed) != 0 && slot.announced.swap(0, Ordering::Relaxed) != 0;
        let waiting = announced || slot.waiting.load(Ordering::Relaxed) > 0;
        let in_flight = u64::from(slot.in_flight.load(Ordering::Relaxed));
        let busy = in_flight > 0;
        let since = slot.oldest.load(Ordering::Relaxed);
        let oldest = if busy && since > 0 { now.saturating_sub(since).min(1 << 40) } else { 0 };
        let typical = slot.typical.load(Ordering::Relaxed).min(1 << 40);
        let processes = u64::from(waiting || busy);
        Some(Seen {
            waiting,
            busy,
            reported: reported.min(1 << 40),
            pieces: pieces.min(1 << 20),
            processes,
            typical,
            oldest,
            left: Seen::left_of(in_flight, typical, oldest),
        })
    }

    fn grant(&self, gpu: Gpu, grant: Grant, epoch: u32, announce: bool) {
        let Some((_, slot)) = self.slot(gpu) else { return };
        let gate = slot.gate.load(Ordering::Relaxed);
        match grant {
            Grant::Free if announce => slot.set(ANNOUNCE, 0),
            Grant::Free if gate != OPEN && gate != ANNOUNCE => slot.set(OPEN, 0),
            Grant::Free => return,
            Grant::Hold if gate == HOLD => return,
            Grant::Hold => {
                slot.epoch.store(epoch, Ordering::Relaxed);
                slot.set(HOLD, 0);
            }
            Grant::Go { until } => {
                slot.epoch.store(epoch, Ordering::Relaxed);
                slot.set(GO, until);
            }
        }
        self.page.note();
    }
}

impl Machine {
    /// Creates a daemon that has just connected.
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, weight: None, workers: HashMap::new(), told: HashMap::new(), named: false }
    }

    /// Sets a GPU of worker `number`. Returns false if that slot of its page has one, or if there is no such worker or
    /// slot.
    pub fn name(&mut self, number: u64, slot: u32, gpu: Gpu) -> bool {
        let named = self.workers.get_mut(&number).is_some_and(|worker| worker.name(slot as usize, gpu));
        self.named |= named;
        named
    }

    /// Returns whether it has named a GPU since the last call.
    pub fn has_named(&mut self) -> bool {
        std::mem::take(&mut self.named)
    }

    /// Returns the GPUs of its workers.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus: Vec<Gpu> = Vec::new();
        for worker in self.workers.values() {
            gpus.extend(worker.gpus.iter().flatten().map(|place| place.gpu));
        }
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// Returns the combined values of all its workers.
    pub fn look(&mut self, gpu: Gpu, now: u64) -> Seen {
        let all = self.workers.values_mut().filter_map(|worker| worker.look(gpu, now));
        all.fold(Seen::default(), |sum, one| Seen {
            waiting: sum.waiting || one.waiting,
            busy: sum.busy || one.busy,
            reported: sum.reported.saturating_add(one.reported),
            pieces: sum.pieces.saturating_add(one.pieces),
            processes: sum.processes + one.processes,
            typical: if one.processes > 0 { sum.typical.max(one.typical) } else { sum.typical },
            oldest: sum.oldest.max(one.oldest),
            left: sum.left.saturating_add(one.left),
        })
    }

    /// Sets the gates of all its workers.
    pub fn grant(&self, gpu: Gpu, grant: Grant, epoch: u32, announce: bool) {
        self.workers.values().for_each(|worker| worker.grant(gpu, grant, epoch, announce));
    }
}
