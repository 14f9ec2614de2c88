// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Access to the memory of a lane.

use crate::layout::{Header, LANE_BYTES, MAX_REPLY_BYTES, RECORDS_BYTES, RECORDS_OFFSET, REPLY_OFFSET};
use crate::sync::Ordering;

/// The memory of a lane, mapped into this process.
///
/// # Invariants
///
/// `base` is the page-aligned address of [`LANE_BYTES`] mapped, readable and writable bytes that stay so as long as
/// this value or a copy of it is used. The other process may write any of them at any time. So no reference to the
/// bytes after the header is ever created, and the header contains only atomics.
#[derive(Clone, Debug)]
pub struct LaneMemory {
    base: *mut u8,
    #[cfg(loom)]
    watch: std::sync::Arc<Watch>,
}

/// The kind of access for which memory is prefetched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// The other processors keep their copies of the cache lines.
    Read,
    /// The other processors give up their copies, so that a write does not wait for that.
    Write,
}

/// Represents the plain memory of the lane, so that loom detects unordered reads and writes.
#[cfg(loom)]
#[derive(Debug)]
struct Watch {
    units: Vec<loom::cell::UnsafeCell<()>>,
    reply: loom::cell::UnsafeCell<()>,
}

// SAFETY: the address is valid in every thread, by the type's invariant, and the other process races with this
// one anyhow; which thread of this process uses it is decided by who owns the producer and the consumer.
unsafe impl Send for LaneMemory {}

/// Looks how far the consumer of a lane has come, and how it ended; any number of threads may.
#[derive(Debug)]
pub(crate) struct Watcher(LaneMemory);

// SAFETY: the methods read atomics of the header, which any thread may.
unsafe impl Sync for Watcher {}

impl Watcher {
    /// Bytes that the consumer has consumed since the lane was set up.
    pub fn consumed(&self) -> u64 {
        self.0.header().head.0.load(Ordering::Acquire)
    }

    /// Returns the CUDA result of all calls since the device has ended the session; 0 while it has not.
    pub fn verdict(&self) -> u32 {
        self.0.header().verdict.0.load(Ordering::Acquire)
    }
}

impl LaneMemory {
    /// # Safety
    ///
    /// `base` must satisfy the type's invariant.
    pub unsafe fn new(base: *mut u8) -> Self {
        debug_assert!((base as usize).is_multiple_of(align_of::<Header>()));
        Self {
            base,
            #[cfg(loom)]
            watch: std::sync::Arc::new(Watch {
                units: (0..RECORDS_BYTES / 16).map(|_| loom::cell::UnsafeCell::new(())).collect(),
                reply: loom::cell::UnsafeCell::new(()),
            }),
        }
    }

    /// Sets the result of all calls from now on, before the consumer's process ends.
    pub fn set_verdict(&self, result: u32) {
        self.header().verdict.0.store(result, Ordering::Release);
    }

    /// Reports to loom an access to the ring or, without a place, to the reply.
    #[cfg(loom)]
    fn watch(&self, place: Option<(usize, usize)>, writes: bool) {
        let cells = match place {
            Some((at, bytes)) => &self.watch.units[at / 16..(at + bytes).div_ceil(16)],
            None => std::slice::from_ref(&self.watch.reply),
        };
        for cell in cells {
            if writes { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
        }
    }

    pub(crate) fn watcher(&self) -> Watcher {
        Watcher(self.clone())
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header lies at the start of the lane, aligned; it consists of atomics, which the other
        // process may change at any time, and every bit pattern is valid.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Copies `bytes` to byte `at` of the ring.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= RECORDS_BYTES && bytes.len() <= RECORDS_BYTES - at);
        #[cfg(loom)]
        self.watch(Some((at, bytes.len())), true);
        self.copy_in(RECORDS_OFFSET + at, bytes);
    }

    /// Appends `bytes` bytes from byte `at` of the ring to `to`.
    pub(crate) fn read(&self, at: usize, bytes: usize, to: &mut Vec<u8>) {
        assert!(at <= RECORDS_BYTES && bytes <= RECORDS_BYTES - at);
        #[cfg(loom)]
        self.watch(Some((at, bytes)), false);
        self.copy_out(RECORDS_OFFSET + at, bytes, to);
    }

    /// The two words of the head of a record at byte `at`.
    pub(crate) fn read_head(&self, at: usize) -> [u64; 2] {
        assert!(at <= RECORDS_BYTES - 16);
        #[cfg(loom)]
        self.watch(Some((at, 16)), false);
        // SAFETY: in the lane, by the check, and aligned because records are; plain memory that the other
        // process may be writing, so that what is read is checked as anything else of it.
        unsafe {
            let at = self.base.add(RECORDS_OFFSET + at).cast::<u64>();
            [at.read_volatile(), at.add(1).read_volatile()]
        }
    }

    /// Prefetches the cache lines of `bytes` bytes from byte `at` of the ring for the next access to them.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, bytes: usize, access: Access) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        for line in (0..bytes).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.base.wrapping_add(RECORDS_OFFSET + at + line);
            // SAFETY: both instructions are hints to the cache, which allow any address. Processors without `prefetchw`
            // execute it as a no-operation.
            unsafe {
                match access {
                    Access::Read => _mm_prefetch(line.cast::<i8>().cast_const(), _MM_HINT_T0),
                    Access::Write => {
                        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                }
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = (at, bytes, access);
    }

    /// Copies a reply to its room.
    pub(crate) fn write_reply(&self, bytes: &[u8]) {
        assert!(bytes.len() <= MAX_REPLY_BYTES);
        #[cfg(loom)]
        self.watch(None, true);
        self.copy_in(REPLY_OFFSET, bytes);
    }

    /// Copies the start of the reply to `to`.
    pub(crate) fn read_reply(&self, to: &mut [u8]) {
        assert!(to.len() <= MAX_REPLY_BYTES);
        #[cfg(loom)]
        self.watch(None, false);
        // SAFETY: in the lane, by the check; `to` is memory of this process alone.
        unsafe { self.base.add(REPLY_OFFSET).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= LANE_BYTES);
        // SAFETY: in the lane, as both callers check; `bytes` is memory of this process alone.
        unsafe { self.base.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn copy_out(&self, at: usize, bytes: usize, to: &mut Vec<u8>) {
        to.reserve(bytes);
        // SAFETY: the source is in the lane, as the caller checks; the vector has room for `bytes` more, which
        // the copy initialises.
        unsafe {
            let end = to.as_mut_ptr().add(to.len());
            self.base.add(at).copy_to_nonoverlapping(end, bytes);
            to.set_len(to.len() + bytes);
        }
    }
}
