// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's pages that the worker can map: those that lie in the shared memfd, and shared mappings of files that the
//! daemon has received.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::transport::MemEntry;

use super::mappings::{Backing, Part, parts};
use super::memory::{RamRange, SharedRam};
use super::scattered::Scattered;
use crate::ClientError;
use crate::transport::UserMemory;

/// A stretch of the program's addresses that maps a stretch of guest memory.
#[derive(Clone, Debug)]
struct Run {
    bytes: usize,
    /// Offset in guest memory: in the memfd, or behind it for [`Kind::File`].
    offset: u64,
    /// Number of adoptions; 0 for pages of [`SharedPages::map`].
    users: u32,
    kind: Kind,
    /// True if the program may write there.
    writable: bool,
}

/// The relation of a run to the mapping that the program made.
#[derive(Clone, Debug)]
enum Kind {
    /// The memfd's pages have taken the place of private ones, whose contents they have.
    Moved,
    /// The memfd's pages have taken the place of a read-only mapping of the file, from the offset on. They have the contents that
    /// the file had then.
    Copied(Arc<File>, u64),
    /// The program's own mapping. The daemon has the file.
    File(Arc<FileRegion>),
}

/// A stretch of a file that is guest memory.
#[derive(Debug)]
pub struct FileRegion {
    /// Its place in guest memory, behind the memfd.
    pub range: RamRange,
    /// The address of a mapping of it in this process.
    pub address: u64,
    /// Its place in the file.
    pub file_offset: u64,
}

/// The part of the daemon that accepts files as guest memory.
pub trait FileRegions {
    /// Makes a stretch of a file guest memory; the process has it mapped at `memory`.
    fn add(&self, file: &File, offset: u64, memory: UserMemory) -> Result<FileRegion, ClientError>;

    /// Undoes [`FileRegions::add`].
    fn remove(&self, region: FileRegion);
}

/// Memory of which a forked child needs its own copy.
#[derive(Clone, Copy, Debug)]
struct Adopted {
    memory: UserMemory,
    writable: bool,
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
        let mut tail = Run { bytes: run.bytes - head, offset: run.offset + head as u64, ..run.clone() };
        if let Kind::Copied(_, offset) = &mut tail.kind {
            *offset += head as u64;
        }
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

    /// Returns the stretches of guest memory behind `memory`, if all of it lies there, and true if all may be written.
    fn locate(&self, memory: UserMemory) -> Option<(Vec<RamRange>, bool)> {
        let end = memory.address.checked_add(memory.bytes)?;
        let mut at = memory.address;
        let (mut found, mut writable) = (Vec::new(), true);
        while at < end {
            let (&start, run) = self.0.range(..=at).next_back()?;
            let skip = at - start;
            if skip >= run.bytes {
                return None;
            }
            let bytes = (run.bytes - skip).min(end - at);
            found.push(RamRange { offset: run.offset + skip as u64, bytes: bytes as u64 });
            writable &= run.writable;
            at += bytes;
        }
        Some((found, writable))
    }
}

/// The program's pages that the worker can map.
#[derive(Debug, Default)]
pub struct SharedPages {
    /// Buffers of benchmarks.
    pub scattered: Scattered,
    runs: Mutex<Runs>,
    /// The adopted stretches, for [`SharedPages::part_from_parent`], which cannot take the lock.
    ///
    /// Invariant: null, or a box that `publish` made; it is freed only after another took its place.
    adopted: AtomicPtr<Vec<Adopted>>,
}

