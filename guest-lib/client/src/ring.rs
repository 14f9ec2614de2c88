// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The driver's side of a split virtqueue (virtio 1.3, section 2.7), for chains of one device-readable and
//! one device-writable buffer.
//!
//! Slot `i` owns the descriptors `2i` (readable) and `2i + 1` (writable): nothing has to be searched or
//! freed, and a descriptor's number names its slot.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use virtio_bindings::virtio_ring::{
    VRING_AVAIL_F_NO_INTERRUPT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE, VRING_USED_F_NO_NOTIFY,
};

const DESCRIPTOR_BYTES: usize = 16;
const USED_ELEMENT_BYTES: usize = 8;

/// The positions of the three parts of a queue, as byte offsets from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Available ring.
    pub avail: usize,
    /// Used ring.
    pub used: usize,
    /// Bytes of the whole queue.
    pub bytes: usize,
}

impl Layout {
    /// The layout for `slots` slots, a power of two.
    pub const fn new(slots: u16) -> Self {
        let size = 2 * slots as usize;
        let avail = size * DESCRIPTOR_BYTES;
        // flags, index, the ring, used_event
        let used = (avail + 2 * (3 + size)).next_multiple_of(64);
        // flags, index, the ring, avail_event
        Self { avail, used, bytes: used + 6 + size * USED_ELEMENT_BYTES }
    }
}

/// The driver's side of one queue.
///
/// # Invariants
///
/// `base` points to `Layout::new(slots).bytes` bytes, 64-byte aligned, that stay mapped while the value
/// lives and that only the device also accesses.
#[derive(Debug)]
pub struct SplitRing {
    base: *mut u8,
    layout: Layout,
    slots: u16,
    next_avail: u16,
    last_used: u16,
}

// SAFETY: the queue's memory is not tied to a thread; all access goes through `&mut self`, or atomics.
unsafe impl Send for SplitRing {}

/// A completed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot that was passed to [`SplitRing::submit`].
    pub slot: u16,
    /// Bytes that the device says it wrote.
    pub written: u32,
}

impl SplitRing {
    /// Sets up a queue in zeroed memory.
    ///
    /// # Safety
    ///
    /// `base` is as the invariants of [`SplitRing`] say; `slots` is a power of two up to 2^14.
    pub unsafe fn new(base: *mut u8, slots: u16) -> Self {
        Self { base, layout: Layout::new(slots), slots, next_avail: 0, last_used: 0 }
    }

