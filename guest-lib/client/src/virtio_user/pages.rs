// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Which of the program's pages lie in the shared memfd, so that the worker can map the very same ones.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::transport::MemEntry;

use super::memory::{RamRange, SharedRam};
use super::scattered::Scattered;
use crate::ClientError;
use crate::transport::UserMemory;

/// A stretch of the program's addresses that maps a stretch of the memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    bytes: usize,
    offset: u64,
    /// Number of adoptions; 0 for pages of [`SharedPages::map`].
    users: u32,
}

/// The runs by address; they do not overlap.
#[derive(Debug, Default)]
struct Runs(BTreeMap<usize, Run>);

impl Runs {
    /// Splits the run that `address` lies inside of, so that a run begins there.
    fn split(&mut self, address: usize) {
        let Some((&start, run)) = self.0.range_mut(..address).next_back() else { return };
        let head = address - start;
        if head >= run.bytes {
            return;
        }
        let tail = Run { bytes: run.bytes - head, offset: run.offset + head as u64, users: run.users };
        run.bytes = head;
        self.0.insert(address, tail);
    }

    /// The stretches of `memory` that no run covers.
    fn gaps(&self, memory: UserMemory) -> Vec<UserMemory> {
        let end = memory.address + memory.bytes;
        let mut gaps = Vec::new();
        let mut at = memory.address;
        for (&start, run) in self.0.range(..end) {
            if start + run.bytes <= at {
                continue;
            }
            if start > at {
                gaps.push(UserMemory { address: at, bytes: start - at });
            }
            at = at.max(start + run.bytes);
        }
        if at < end {
            gaps.push(UserMemory { address: at, bytes: end - at });
        }
        gaps
    }

    /// The memfd's stretches behind `memory`, if all of it lies there.
    fn locate(&self, memory: UserMemory) -> Option<Vec<RamRange>> {
        let end = memory.address.checked_add(memory.bytes)?;
        let mut at = memory.address;
        let mut found = Vec::new();
        while at < end {
            let (&start, run) = self.0.range(..=at).next_back()?;
            let skip = at - start;
            if skip >= run.bytes {
                return None;
            }
            let bytes = (run.bytes - skip).min(end - at);
            found.push(RamRange { offset: run.offset + skip as u64, bytes: bytes as u64 });
            at += bytes;
        }
        Some(found)
    }
}

/// The program's pages that are pages of the memfd.
#[derive(Debug, Default)]
pub struct SharedPages {
    /// Buffers of benchmarks.
    pub scattered: Scattered,
    runs: Mutex<Runs>,
    /// The adopted stretches, for [`SharedPages::part_from_parent`], which cannot take the lock.
    ///
    /// Invariant: null, or a box that `publish` made; it is freed only after another took its place.
    adopted: AtomicPtr<Vec<UserMemory>>,
}

