// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The memory that the ranks of a communicator share. It is as long as the maximum number of ranks needs; the kernel gives
//! memory to the pages that are used only.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use super::counted::Counted;
use super::locked;

/// The maximum number of ranks of a communicator.
pub const MAX_RANKS: usize = 64;
/// Bytes of the ring of a channel.
pub const ROOM: usize = 1 << 17;
/// Words of a communicator's id.
pub const ID_WORDS: usize = 16;

/// The maximum number of mappings of this process, each of which takes [`BYTES`] of its addresses.
const MAX_MAPPED: usize = 1 << 10;
/// The number of remembered captures. Older ones have ended, unless as many run at the same time.
const MAX_CAPTURES: usize = 64;

const RINGS: usize = size_of::<Head>().next_multiple_of(4096);
const BYTES: usize = RINGS + MAX_RANKS * MAX_RANKS * ROOM;

/// [`Slot::state`]: no rank yet.
pub const ABSENT: u32 = 0;
/// [`Slot::state`]: a process is about to join as this rank.
pub const CLAIMED: u32 = 1;
/// [`Slot::state`]: the rank takes part.
pub const JOINED: u32 = 2;
/// [`Slot::state`]: the communicator was destroyed there. All that the rank has sent is in its channels.
pub const LEFT: u32 = 3;
/// [`Slot::state`]: an operation has failed there, or the communicator was aborted.
pub const FAILED: u32 = 4;

/// The state of a rank that the others can read.
#[repr(C, align(64))]
pub struct Slot {
    /// [`ABSENT`] to [`FAILED`].
    pub state: AtomicU32,
    /// Changes when something has happened for which this rank may wait.
    bell: AtomicU32,
    /// Its process, and the PID namespace of that.
    pub process: AtomicU64,
    /// 0 for an unknown one.
    pub namespace: AtomicU64,
    /// Grows as long as the process lives.
    pub beat: AtomicU64,
    /// Its part in the current and the previous split, indexed by the number's parity. Ranks are at most one split
    /// apart.
    pub splits: [Split; 2],
}

/// The part of a rank in a split.
#[repr(C)]
pub struct Split {
    /// The number of the split that `color` and `key` are for, from 1.
    pub number: AtomicU64,
    /// `ncclCommSplit`'s.
    pub color: AtomicI32,
    /// `ncclCommSplit`'s.
    pub key: AtomicI32,
    /// The number of the split that `id` is for.
    pub announced: AtomicU64,
    /// The id of the new communicator, if this rank is its first one.
    pub id: [AtomicU64; ID_WORDS],
}

/// The two ends of a channel, each in a line of its own.
#[repr(C, align(64))]
pub struct Ends {
    /// Bytes that were ever written.
    pub written: AtomicU64,
    apart: [u64; 7],
    /// Bytes that were ever read.
    pub read: AtomicU64,
}

#[repr(C)]
struct Head {
    /// The number of ranks; 0 until the first one joins.
    ranks: AtomicU32,
    slots: [Slot; MAX_RANKS],
    ends: [[Ends; MAX_RANKS]; MAX_RANKS],
}

/// A mapping of that memory.
///
/// # Invariants
/// `base` is a shared mapping of [`BYTES`] bytes of a memory file that cannot shrink; it stays until this is dropped.
pub struct Segment {
    base: *mut u8,
    /// The captures that have operations of ranks of this process: the number of the capture, and the rank.
    captures: Mutex<VecDeque<(u64, usize)>>,
    /// The devices of ranks of this process.
    devices: Mutex<Vec<i32>>,
    _counted: Counted,
}