impl SharedPages {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the adopted stretches for a later child.
    fn publish(&self, runs: &Runs) {
        let adopted = runs.0.iter().filter(|(_, run)| run.users > 0 && !matches!(run.kind, Kind::File(_)));
        let of_run = |(&address, run): (&usize, &Run)| Adopted {
            memory: UserMemory { address, bytes: run.bytes },
            writable: run.writable,
        };
        let list: Vec<_> = adopted.map(of_run).collect();
        let old = self.adopted.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: by the invariant it is a box; this thread, holding the lock, was the only one that
            // could take it out, and a fork that happens now finds the new one.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// In the child of a fork: gives the child its own copies of adopted pages. The child sees writes of the parent between
    /// the fork and the copy.
    pub fn part_from_parent(&self) {
        // SAFETY: by the invariant it is null or a box, of which the child has its own copy.
        let Some(list) = (unsafe { self.adopted.load(Ordering::Acquire).as_ref() }) else { return };
        for &Adopted { memory, writable } in list {
            // The error has no receiver: such a page stays shared.
            let _ = make_private(memory, writable);
        }
    }

    /// Maps fresh pages of the memfd at `memory`, in place of the mappings there.
    pub fn map(&self, ram: &SharedRam, memory: UserMemory) -> Result<(), ClientError> {
        let range = ram.allocate(memory.bytes)?;
        if let Err(error) = map_shared(ram, memory, range.offset) {
            ram.give_back(range);
            return Err(error.into());
        }
        // A forked child must not share the pages: the GPU writes to them for the parent. A hint only.
        // SAFETY: the range was mapped just above.
        unsafe { libc::madvise(memory.address as *mut _, memory.bytes, libc::MADV_DONTFORK) };
        let run =
            Run { bytes: memory.bytes, offset: range.offset, users: 0, kind: Kind::Moved, writable: true };
        self.runs().0.insert(memory.address, run);
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

    /// Lets the worker map the pages of `memory`; those that it can map already stay. `read_only`: for reading only.
    ///
    /// Private pages move into the memfd, contents unchanged. Writes of other threads to such a page while it moves are lost: a
    /// program that registers memory while other threads write to it must use the device node. Pages of the caller's own
    /// stack that are in use are refused. The daemon receives the file of a shared mapping, if the process has it open for
    /// reading and writing. If it does not, a copy takes the place of a read-only mapping of a file on a disk.
    pub fn adopt(
        &self,
        ram: &SharedRam,
        files: &dyn FileRegions,
        memory: UserMemory,
        read_only: bool,
    ) -> Result<(), ClientError> {
        let parts = parts(memory)?.ok_or(ClientError::Fault)?;
        if parts.iter().any(|part| !part.writable && !read_only) {
            return Err(ClientError::Fault);
        }
        let mut runs = self.runs();
        runs.split(memory.address);
        runs.split(memory.address + memory.bytes);
        let mut new = Vec::new();
        let adopted = parts.iter().try_for_each(|part| {
            runs.gaps(part.memory).into_iter().try_for_each(|gap| {
                let run = adopt_part(ram, files, &part.of(gap))?;
                runs.0.insert(gap.address, run);
                new.push(gap.address);
                Ok(())
            })
        });
        match adopted {
            Ok(()) => {
                let inside = memory.address..memory.address + memory.bytes;
                runs.0.range_mut(inside).for_each(|(_, run)| run.users += 1);
            }
            Err(_) => give_back(&mut runs, ram, files, new),
        }
        self.publish(&runs);
        adopted
    }

    /// Undoes one [`SharedPages::adopt`]: mappings without a user become the program's own again.
    pub fn release(&self, ram: &SharedRam, files: &dyn FileRegions, memory: UserMemory) {
        let mut runs = self.runs();
        runs.split(memory.address);
        runs.split(memory.address + memory.bytes);
        let mut unused = Vec::new();
        for (&address, run) in runs.0.range_mut(memory.address..memory.address + memory.bytes) {
            run.users = run.users.saturating_sub(1);
            if run.users == 0 {
                unused.push(address);
            }
        }
        give_back(&mut runs, ram, files, unused);
        self.publish(&runs);
    }

    /// Returns whether the worker can map all of `memory`.
    pub fn hold(&self, memory: UserMemory) -> bool {
        self.scattered.hold(memory) || self.runs().locate(memory).is_some()
    }

    /// Returns the entries of `memory` for the device, if the worker can map all of it, and true if the program may write all
    /// of it.
    pub fn entries(&self, memory: UserMemory) -> Option<(Vec<MemEntry>, bool)> {
        if let Some(entries) = self.scattered.entries(memory) {
            return Some((entries, true));
        }
        let (ranges, writable) = self.runs().locate(memory)?;
        let entries = ranges.into_iter().flat_map(|range| entries_of(range.guest_address(), range.bytes));
        Some((entries.collect(), writable))
    }
}

/// Lets the worker map a part of a mapping that it cannot map yet.
fn adopt_part(ram: &SharedRam, files: &dyn FileRegions, part: &Part) -> Result<Run, ClientError> {
    let Part { memory, writable, offset, .. } = *part;
    if !part.shared || part.own {
        return move_pages(ram, part, Kind::Moved);
    }
    match part.backing().ok_or(ClientError::Fault)? {
        Backing::Writable(file) => {
            let region = files.add(&file, offset, memory)?;
            let offset = region.range.offset;
            Ok(Run { bytes: memory.bytes, offset, users: 0, kind: Kind::File(Arc::new(region)), writable })
        }
        Backing::ReadOnly(file) => move_pages(ram, part, Kind::Copied(Arc::new(file), offset)),
    }
}

/// Puts pages of the memfd in the place of a part, contents unchanged.
fn move_pages(ram: &SharedRam, part: &Part, kind: Kind) -> Result<Run, ClientError> {
    let Part { memory, writable, .. } = *part;
    if near_stack_pointer(memory) {
        return Err(ClientError::Fault);
    }
    let range = ram.allocate(memory.bytes)?;
    // SAFETY: the memory is readable (`parts`), and the program's; the range is new and ours.
    unsafe {
        std::ptr::copy_nonoverlapping(memory.address as *const u8, ram.at(range.offset), memory.bytes);
    }
    if let Err(error) = map_over(memory, ram.fd(), range.offset, writable) {
        ram.give_back(range);
        return Err(error.into());
    }
    Ok(Run { bytes: memory.bytes, offset: range.offset, users: 0, kind, writable })
}

/// Ends the runs at `addresses`.
fn give_back(runs: &mut Runs, ram: &SharedRam, files: &dyn FileRegions, addresses: Vec<usize>) {
    for address in addresses {
        let Some(run) = runs.0.remove(&address) else { continue };
        if let Err(error) = restore(UserMemory { address, bytes: run.bytes }, &run) {
            // Harmless: it stays shared, with no other process.
            log::debug!("Cannot make memory the program's own again: {error}");
            runs.0.insert(address, run);
            continue;
        }
        match run.kind {
            Kind::File(region) => {
                Arc::into_inner(region).into_iter().for_each(|region| files.remove(region));
            }
            _ => ram.give_back(RamRange { offset: run.offset, bytes: run.bytes as u64 }),
        }
    }
}

/// Gives the program a mapping of its own again, with the same contents.
fn restore(memory: UserMemory, run: &Run) -> io::Result<()> {
    match &run.kind {
        Kind::Moved => make_private(memory, run.writable),
        Kind::Copied(file, offset) => map_over(memory, file.as_raw_fd(), *offset, false),
        Kind::File(_) => Ok(()),
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

/// Maps the stretch of the memfd at `offset` over `memory`, which the caller has reserved.
pub fn map_shared(ram: &SharedRam, memory: UserMemory, offset: u64) -> io::Result<()> {
    map_over(memory, ram.fd(), offset, true)
}

/// Maps the stretch of a file at `offset` over `memory`.
fn map_over(memory: UserMemory, file: RawFd, offset: u64, writable: bool) -> io::Result<()> {
    let (at, flags) = (memory.address as *mut libc::c_void, libc::MAP_SHARED | libc::MAP_FIXED);
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: the callers own the addresses: a reservation, or memory of the program whose contents the file has.
    let at = unsafe { libc::mmap(at, memory.bytes, protection, flags, file, offset as libc::off_t) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Replaces shared pages by private ones with the same contents, in one step.
fn make_private(memory: UserMemory, writable: bool) -> io::Result<()> {
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
        if !writable && libc::mprotect(copy, memory.bytes, libc::PROT_READ) != 0 {
            let error = io::Error::last_os_error();
            libc::munmap(copy, memory.bytes);
            return Err(error);
        }
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

#[cfg(test)]
#[path = "pages_test.rs"]
mod tests;
