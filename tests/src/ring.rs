// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The driver's end of a split virtqueue without any checks: tests write data that a driver must not write.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Entries of a queue.
pub const QUEUE_SIZE: u16 = 256;
/// Bytes that a queue's three tables take, rounded up.
pub const QUEUE_BYTES: u64 = 16 << 10;

const AVAIL_OFFSET: u64 = 4 << 10;
const USED_OFFSET: u64 = 8 << 10;

/// The descriptor continues in `next`.
pub const NEXT: u16 = 1;
/// The device writes the buffer.
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A descriptor (virtio 1.3, section 2.7.5).
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    /// Guest-physical address of the buffer.
    pub addr: u64,
    /// Its bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// The next descriptor, with [`NEXT`].
    pub next: u16,
}

impl Descriptor {
    /// Its bytes in guest memory.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// A chain that the device has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Head of the chain.
    pub head: u32,
    /// The number of written bytes that the device reports.
    pub bytes: u32,
}

/// One queue.
#[derive(Debug)]
pub struct Ring {
    memory: GuestMemoryMmap,
    base: u64,
    offered: u16,
    taken: u16,
    /// Wakes the device.
    pub kick: EventFd,
    /// Wakes the driver.
    pub call: EventFd,
}

impl Ring {
    /// A queue whose tables begin at `base`.
    pub fn new(memory: GuestMemoryMmap, base: u64) -> Result<Self> {
        let kick = EventFd::new(EFD_NONBLOCK)?;
        let call = EventFd::new(EFD_NONBLOCK)?;
        Ok(Self { memory, base, offered: 0, taken: 0, kick, call })
    }

    /// Guest-physical address of the descriptor table.
    pub fn descriptors(&self) -> u64 {
        self.base
    }

    /// Guest-physical address of the available ring.
    pub fn available(&self) -> u64 {
        self.base + AVAIL_OFFSET
    }

    /// Guest-physical address of the used ring.
    pub fn used(&self) -> u64 {
        self.base + USED_OFFSET
    }

    /// Writes one entry of the descriptor table.
    pub fn describe(&self, index: u16, descriptor: Descriptor) -> Result<()> {
        let at = GuestAddress(self.base + 16 * u64::from(index));
        self.memory.write_slice(&descriptor.bytes(), at).context("Descriptor table")
    }

    /// Makes the chain at `head` available, without a kick.
    pub fn offer(&mut self, head: u16) -> Result<()> {
        let slot = self.available() + 4 + 2 * u64::from(self.offered % QUEUE_SIZE);
        self.memory.write_obj(head, GuestAddress(slot)).context("Available ring")?;
        self.offered = self.offered.wrapping_add(1);
        self.announce(self.offered)
    }

    /// Writes the index of the available ring, whatever it is.
    pub fn announce(&self, index: u16) -> Result<()> {
        self.memory
            .store(index, GuestAddress(self.available() + 2), Ordering::Release)
            .context("Available index")
    }

    /// Kicks the device.
    pub fn kick(&self) -> Result<()> {
        self.kick.write(1).context("Kick")
    }

    /// The next chain that the device gives back, if one comes in time.
    pub fn next_used(&mut self, limit: Duration) -> Result<Option<Used>> {
        let deadline = Instant::now() + limit;
        loop {
            let index: u16 =
                self.memory.load(GuestAddress(self.used() + 2), Ordering::Acquire).context("Used index")?;
            if index != self.taken {
                let slot = self.used() + 4 + 8 * u64::from(self.taken % QUEUE_SIZE);
                let head = self.memory.read_obj(GuestAddress(slot)).context("Used ring")?;
                let bytes = self.memory.read_obj(GuestAddress(slot + 4)).context("Used ring")?;
                self.taken = self.taken.wrapping_add(1);
                return Ok(Some(Used { head, bytes }));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left);
            let _ = self.call.read();
        }
    }

    fn wait(&self, limit: Duration) {
        let mut poll = libc::pollfd { fd: self.call.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Never longer than a moment: a malformed queue may suppress the device's notifications.
        let milliseconds = limit.as_millis().clamp(1, 50) as libc::c_int;
        // SAFETY: one valid pollfd for the duration of the call.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    }
}