    /// Number of descriptors in the queue, as reported to the device.
    pub fn size(&self) -> u16 {
        2 * self.slots
    }

    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= self.layout.bytes && offset.is_multiple_of(2));
        // SAFETY: by the invariant the memory is mapped and aligned; both sides access it as they like, and
        // an atomic may be shared with another process.
        unsafe { AtomicU16::from_ptr(self.base.add(offset).cast()) }
    }

    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= self.layout.bytes && offset.is_multiple_of(4));
        // SAFETY: by the invariant the memory is mapped, and `offset` is aligned and inside of it; an atomic may be
        // shared with another process.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }

    fn u64_at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= self.layout.bytes && offset.is_multiple_of(8));
        // SAFETY: by the invariant the memory is mapped, and `offset` is aligned and inside of it; an atomic may be
        // shared with another process.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    fn write_descriptor(&self, index: u16, address: u64, bytes: u32, flags: u32, next: u16) {
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        self.u64_at(at).store(address.to_le(), Ordering::Relaxed);
        self.u32_at(at + 8).store(bytes.to_le(), Ordering::Relaxed);
        self.u16_at(at + 12).store((flags as u16).to_le(), Ordering::Relaxed);
        self.u16_at(at + 14).store(next.to_le(), Ordering::Relaxed);
    }

    /// Makes the chain of `slot` available: guest addresses and lengths of the memory that the device reads and writes.
    /// The slot must not be in flight. Returns true if the device wants to be kicked.
    pub fn submit(&mut self, slot: u16, readable: (u64, u32), writable: (u64, u32)) -> bool {
        let head = 2 * slot;
        self.write_descriptor(head, readable.0, readable.1, VRING_DESC_F_NEXT, head + 1);
        self.write_descriptor(head + 1, writable.0, writable.1, VRING_DESC_F_WRITE, 0);
        let entry = usize::from(self.next_avail & (self.size() - 1));
        self.u16_at(self.layout.avail + 4 + 2 * entry).store(head.to_le(), Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
        // The device sees the index only after the descriptors (virtio 2.7.13.3), and this side looks at the
        // device's flags only after the index is out (2.7.13.4).
        self.u16_at(self.layout.avail + 2).store(self.next_avail.to_le(), Ordering::Release);
        std::sync::atomic::fence(Ordering::SeqCst);
        let flags = u16::from_le(self.u16_at(self.layout.used).load(Ordering::Relaxed));
        u32::from(flags) & VRING_USED_F_NO_NOTIFY == 0
    }

    /// Returns whether there is a completed chain that [`SplitRing::pop`] has not taken.
    pub fn has_completions(&self) -> bool {
        self.used_index() != self.last_used
    }

    fn used_index(&self) -> u16 {
        u16::from_le(self.u16_at(self.layout.used + 2).load(Ordering::Acquire))
    }

    /// Takes the next completed chain. Returns `Some(None)` for a slot that does not exist, which is the device's mistake.
    pub fn pop(&mut self) -> Option<Option<Completion>> {
        if !self.has_completions() {
            return None;
        }
        let entry = usize::from(self.last_used & (self.size() - 1));
        let at = self.layout.used + 4 + entry * USED_ELEMENT_BYTES;
        let head = u32::from_le(self.u32_at(at).load(Ordering::Relaxed));
        let written = u32::from_le(self.u32_at(at + 4).load(Ordering::Relaxed));
        self.last_used = self.last_used.wrapping_add(1);
        let valid = head.is_multiple_of(2) && head < u32::from(self.size());
        Some(valid.then_some(Completion { slot: (head / 2) as u16, written }))
    }

    /// Asks the device to signal completions, or not to. This is a hint: a signal may still come.
    pub fn set_interrupts(&self, on: bool) {
        let flags = if on { 0 } else { VRING_AVAIL_F_NO_INTERRUPT as u16 };
        self.u16_at(self.layout.avail).store(flags.to_le(), Ordering::Relaxed);
        // The thread that turns them on reads the used index afterwards, so that no completion is missed.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u16 = 4;

    /// Queue memory and a device that completes the requests in it directly.
    struct Fixture {
        memory: Vec<u64>,
        ring: SplitRing,
        seen: u16,
        used: u16,
    }

    fn fixture() -> Fixture {
        let mut memory = vec![0u64; Layout::new(SLOTS).bytes.div_ceil(8)];
        // SAFETY: the vector is long enough, lives as long as the ring and is not resized. u64 alignment
        // suffices for every access; 64 bytes are for cache lines.
        let ring = unsafe { SplitRing::new(memory.as_mut_ptr().cast(), SLOTS) };
        Fixture { memory, ring, seen: 0, used: 0 }
    }

    impl Fixture {
        fn device_take(&mut self) -> Option<u16> {
            let avail = self.ring.layout.avail;
            if self.ring.u16_at(avail + 2).load(Ordering::Acquire) == self.seen {
                return None;
            }
            let entry = usize::from(self.seen % self.ring.size());
            self.seen = self.seen.wrapping_add(1);
            Some(self.ring.u16_at(avail + 4 + 2 * entry).load(Ordering::Relaxed))
        }

        fn device_complete(&mut self, head: u32, written: u32) {
            let used = self.ring.layout.used;
            let at = used + 4 + usize::from(self.used % self.ring.size()) * USED_ELEMENT_BYTES;
            self.ring.u32_at(at).store(head, Ordering::Relaxed);
            self.ring.u32_at(at + 4).store(written, Ordering::Relaxed);
            self.used = self.used.wrapping_add(1);
            self.ring.u16_at(used + 2).store(self.used, Ordering::Release);
        }
    }

    #[test]
    fn layout_is_that_of_the_specification() {
        // 8 descriptors: table 128 bytes, avail 6 + 2 * 8 bytes, used 6 + 8 * 8 bytes at a multiple of 4.
        let layout = Layout::new(4);
        assert_eq!(layout, Layout { avail: 128, used: 192, bytes: 192 + 70 });
    }

    #[test]
    fn chain_has_a_readable_and_a_writable_buffer() {
        let mut f = fixture();
        assert!(f.ring.submit(3, (0x1000, 40), (0x2000, 8)));
        assert_eq!(f.device_take(), Some(6));
        assert_eq!(f.memory[12], 0x1000);
        assert_eq!(f.memory[13], 40 | (1 << 32) | (7 << 48), "length 40, NEXT, next 7");
        assert_eq!(f.memory[14], 0x2000);
        assert_eq!(f.memory[15], 8 | (2 << 32), "length 8, WRITE");
    }

    #[test]
    fn indices_wrap_around() {
        let mut f = fixture();
        for round in 0..70_000u32 {
            let slot = (round % u32::from(SLOTS)) as u16;
            f.ring.submit(slot, (0, 1), (0, 1));
            let head = f.device_take().expect("the chain is available");
            assert_eq!(head, 2 * slot);
            f.device_complete(head.into(), round);
            assert_eq!(f.ring.pop(), Some(Some(Completion { slot, written: round })));
            assert_eq!(f.ring.pop(), None);
        }
    }

    #[test]
    fn nonsense_of_the_device_is_no_slot() {
        let mut f = fixture();
        f.device_complete(3, 0);
        f.device_complete(8, 0);
        f.device_complete(u32::MAX, 0);
        for _ in 0..3 {
            assert_eq!(f.ring.pop(), Some(None));
        }
    }

    #[test]
    fn device_may_decline_kicks() {
        let mut f = fixture();
        let used = f.ring.layout.used;
        f.ring.u16_at(used).store(VRING_USED_F_NO_NOTIFY as u16, Ordering::Relaxed);
        assert!(!f.ring.submit(0, (0, 1), (0, 1)));
    }
}
