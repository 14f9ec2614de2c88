// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest for unit tests: memory, one queue, and a driver that puts chains into it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vhost_user_backend::{VringRwLock, VringT};
use virtio_cuda_protocol::transport::{MemEntry, ReplyHeader, RequestHeader};
use virtio_queue::QueueOwnedT;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};
use zerocopy::{FromBytes, IntoBytes};

use crate::guest::memory::{Memory, SharedMemory, Snapshot};
use crate::guest::request::{self, Malformed, Request};
use crate::guest::ring::{Chain, Ring, Vring};

/// `VIRTQ_DESC_F_*`.
pub const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`.
pub const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`.
pub const INDIRECT: u16 = 4;
/// The number of entries of the queue.
pub const QUEUE_SIZE: u16 = 64;
/// The size of guest memory in bytes.
pub const MEMORY_BYTES: u64 = 4 << 20;
/// The address of requests; each chain has its own page from here, and its reply half a page further.
const REQUESTS: u64 = 0x10_0000;
const PAGE: u64 = 4096;

/// Guest memory with one queue at its start.
pub struct FixtureGuest {
    /// Its memory.
    pub memory: SharedMemory,
    /// The library's side of the queue.
    pub vring: Vring,
    /// The daemon's side of the queue.
    pub ring: Arc<Ring>,
    next: u16,
    table: u64,
    avail: u64,
    used: u64,
}

impl FixtureGuest {
    /// Creates a guest whose queue runs and is empty.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let ranges = [(GuestAddress(0), MEMORY_BYTES as usize)];
        let memory = SharedMemory::new(Memory::from_ranges(&ranges).unwrap());
        let vring = VringRwLock::new(memory.clone(), QUEUE_SIZE).unwrap();
        let snapshot = memory.memory();
        let queue = MockSplitQueue::new(&*snapshot, QUEUE_SIZE);
        let (table, avail, used) = (queue.desc_table_addr().0, queue.avail_addr().0, queue.used_addr().0);
        let guest = Self { memory, vring, ring: Arc::default(), next: 0, table, avail, used };
        guest.start();
        guest
    }

    /// Starts the queue, as a VMM does.
    pub fn start(&self) {
        self.vring.set_queue_size(QUEUE_SIZE);
        self.vring.set_queue_info(self.table, self.avail, self.used).unwrap();
        self.vring.set_queue_ready(true);
        self.vring.set_enabled(true);
        self.ring.resume(&self.vring);
        self.ring.pause();
    }

    /// Stops the queue, as a VMM does.
    pub fn stop(&self) {
        self.vring.set_queue_ready(false);
        self.ring.stop(0);
    }

    /// Guest memory.
    pub fn snapshot(&self) -> Snapshot {
        self.memory.memory()
    }

    /// Puts a chain of these descriptors (address, length, flags without NEXT) into the queue and takes it out.
    pub fn chain(&mut self, descriptors: &[(u64, u32, u16)]) -> (Result<Request, Malformed>, Chain) {
        let last = descriptors.len() - 1;
        let linked: Vec<_> = descriptors
            .iter()
            .enumerate()
            .map(|(at, &(addr, len, flags))| {
                let next = self.next + at as u16 + 1;
                let flags = if at == last { flags } else { flags | NEXT };
                Descriptor::new(addr, len, flags, next)
            })
            .collect();
        self.raw_chain(&linked)
    }

    /// Writes these descriptors into the table unchanged, with the first as a chain's head, and takes that chain out.
    pub fn raw_chain(&mut self, descriptors: &[Descriptor]) -> (Result<Request, Malformed>, Chain) {
        let memory = self.snapshot();
        let head = self.next;
        for (at, descriptor) in descriptors.iter().enumerate() {
            let addr = self.table + 16 * (u64::from(head) + at as u64);
            memory.write_obj(*descriptor, GuestAddress(addr)).unwrap();
        }
        self.next += descriptors.len() as u16;
        // Both rings consist of flags, index and elements.
        let index: u16 = memory.read_obj(GuestAddress(self.avail + 2)).unwrap();
        let element = self.avail + 4 + 2 * u64::from(index % QUEUE_SIZE);
        memory.write_obj(head, GuestAddress(element)).unwrap();
        memory.write_obj(index.wrapping_add(1), GuestAddress(self.avail + 2)).unwrap();
        let chain = self.vring.get_mut().get_queue_mut().iter(memory.clone()).unwrap().next().unwrap();
        let (request, slot) = request::parse(&memory, chain);
        let chain = self.ring.accept(&self.vring, memory, head, slot);
        (request, chain)
    }

    /// Puts a request into the queue and takes it out, with `room` bytes for the reply.
    pub fn request(
        &mut self,
        header: RequestHeader,
        payload: &[u8],
        ins: &[MemEntry],
        outs: &[MemEntry],
        room: u32,
    ) -> (Result<Request, Malformed>, Chain) {
        let at = REQUESTS + u64::from(self.next) * PAGE;
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(ins.as_bytes());
        bytes.extend_from_slice(outs.as_bytes());
        self.snapshot().write_slice(&bytes, GuestAddress(at)).unwrap();
        self.chain(&[(at, bytes.len() as u32, 0), (at + PAGE / 2, room, WRITE)])
    }

    /// Returns the heads and lengths that the device has put into the used ring.
    pub fn used(&self) -> Vec<(u32, u32)> {
        let memory = self.snapshot();
        let count: u16 = memory.read_obj(GuestAddress(self.used + 2)).unwrap();
        let element = |index: u16| {
            let at = self.used + 4 + 8 * u64::from(index % QUEUE_SIZE);
            let [id, bytes]: [u32; 2] = memory.read_obj(GuestAddress(at)).unwrap();
            (id, bytes)
        };
        (0..count).map(element).collect()
    }

    /// Waits until the device has answered `count` chains.
    pub fn wait_used(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.used().len() < count {
            assert!(Instant::now() < deadline, "{:?} of {count} chains were answered", self.used());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the reply to the request of [`Self::request`] with that head: status and payload.
    pub fn reply(&self, head: u32) -> (u32, Vec<u8>) {
        let at = GuestAddress(REQUESTS + u64::from(head) * PAGE + PAGE / 2);
        let mut bytes = [0; PAGE as usize / 2];
        self.snapshot().read_slice(&mut bytes, at).unwrap();
        let (header, rest) = ReplyHeader::read_from_prefix(&bytes).unwrap();
        (header.status, rest[..header.payload_bytes as usize].to_vec())
    }
}
