// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pinned memory in slots ([`crate::memory::copy::staging`]): which slots are free, and the stagings of each context.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use virtio_cuda_client::protocol::{DevicePtr, EventId, StreamId};
use virtio_cuda_client::transport::UserMemory;

use crate::memory::table::pinned::Attached;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: StreamId = StreamId(2);

/// The size of a staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// For copies that are over soon.
    Small,
    /// For those that several threads share.
    Large,
    /// For long ones to the device: pieces are filled while the worker still wakes up.
    Long,
}

impl Size {
    /// Bytes of a slot.
    pub fn slot_bytes(self) -> usize {
        match self {
            Self::Small => 128 << 10,
            Self::Large | Self::Long => 512 << 10,
        }
    }

    /// Slots: while some are filled, others are on the link.
    pub fn slots(self) -> usize {
        match self {
            Self::Small => 8,
            Self::Large => 16,
            Self::Long => 48,
        }
    }

    /// Slots that are waited for together, as that is a way to the device and back: as few as leave the others under way.
    pub(in crate::memory) fn group(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Large => 2,
            Self::Long => 8,
        }
    }

    /// Stagings of the size that a context has at most: as many threads copy through them at once.
    pub(in crate::memory) fn most(self) -> usize {
        match self {
            Self::Small | Self::Large => 4,
            Self::Long => 2,
        }
    }
}

/// A stream, told from those of other threads that have the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(in crate::memory) stream: StreamId,
    pub(in crate::memory) thread: Option<ThreadId>,
}

impl Queue {
    /// The one that this thread means by a stream.
    pub fn new(stream: StreamId) -> Self {
        Self { stream, thread: (stream == PER_THREAD).then(|| thread::current().id()) }
    }
}

/// Pinned memory in slots, with an event for each group of them. Only copies of one queue are under way in it, so that
/// nobody waits for what other queues do, and the GPU is done with them in the order in which they were started.
#[derive(Debug)]
pub struct Staging {
    pub(in crate::memory) context: u64,
    pub(in crate::memory) size: Size,
    /// The address in the program, inside the address window.
    pub(in crate::memory) host: u64,
    pub(in crate::memory) attached: Attached,
    /// For each group: an event, and the number of copies that were started before it was recorded last. It is recorded
    /// after a copy that fills the group, or ends in it.
    pub(in crate::memory) events: Vec<(EventId, u64)>,
    /// For each slot: the number of the copy that uses it, from 1.
    pub(in crate::memory) uses: Vec<u64>,
    /// Copies that were started, and those that the GPU is known to be done with.
    pub(in crate::memory) started: u64,
    pub(in crate::memory) done: u64,
    /// The queue of the copies that are under way, and the slot of the last one.
    pub(in crate::memory) last: Option<(Queue, usize)>,
}

impl Staging {
    pub(in crate::memory) fn pages(&self) -> UserMemory {
        UserMemory { address: self.host as usize, bytes: self.size.slot_bytes() * self.size.slots() }
    }

    /// The first byte of a slot, for this process.
    pub fn host(&self, slot: usize) -> *mut u8 {
        (self.host as usize + slot * self.size.slot_bytes()) as *mut u8
    }

    /// The first byte of a slot, for the GPU.
    pub fn device(&self, slot: usize) -> DevicePtr {
        DevicePtr(self.attached.device_address + (slot * self.size.slot_bytes()) as u64)
    }

    /// Returns whether the GPU may still use the slot.
    pub fn is_pending(&self, slot: usize) -> bool {
        self.uses[slot] > self.done
    }

    /// Returns whether [`Self::settle`] may be called for the slot.
    pub fn can_settle(&self, slot: usize) -> bool {
        !self.is_pending(slot) || self.event_after(slot).is_some()
    }

    /// The first event that was recorded after the slot's copy, and what it covers.
    pub(in crate::memory) fn event_after(&self, slot: usize) -> Option<(EventId, u64)> {
        let after = self.events.iter().filter(|(_, covers)| *covers >= self.uses[slot]);
        after.min_by_key(|(_, covers)| *covers).copied()
    }

    /// The GPU is done with the copies up to that number.
    pub(in crate::memory) fn settled(&mut self, number: u64) {
        self.done = self.done.max(number);
        if self.done == self.started {
            self.last = None;
        }
    }

    /// Returns whether a copy in `queue` waits for none in another queue.
    pub(in crate::memory) fn serves(&self, queue: Queue) -> bool {
        self.last.is_none_or(|(other, _)| other == queue)
    }
}

/// The stagings of a process that are not in use, and how many there are.
#[derive(Debug, Default)]
pub struct Stagings(Mutex<HashMap<(u64, Size), Pool>>);

#[derive(Debug, Default)]
pub(in crate::memory) struct Pool {
    pub(in crate::memory) idle: Vec<Staging>,
    /// Those that are out of use until their context ends: work beside a capture, which was not waited for, may use them.
    pub(in crate::memory) given_up: Vec<Staging>,
    pub(in crate::memory) made: usize,
    /// There was no memory for one.
    pub(in crate::memory) refused: bool,
}

impl Stagings {
    pub(in crate::memory) fn pools(&self) -> MutexGuard<'_, HashMap<(u64, Size), Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a staging back.
    pub fn give_back(&self, staging: Staging) {
        let mut pools = self.pools();
        match pools.get_mut(&(staging.context, staging.size)) {
            Some(pool) => pool.idle.push(staging),
            // The context has been destroyed. Unpinned without the lock.
            None => drop(pools),
        }
    }

    /// Forgets what a destroyed context had.
    pub fn forget_context(&self, context: u64) {
        let mut pools = self.pools();
        let removed: Vec<Pool> = [Size::Small, Size::Large, Size::Long]
            .iter()
            .filter_map(|&size| pools.remove(&(context, size)))
            .collect();
        drop(pools);
        drop(removed);
    }
}