impl SharedPages {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a later child what is adopted.
    fn publish(&self, runs: &Runs) {
        let adopted = runs.0.iter().filter(|(_, run)| run.users > 0);
        let list: Vec<_> = adopted.map(|(&address, run)| UserMemory { address, bytes: run.bytes }).collect();
        let old = self.adopted.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: by the invariant it is a box; this thread, holding the lock, was the only one that
            // could take it out, and a fork that happens now finds the new one.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// In the child of a fork: gives the child its own copies of adopted pages. What the parent writes between
    /// the fork and the copy is seen by the child.
    pub fn part_from_parent(&self) {
        // SAFETY: by the invariant it is null or a box, of which the child has its own copy.
        let Some(list) = (unsafe { self.adopted.load(Ordering::Acquire).as_ref() }) else { return };
        for &memory in list {
            // The error has no receiver: such a page stays shared.
            let _ = make_private(memory);
        }
    }

    /// Maps fresh pages of the memfd at `memory`, which replaces what is there.
    pub fn map(&self, ram: &SharedRam, memory: UserMemory) -> Result<(), ClientError> {
        let range = ram.allocate(memory.bytes)?;
        if let Err(error) = map_shared(ram, memory, range.offset) {
            ram.give_back(range);
            return Err(error.into());
        }
        // A forked child must not share the pages: the GPU writes to them for the parent. A hint only.
        // SAFETY: the range was mapped just above.
        unsafe { libc::madvise(memory.address as *mut _, memory.bytes, libc::MADV_DONTFORK) };
        self.runs().0.insert(memory.address, Run { bytes: memory.bytes, offset: range.offset, users: 0 });
        Ok(())
    }

    /// Undoes [`SharedPages::map`]; the addresses stay reserved.
    pub fn unmap(&self, ram: &SharedRam, memory: UserMemory) {
        let run = self.runs().0.remove(&memory.address);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the range was mapped by `map`, and the caller uses it no more.
        let at = unsafe { libc::mmap(memory.address as *mut _, memory.bytes, libc::PROT_NONE, flags, -1, 0) };
        // Pages that stay mapped must not be handed out again.
        if let (Some(run), true) = (run, at != libc::MAP_FAILED) {
            ram.give_back(RamRange { offset: run.offset, bytes: run.bytes as u64 });
        }
    }

    /// Moves the pages of `memory` into the memfd, contents unchanged; pages that are there already stay.
    ///
    /// Writes of other threads to such a page while it moves are lost: a program that registers memory while other
    /// threads write to it must use the device node. Pages of the caller's own stack that are in use are refused.
    pub fn adopt(&self, ram: &SharedRam, memory: UserMemory) -> Result<(), ClientError> {
        if near_stack_pointer(memory) || !all_private_and_writable(memory)? {
            return Err(ClientError::Fault);
        }
        let mut runs = self.runs();
        runs.split(memory.address);
        runs.split(memory.address + memory.bytes);
        for gap in runs.gaps(memory) {
            let range = ram.allocate(gap.bytes)?;
            // SAFETY: `gap` is readable, private memory of the program; the range is new and ours.
            unsafe {
                std::ptr::copy_nonoverlapping(gap.address as *const u8, ram.at(range.offset), gap.bytes);
            }
            if let Err(error) = map_shared(ram, gap, range.offset) {
                ram.give_back(range);
                return Err(error.into());
            }
            runs.0.insert(gap.address, Run { bytes: gap.bytes, offset: range.offset, users: 0 });
        }
        for (_, run) in runs.0.range_mut(memory.address..memory.address + memory.bytes) {
            run.users += 1;
        }
        self.publish(&runs);
        Ok(())
    }

    /// Undoes one [`SharedPages::adopt`]: pages without a user become private again.
    pub fn release(&self, ram: &SharedRam, memory: UserMemory) {
        let mut runs = self.runs();
        runs.split(memory.address);
        runs.split(memory.address + memory.bytes);
        let mut unused = Vec::new();
        for (&address, run) in runs.0.range_mut(memory.address..memory.address + memory.bytes) {
            run.users = run.users.saturating_sub(1);
            if run.users == 0 {
                unused.push((address, *run));
            }
        }
        for (address, run) in unused {
            match make_private(UserMemory { address, bytes: run.bytes }) {
                Ok(()) => {
                    runs.0.remove(&address);
                    ram.give_back(RamRange { offset: run.offset, bytes: run.bytes as u64 });
                }
                // Harmless: it stays shared, with no other process.
                Err(error) => log::debug!("Cannot make memory private again: {error}"),
            }
        }
        self.publish(&runs);
    }

    /// Returns whether all of `memory` is in the memfd.
    pub fn hold(&self, memory: UserMemory) -> bool {
        self.scattered.hold(memory) || self.runs().locate(memory).is_some()
    }

    /// The entries of `memory` for the device, if all of it is in the memfd.
    pub fn entries(&self, memory: UserMemory) -> Option<Vec<MemEntry>> {
        if let Some(entries) = self.scattered.entries(memory) {
            return Some(entries);
        }
        let ranges = self.runs().locate(memory)?;
        Some(ranges.into_iter().flat_map(|range| entries_of(range.guest_address(), range.bytes)).collect())
    }
}

/// Entries for contiguous memory: their lengths have 32 bits.
pub fn entries_of(address: u64, bytes: u64) -> impl Iterator<Item = MemEntry> {
    const PIECE: u64 = 1 << 30;
    (0..bytes.div_ceil(PIECE)).map(move |i| MemEntry {
        addr: address + i * PIECE,
        bytes: (bytes - i * PIECE).min(PIECE) as u32,
        reserved: 0,
    })
}

/// Maps the stretch of the memfd at `offset` over `memory`.
pub fn map_shared(ram: &SharedRam, memory: UserMemory, offset: u64) -> io::Result<()> {
    // SAFETY: the caller owns the addresses (a reservation, or private memory whose contents were copied to
    // `offset`); the offset lies within the memfd.
    let at = unsafe {
        libc::mmap(
            memory.address as *mut _,
            memory.bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            ram.fd(),
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Replaces shared pages by private ones with the same contents, in one step.
fn make_private(memory: UserMemory) -> io::Result<()> {
    // SAFETY: a new mapping; then its pages replace those of `memory`, which the program goes on using and
    // which hold the same bytes.
    unsafe {
        let copy = libc::mmap(
            std::ptr::null_mut(),
            memory.bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if copy == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(memory.address as *const u8, copy.cast(), memory.bytes);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let to = memory.address as *mut libc::c_void;
        if libc::mremap(copy, memory.bytes, memory.bytes, flags, to) == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            libc::munmap(copy, memory.bytes);
            return Err(error);
        }
    }
    Ok(())
}

/// Returns whether the stack frames in use may be in `memory`: they change while it is copied.
fn near_stack_pointer(memory: UserMemory) -> bool {
    const DEPTH: usize = 64 << 10;
    let here = 0u8;
    let pointer = &raw const here as usize;
    memory.address < pointer + 1024 && memory.address + memory.bytes > pointer.saturating_sub(DEPTH)
}

/// Returns whether all of `memory` is mapped readable, writable and private: moving shared memory would separate it
/// from the processes that share it.
fn all_private_and_writable(memory: UserMemory) -> io::Result<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let end = memory.address + memory.bytes;
    let mut at = memory.address;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else { continue };
        let Some((low, high)) = range.split_once('-') else { continue };
        let (Ok(low), Ok(high)) = (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16)) else {
            continue;
        };
        if high <= at {
            continue;
        }
        let ours = line.contains("/memfd:virtio-cuda");
        if low > at || !permissions.starts_with("rw") || !(permissions.ends_with('p') || ours) {
            return Ok(false);
        }
        at = high;
        if at >= end {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn anonymous(pages: usize) -> UserMemory {
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        UserMemory { address: at as usize, bytes: pages * PAGE }
    }

    fn part(memory: UserMemory, first: usize, pages: usize) -> UserMemory {
        UserMemory { address: memory.address + first * PAGE, bytes: pages * PAGE }
    }

    #[test]
    fn adopted_pages_keep_their_contents_and_are_shared() {
        let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
        let memory = anonymous(4);
        let first = memory.address as *mut u8;
        // SAFETY: the test's own memory.
        unsafe { first.add(PAGE).write(42) };
        pages.adopt(&ram, memory).expect("adopted");
        let entries = pages.entries(part(memory, 1, 2)).expect("located");
        let offset: u64 = entries[0].addr - super::super::memory::RAM_BASE;
        // SAFETY: `first` is the test's own memory; the offset was allocated for its pages.
        unsafe {
            assert_eq!(ram.at(offset).read(), 42);
            ram.at(offset).write(43);
            assert_eq!(first.add(PAGE).read_volatile(), 43, "both see the same page");
        }
        pages.release(&ram, memory);
        assert!(pages.entries(memory).is_none());
        // SAFETY: the test's own memory: `release` leaves private pages there.
        assert_eq!(unsafe { first.add(PAGE).read_volatile() }, 43, "contents stay");
    }

    #[test]
    fn overlapping_adoptions_are_counted_page_by_page() {
        let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
        let memory = anonymous(6);
        pages.adopt(&ram, part(memory, 0, 3)).expect("adopted");
        pages.adopt(&ram, part(memory, 2, 3)).expect("adopted");
        assert!(pages.entries(part(memory, 0, 5)).is_some());
        pages.release(&ram, part(memory, 0, 3));
        assert!(pages.entries(part(memory, 0, 1)).is_none());
        assert!(pages.entries(part(memory, 2, 3)).is_some(), "the second one still holds page 2");
        pages.release(&ram, part(memory, 2, 3));
        assert!(pages.entries(part(memory, 2, 1)).is_none());
    }

    #[test]
    fn shared_and_missing_memory_is_refused() {
        let (ram, pages) = (SharedRam::new().expect("memfd"), SharedPages::default());
        assert!(pages.adopt(&ram, UserMemory { address: 0x1000, bytes: PAGE }).is_err());
        let on_stack = 0u8;
        let address = (&raw const on_stack as usize) & !(PAGE - 1);
        assert!(pages.adopt(&ram, UserMemory { address, bytes: PAGE }).is_err());
    }

    #[test]
    fn long_memory_becomes_several_entries() {
        let entries: Vec<_> = entries_of(0x1000, (2 << 30) + 5).map(|e| (e.addr, e.bytes)).collect();
        assert_eq!(entries, [(0x1000, 1 << 30), (0x4000_1000, 1 << 30), (0x8000_1000, 5)]);
    }
}