// SAFETY: the head is atomic, the rings are only accessed by raw copies, and the mapping belongs to no thread.
unsafe impl Send for Segment {}
// SAFETY: threads that share it only use the atomics of the head, raw copies of the rings, and lists behind their locks. The
// mapping stays until the last one drops the value.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new file of zeros.
    pub fn create() -> io::Result<(Self, File)> {
        let file = memfd_create(c"cuda-nccl", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = File::from(file);
        Ok((Self::map(&file)?, file))
    }

    /// Maps the file of another process, which is not trusted.
    ///
    /// Errors: its size is wrong or could shrink, or this process has too many mappings.
    pub fn map(file: &File) -> io::Result<Self> {
        static MAPPED: AtomicUsize = AtomicUsize::new(0);
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) || file.metadata()?.len() != BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let counted = Counted::new(&MAPPED, MAX_MAPPED).ok_or(io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that nothing uses.
        let base = unsafe { mmap(std::ptr::null_mut(), BYTES, access, MapFlags::SHARED, file, 0) }?;
        Ok(Self {
            base: base.cast(),
            captures: Mutex::default(),
            devices: Mutex::default(),
            _counted: counted,
        })
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped, large enough and page-aligned (invariant); all fields that others write are atomic, any value is one.
        unsafe { &*self.base.cast() }
    }

    /// Returns the published state of a rank.
    pub fn slot(&self, rank: usize) -> &Slot {
        &self.head().slots[rank]
    }

    /// The ends of the channel from one rank to another.
    pub fn ends(&self, from: usize, to: usize) -> &Ends {
        &self.head().ends[from][to]
    }

    /// The ring of the channel from one rank to another, [`ROOM`] bytes.
    pub fn ring_of(&self, from: usize, to: usize) -> *mut u8 {
        assert!(from < MAX_RANKS && to < MAX_RANKS, "checked when the communicator was made");
        // SAFETY: the index is below the number of rings, which lie behind the head in the mapping (invariant).
        unsafe { self.base.add(RINGS + (from * MAX_RANKS + to) * ROOM) }
    }

    /// Agrees on the number of ranks; false: others have another one.
    pub fn agree(&self, ranks: usize) -> bool {
        let place = &self.head().ranks;
        let ranks = ranks as u32;
        match place.compare_exchange(0, ranks, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(known) => known == ranks,
        }
    }

    /// The bell of a rank as it is now, for [`Self::wait`].
    pub fn bell(&self, rank: usize) -> u32 {
        self.slot(rank).bell.load(Ordering::Acquire)
    }

    /// Wakes a rank.
    pub fn ring(&self, rank: usize) {
        let bell = &self.slot(rank).bell;
        bell.fetch_add(1, Ordering::AcqRel);
        // Without it the rank checks again when its wait ends.
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Wakes several ranks.
    pub fn ring_all(&self, ranks: usize) {
        (0..ranks).for_each(|rank| self.ring(rank));
    }

    /// Waits until the bell of a rank has changed, at most for that time.
    pub fn wait(&self, rank: usize, bell: u32, time: std::time::Duration) {
        let time = futex::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // The caller checks again in any case.
        let _ = futex::wait(&self.slot(rank).bell, futex::Flags::empty(), bell, Some(&time));
    }

    /// Reserves a device for a rank of this process. Returns false if another rank has it: in one stream they would wait for
    /// each other for ever.
    pub fn occupy(&self, device: i32) -> bool {
        let mut devices = locked(&self.devices);
        let is_free = !devices.contains(&device);
        if is_free {
            devices.push(device);
        }
        is_free
    }

    /// Releases the device of a rank that has ended.
    pub fn vacate(&self, device: i32) {
        locked(&self.devices).retain(|known| *known != device);
    }

    /// Notes that a capture has an operation of a rank. False: it has one of another rank of this process. The nodes of a graph
    /// run one after the other, so the first one would wait for the second one.
    pub fn capture(&self, capture: u64, rank: usize) -> bool {
        let mut captures = locked(&self.captures);
        if captures.iter().any(|(known, of)| *known == capture && *of != rank) {
            return false;
        }
        if !captures.contains(&(capture, rank)) {
            if captures.len() == MAX_CAPTURES {
                captures.pop_front();
            }
            captures.push_back((capture, rank));
        }
        true
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own (invariant).
        let _ = unsafe { munmap(self.base.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_captures_are_remembered() {
        let (segment, _) = Segment::create().unwrap();
        assert!(segment.capture(0, 1) && segment.capture(0, 1) && !segment.capture(0, 2));
        assert!((1..MAX_CAPTURES as u64).all(|capture| segment.capture(capture, 1)));
        assert!(!segment.capture(0, 2) && segment.capture(1000, 1));
        assert_eq!(locked(&segment.captures).len(), MAX_CAPTURES);
        assert!(!segment.capture(1, 2) && segment.capture(0, 2), "the oldest one is forgotten");
    }
}
