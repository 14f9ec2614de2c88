// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Staging buffers: pinned memory in slots ([`crate::memory::copy::staging`]), the free slots, and the buffers of each
//! context.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use virtio_cuda_client::protocol::{DevicePtr, EventId, StreamId};
use virtio_cuda_client::transport::UserMemory;

use crate::state::memory::pinned::Attached;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: StreamId = StreamId(2);

/// The size of a staging buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// For short copies.
    Small,
    /// For copies that several threads share.
    Large,
    /// For long copies to the device: pieces are filled while the worker wakes up.
    Long,
}

impl Size {
    /// Returns the bytes of a slot.
    pub fn slot_bytes(self) -> usize {
        match self {
            Self::Small => 128 << 10,
            Self::Large | Self::Long => 512 << 10,
        }
    }

    /// Returns the number of slots. While some are filled, others are transferred.
    pub fn slots(self) -> usize {
        match self {
            Self::Small => 8,
            Self::Large => 16,
            Self::Long => 48,
        }
    }

    /// Returns the number of slots that are waited for together, because each wait is a round trip to the device. The
    /// group is small, so that the other slots stay outstanding.
    pub fn group(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Large => 2,
            Self::Long => 8,
        }
    }

    /// Returns the maximum number of buffers of this size per context: as many threads copy through them at once.
    pub fn most(self) -> usize {
        match self {
            Self::Small | Self::Large => 4,
            Self::Long => 2,
        }
    }
}

/// A stream, distinguished from other threads' streams with the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub stream: StreamId,
    pub thread: Option<ThreadId>,
}

impl Queue {
    /// Returns the queue for a stream as this thread sees it.
    pub fn new(stream: StreamId) -> Self {
        Self { stream, thread: (stream == PER_THREAD).then(|| thread::current().id()) }
    }
}

/// A staging buffer: pinned memory in slots, with an event per group of slots. Only copies of one queue are outstanding
/// in it. No copy thus waits for other queues, and the GPU completes the copies in the order in which they were
/// started.
#[derive(Debug)]
pub struct Staging {
    pub context: u64,
    pub size: Size,
    /// Program's address, inside the address window.
    pub host: u64,
    pub attached: Attached,
    /// Per group: an event, and the number of copies that were started before its last record. It is recorded after a
    /// copy that fills the group or ends in it.
    pub events: Vec<(EventId, u64)>,
    /// Per slot: the number of the copy that uses it, from 1.
    pub uses: Vec<u64>,
    /// Number of copies that were started; number of copies that the GPU has certainly completed.
    pub started: u64,
    pub done: u64,
    /// The queue of the outstanding copies, and the slot of the last one.
    pub last: Option<(Queue, usize)>,
}

impl Staging {
    pub fn pages(&self) -> UserMemory {
        UserMemory { address: self.host as usize, bytes: self.size.slot_bytes() * self.size.slots() }
    }

    /// Returns this process's address of a slot.
    pub fn host(&self, slot: usize) -> *mut u8 {
        (self.host as usize + slot * self.size.slot_bytes()) as *mut u8
    }

    /// Returns the GPU's address of a slot.
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

    /// Returns the first event that was recorded after the slot's copy, and the number of copies that it covers.
    pub fn event_after(&self, slot: usize) -> Option<(EventId, u64)> {
        let after = self.events.iter().filter(|(_, covers)| *covers >= self.uses[slot]);
        after.min_by_key(|(_, covers)| *covers).copied()
    }

    /// Records that the GPU has completed the copies up to `number`.
    pub fn settled(&mut self, number: u64) {
        self.done = self.done.max(number);
        if self.done == self.started {
            self.last = None;
        }
    }

    /// Returns whether a copy in `queue` does not have to wait for a copy in another queue.
    pub fn serves(&self, queue: Queue) -> bool {
        self.last.is_none_or(|(other, _)| other == queue)
    }
}

/// The unused staging buffers of a process, and the number of all buffers.
#[derive(Debug, Default)]
pub struct Stagings(Mutex<HashMap<(u64, Size), Pool>>);

#[derive(Debug, Default)]
pub struct Pool {
    pub idle: Vec<Staging>,
    /// Buffers that stay unused until their context ends: work beside a capture, which was not waited for, may use
    /// them.
    pub given_up: Vec<Staging>,
    pub made: usize,
    /// Set after there was no memory for a buffer.
    pub refused: bool,
}

impl Stagings {
    pub fn pools(&self) -> MutexGuard<'_, HashMap<(u64, Size), Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a staging buffer to its pool.
    pub fn give_back(&self, staging: Staging) {
        let mut pools = self.pools();
        match pools.get_mut(&(staging.context, staging.size)) {
            Some(pool) => pool.idle.push(staging),
            // The context has been destroyed. The buffer is unpinned without the lock.
            None => drop(pools),
        }
    }

    /// Removes the buffers of a destroyed context.
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
