// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Descriptor chains: requests come out of them, and replies go into them.

use vhost_cuda_tests::backend::Memory;
use vhost_user_backend::{VringRwLock, VringT};
use virtio_cuda_protocol::transport::ReplyHeader;
use virtio_queue::QueueOwnedT;
use vm_memory::{Bytes, GuestAddress, GuestMemoryLoadGuard, GuestMemoryMmap};
use zerocopy::IntoBytes;

pub type Snapshot = GuestMemoryLoadGuard<GuestMemoryMmap>;
pub type Vring = VringRwLock<Memory>;

/// A chain that was taken from a queue.
pub struct Chain {
    vring: Vring,
    pub memory: Snapshot,
    head: u16,
    /// The bytes that the driver has written.
    pub request: Vec<u8>,
    writable: Vec<(GuestAddress, u32)>,
}

impl Chain {
    /// The next one, if there is any.
    pub fn next(vring: &Vring, memory: &Snapshot) -> Option<Self> {
        let mut state = vring.get_mut();
        let chain = state.get_queue_mut().iter(memory.clone()).ok()?.next()?;
        let head = chain.head_index();
        let (mut request, mut writable) = (Vec::new(), Vec::new());
        for descriptor in chain {
            if descriptor.is_write_only() {
                writable.push((descriptor.addr(), descriptor.len()));
                continue;
            }
            let mut bytes = vec![0; descriptor.len() as usize];
            memory.read_slice(&mut bytes, descriptor.addr()).ok()?;
            request.extend_from_slice(&bytes);
        }
        drop(state);
        Some(Self { vring: vring.clone(), memory: memory.clone(), head, request, writable })
    }

    /// Bytes of payload that the driver has room for.
    pub fn room(&self) -> usize {
        let all: usize = self.writable.iter().map(|&(_, bytes)| bytes as usize).sum();
        all.saturating_sub(size_of::<ReplyHeader>())
    }

    /// Replies.
    pub fn answer(self, status: u32, payload: &[u8]) {
        let header = ReplyHeader { status, payload_bytes: payload.len() as u32 };
        let used = (size_of::<ReplyHeader>() + payload.len()) as u32;
        self.answer_with(header, payload, used);
    }

    /// Replies with this header, and reports `used` written bytes.
    pub fn answer_with(self, header: ReplyHeader, payload: &[u8], used: u32) {
        self.write(&[header.as_bytes(), payload].concat());
        self.hand_back(used);
    }

    /// Hands the chain back twice, which no device may do.
    pub fn answer_twice(self, status: u32) {
        let header = ReplyHeader { status, payload_bytes: 0 };
        self.write(header.as_bytes());
        let used = size_of::<ReplyHeader>() as u32;
        self.hand_back(used);
        self.hand_back(used);
    }

    /// Writes an event and hands the chain back.
    pub fn fill(self, bytes: &[u8]) {
        self.write(bytes);
        self.hand_back(bytes.len() as u32);
    }

    fn write(&self, mut bytes: &[u8]) {
        for &(at, room) in &self.writable {
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            // A guest with an invalid address does not get the requested data.
            let _ = self.memory.write_slice(now, at);
            bytes = later;
        }
    }

    fn hand_back(&self, used: u32) {
        let mut state = self.vring.get_mut();
        if state.add_used(self.head, used).is_ok() && state.needs_notification().unwrap_or(true) {
            let _ = state.signal_used_queue();
        }
    }
}
