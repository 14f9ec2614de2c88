// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue `eventq`, by which the device notifies the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use log::debug;
use parking_lot::Mutex;
use vhost_user_backend::VringT;
use virtio_cuda_protocol::transport::Event;
use virtio_queue::QueueOwnedT;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use crate::guest::memory::Snapshot;
use crate::guest::ring::{Ring, Vring, publish};

/// The maximum number of pending events for a driver that provides no buffers; the oldest is dropped first. A driver
/// that misses one still learns of a lost session at its next call.
const MAX_PENDING: usize = 1024;

/// Events for the driver.
#[derive(Debug)]
pub struct EventQueue {
    ring: Arc<Ring>,
    pending: Mutex<VecDeque<Event>>,
}

impl EventQueue {
    /// Creates the events of the queue `ring`.
    pub fn new(ring: Arc<Ring>) -> Self {
        Self { ring, pending: Mutex::default() }
    }

    /// Sends an event now, or as soon as the driver provides a buffer.
    pub fn send(&self, event: Event, memory: Option<Snapshot>) {
        let mut pending = self.pending.lock();
        if pending.len() == MAX_PENDING {
            pending.pop_front();
        }
        pending.push_back(event);
        drop(pending);
        if let Some(memory) = memory {
            self.deliver(&memory);
        }
    }

    /// Puts pending events into the driver's buffers, if the queue runs.
    pub fn deliver(&self, memory: &Snapshot) {
        self.ring.if_running(|vring| self.deliver_to(vring, memory));
    }

    fn deliver_to(&self, vring: &Vring, memory: &Snapshot) {
        let mut pending = self.pending.lock();
        while let Some(event) = pending.front() {
            let Some((head, slot)) = take_buffer(vring, memory) else { break };
            match slot {
                Some(addr) if memory.write_slice(event.as_bytes(), addr).is_ok() => {
                    publish(vring, head, size_of::<Event>() as u32);
                    pending.pop_front();
                }
                _ => {
                    debug!("An event buffer is too small or outside guest memory");
                    publish(vring, head, 0);
                }
            }
        }
    }

    /// Returns the events that the driver has no buffers for, for the next program: the lost sessions.
    pub fn save(&self) -> Vec<u64> {
        self.pending.lock().iter().map(|event| event.session).collect()
    }

    /// Drops undelivered events, because the driver was restarted.
    pub fn clear(&self) {
        self.pending.lock().clear();
    }
}

/// Returns the next buffer: its head, and its address if it can hold an event.
fn take_buffer(vring: &Vring, memory: &Snapshot) -> Option<(u16, Option<GuestAddress>)> {
    let mut state = vring.get_mut();
    let mut chain = state.get_queue_mut().iter(memory.clone()).ok()?.next()?;
    let head = chain.head_index();
    let addr = chain
        .next()
        .filter(|buffer| buffer.is_write_only() && buffer.len() as usize >= size_of::<Event>())
        .map(|buffer| buffer.addr());
    Some((head, addr))
}
