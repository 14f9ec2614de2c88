// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page between one worker and the arbiter: the work that the worker may do on each GPU, and the work that it does.
//!
//! The daemon creates the page and passes it to both. Other machines do not depend on the worker's values: a
//! compromised worker can misreport its own work and ignore its gate. It has no access to other pages, and it cannot
//! name GPUs: the daemon reads their UUIDs before the worker serves a guest, and names them to the arbiter.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::files;

/// The maximum number of arbitrated GPUs of a worker: its first ones.
pub const MAX_GPUS: usize = 16;
/// The page's size in bytes.
const BYTES: usize = 4096;

/// The time that events before and after a piece of work show in addition to the work, in nanoseconds, as measured
/// around an empty kernel on an H100.
pub const EVENTS: u64 = 6_500;

/// State of a gate: work may start.
pub const OPEN: u32 = 0;
/// State of a gate: work may start. The first work opens the gate and rings.
pub const ANNOUNCE: u32 = 1;
/// State of a gate: work that ends before `until` may start.
pub const GO: u32 = 2;
/// State of a gate: work waits.
pub const HOLD: u32 = 3;

/// One GPU. All zeros are valid.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Slot {
    /// The GPU's UUID; zero for none. Written by the worker before it is ready, and read by the daemon then.
    uuid: [AtomicU64; 2],
    /// Written by the arbiter: the gate's state.
    pub gate: AtomicU32,
    /// Written by the arbiter: the number of times that machines began to compete.
    pub epoch: AtomicU32,
    /// Written by the arbiter, in nanoseconds of [`now`].
    pub until: AtomicU64,
    /// The number of threads that wait at the gate.
    pub waiting: AtomicU32,
    /// Set when work was started at a gate in state [`ANNOUNCE`].
    pub announced: AtomicU32,
    /// The number of pieces of work that have not completed.
    pub in_flight: AtomicU32,
    /// GPU time of completed work, in nanoseconds.
    pub reported: AtomicU64,
    /// Number of pieces of work in `reported`.
    pub pieces: AtomicU64,
    /// The typical GPU time of a piece of work, in nanoseconds.
    pub typical: AtomicU64,
    /// The start of the oldest piece of work in flight, in nanoseconds of [`now`], or 0.
    pub oldest: AtomicU64,
}

/// The layout.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Layout {
    /// Written by the arbiter: not 0 while any gate is not [`OPEN`].
    any: AtomicU32,
    slots: [Slot; MAX_GPUS],
}

const _: () = assert!(size_of::<Layout>() <= BYTES);

/// A mapping of the page.
///
/// # Invariants
///
/// `layout` is a shared mapping, for as long as the value lives, of a file of [`BYTES`] bytes that cannot shrink.
#[derive(Debug)]
pub struct Page {
    layout: *const Layout,
}

// SAFETY: all fields of the page are atomic, and it stays mapped for as long as the value lives.
unsafe impl Send for Page {}
// SAFETY: all fields of the page are atomic, so several threads may use them at once.
unsafe impl Sync for Page {}

impl Page {
    /// Creates a page, and returns its file for others.
    pub fn create() -> io::Result<(Self, File)> {
        let file = files::memory_file(c"cuda-share")?;
        file.set_len(BYTES as u64)?;
        files::add_seals(&file, files::FIXED_LENGTH)?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps a page that another process has created.
    ///
    /// Errors: the file has another size, or could be shortened, which would end this process on a read.
    pub fn map(file: &File) -> io::Result<Self> {
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed || file.metadata()?.len() != BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a sealed file of 4096 bytes"));
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file of that length, which cannot shrink (checked above).
        let layout =
            unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, file.as_raw_fd(), 0) };
        if layout == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { layout: layout.cast_const().cast() })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: by the invariant. Every bit pattern is valid, and other processes write its atomics only.
        unsafe { &*self.layout }
    }

    /// Returns the GPUs.
    pub fn slots(&self) -> &[Slot; MAX_GPUS] {
        &self.layout().slots
    }

    /// Returns whether all gates are open.
    pub fn is_open(&self) -> bool {
        self.layout().any.load(Ordering::Relaxed) == 0
    }

    /// Updates whether all gates are open.
    pub fn note(&self) {
        let any = self.slots().iter().any(|slot| slot.gate.load(Ordering::Relaxed) != OPEN);
        self.layout().any.store(u32::from(any), Ordering::Relaxed);
    }

    /// Opens all gates, because there is no arbiter any longer.
    pub fn open_all(&self) {
        self.slots().iter().for_each(|slot| slot.set(OPEN, 0));
        self.note();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own; references to it do not outlive the value.
        unsafe { libc::munmap(self.layout.cast_mut().cast(), BYTES) };
    }
}

impl Slot {
    /// Returns the GPU's UUID.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        let [low, high] = [0, 1].map(|word| self.uuid[word].load(Ordering::Acquire).to_le_bytes());
        let uuid: [u8; 16] = std::array::from_fn(|at| if at < 8 { low[at] } else { high[at - 8] });
        (uuid != [0; 16]).then_some(uuid)
    }

    /// Publishes the GPU's UUID.
    pub fn set_uuid(&self, uuid: [u8; 16]) {
        let (words, _) = uuid.as_chunks::<8>();
        // The first word is written last, because readers wait for it.
        for word in [1, 0] {
            self.uuid[word].store(u64::from_le_bytes(words[word]), Ordering::Release);
        }
    }

    /// Sets the gate, and wakes the threads that wait there.
    pub fn set(&self, gate: u32, until: u64) {
        self.until.store(until, Ordering::Relaxed);
        if self.gate.swap(gate, Ordering::Release) == HOLD && gate != HOLD {
            // SAFETY: the address is that of a mapped word; the kernel only looks for those that wait at it.
            unsafe { libc::syscall(libc::SYS_futex, self.gate.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX) };
        }
    }

    /// Waits until the gate may have left [`HOLD`], for at most `patience`.
    pub fn wait(&self, patience: Duration) {
        let patience = libc::timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        // SAFETY: the address is that of a mapped word, and the time is a local.
        unsafe {
            libc::syscall(libc::SYS_futex, self.gate.as_ptr(), libc::FUTEX_WAIT, HOLD, &raw const patience);
        }
    }
}

/// Returns nanoseconds of a clock that all processes of the host share.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_are_one_page() {
        let (page, file) = Page::create().unwrap();
        let other = Page::map(&file).unwrap();
        assert!(other.is_open() && other.slots()[3].uuid().is_none());
        page.slots()[3].set_uuid([7; 16]);
        assert_eq!(other.slots()[3].uuid(), Some([7; 16]));
        other.slots()[3].set(HOLD, 5);
        other.note();
        assert!(!page.is_open());
        let waiter = std::thread::spawn(move || {
            while page.slots()[3].gate.load(Ordering::Acquire) == HOLD {
                page.slots()[3].wait(Duration::from_secs(60));
            }
            page.slots()[3].until.load(Ordering::Relaxed)
        });
        other.slots()[3].set(GO, 9);
        assert_eq!(waiter.join().unwrap(), 9);
        other.open_all();
        assert!(other.is_open());
    }

    #[test]
    fn files_that_could_end_the_arbiter_are_refused() {
        let file = files::memory_file(c"unsealed").unwrap();
        file.set_len(BYTES as u64).unwrap();
        assert!(Page::map(&file).is_err());
        file.set_len(1).unwrap();
        files::add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Page::map(&file).is_err());
    }
}
