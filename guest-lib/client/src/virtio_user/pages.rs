// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's pages that the worker can map: those that lie in the shared memfd, and shared mappings of files that the
//! daemon has received.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_protocol::transport::MemEntry;

use super::adopted::{Adopted, AdoptedList, FreeNumbers, Number};
use super::exchange::{Shadows, make_private, move_back, move_into_file};
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
    /// Its entry in the list for forked children.
    adopted: Option<Number>,
}

/// The relation of a run to the mapping that the program made.
#[derive(Clone, Debug)]
enum Kind {
    /// The memfd's pages have taken the place of private ones, whose contents they have.
    Moved,
    /// The memfd's pages have taken the place of a read-only mapping of the file, from the offset on. They have the contents that
    /// the file had then.
    Copied(Arc<File>, u64),
    /// The memfd's pages have taken the place of a shared mapping that no other process uses, the file of which this process cannot
    /// open. The mapping is at this address meanwhile, and gets the contents when the run ends.
    Kept(usize),
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

impl Run {
    fn new(memory: UserMemory, offset: u64, kind: Kind, writable: bool) -> Self {
        Self { bytes: memory.bytes, offset, users: 0, kind, writable, adopted: None }
    }

    /// Returns the list's entry for the run at `address`, if a forked child needs one.
    fn for_child(&self, address: usize) -> Option<Adopted> {
        let original = match self.kind {
            Kind::File(_) => return None,
            Kind::Kept(original) => original,
            Kind::Moved | Kind::Copied(..) => 0,
        };
        let memory = UserMemory { address, bytes: self.bytes };
        Some(Adopted { memory, writable: self.writable, original })
    }
}

/// The runs by address; they do not overlap.
#[derive(Debug, Default)]
struct Runs {
    by_address: BTreeMap<usize, Run>,
    free: FreeNumbers,
    shadows: Shadows,
}

impl Runs {
    /// Splits the run that `address` lies inside of, so that a run begins there.
    fn split(&mut self, list: &AdoptedList, address: usize) {
        let Some((&start, run)) = self.by_address.range_mut(..address).next_back() else { return };
        let head = address - start;
        if head >= run.bytes {
            return;
        }
        let mut tail = Run { bytes: run.bytes - head, offset: run.offset + head as u64, ..run.clone() };
        match &mut tail.kind {
            Kind::Copied(_, offset) => *offset += head as u64,
            Kind::Kept(original) => *original += head,
            Kind::Moved | Kind::File(_) => {}
        }
        run.bytes = head;
        if let Some(number) = run.adopted {
            tail.adopted = tail.for_child(address).and_then(|tail| list.add(&mut self.free, tail));
            run.for_child(start).into_iter().for_each(|head| list.set(number, head));
        }
        self.by_address.insert(address, tail);
    }

    /// The stretches of `memory` that no run covers.
    fn gaps(&self, memory: UserMemory) -> Vec<UserMemory> {
        let end = memory.address + memory.bytes;
        let mut gaps = Vec::new();
        let mut at = memory.address;
        // The run that contains the beginning, and those that begin behind it.
        let before = self.by_address.range(..at).next_back();
        for (&start, run) in before.into_iter().chain(self.by_address.range(at..end)) {
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
            let (&start, run) = self.by_address.range(..=at).next_back()?;
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
    /// The adopted stretches, for [`SharedPages::part_from_parent`]. Changed under the lock of `runs`.
    adopted: AdoptedList,
}

impl SharedPages {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In the child of a fork: gives the child its own copies of adopted pages. The child sees writes of the parent between
    /// the fork and the copy.
    pub fn part_from_parent(&self) {
        for Adopted { memory, writable, original } in self.adopted.all() {
            // The error has no receiver: such a page stays shared.
            let _ = match original {
                0 => make_private(memory, writable),
                // SAFETY: the child has the parent's mappings, and the one at `original` is this library's.
                _ => unsafe { move_back(memory, original) },
            };
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
        self.runs().by_address.insert(memory.address, Run::new(memory, range.offset, Kind::Moved, true));
        Ok(())
    }

    /// Undoes [`SharedPages::map`]; the addresses stay reserved.
    pub fn unmap(&self, ram: &SharedRam, memory: UserMemory) {
        let run = self.runs().by_address.remove(&memory.address);
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
    /// program that registers memory while other threads write to it must use the device node. The daemon receives the file of a
    /// shared mapping, if the process has it open for reading and writing, or can open it. If not, a copy takes the place of a
    /// read-only mapping of a file on a disk, and of memory that no other process shares.
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
        let runs = &mut *runs;
        let ends = [memory.address, memory.address + memory.bytes];
        ends.iter().for_each(|&end| runs.split(&self.adopted, end));
        let mut new = Vec::new();
        let adopted = parts.iter().try_for_each(|part| {
            runs.gaps(part.memory).into_iter().try_for_each(|gap| {
                let mut run = adopt_part(ram, files, &part.of(gap))?;
                if let Some(adopted) = run.for_child(gap.address) {
                    run.adopted = self.adopted.add(&mut runs.free, adopted);
                }
                runs.by_address.insert(gap.address, run);
                new.push(gap.address);
                Ok(())
            })
        });
        match adopted {
            Ok(()) => runs.by_address.range_mut(ends[0]..ends[1]).for_each(|(_, run)| run.users += 1),
            Err(_) => self.give_back(runs, ram, files, new),
        }
        adopted
    }

    /// Undoes one [`SharedPages::adopt`]: mappings without a user become the program's own again.
    pub fn release(&self, ram: &SharedRam, files: &dyn FileRegions, memory: UserMemory) {
        let mut runs = self.runs();
        let ends = [memory.address, memory.address + memory.bytes];
        ends.iter().for_each(|&end| runs.split(&self.adopted, end));
        let mut unused = Vec::new();
        for (&address, run) in runs.by_address.range_mut(ends[0]..ends[1]) {
            run.users = run.users.saturating_sub(1);
            if run.users == 0 {
                unused.push(address);
            }
        }
        self.give_back(&mut runs, ram, files, unused);
    }

    /// Ends the runs at `addresses`.
    fn give_back(&self, runs: &mut Runs, ram: &SharedRam, files: &dyn FileRegions, addresses: Vec<usize>) {
        for address in addresses {
            let Some(run) = runs.by_address.remove(&address) else { continue };
            if let Err(error) = restore(UserMemory { address, bytes: run.bytes }, &run, &mut runs.shadows) {
                // Harmless: it stays shared, with no other process.
                log::debug!("Cannot make memory the program's own again: {error}");
                runs.by_address.insert(address, run);
                continue;
            }
            if let Some(number) = run.adopted {
                self.adopted.remove(&mut runs.free, number);
            }
            match run.kind {
                Kind::File(region) => {
                    Arc::into_inner(region).into_iter().for_each(|region| files.remove(region));
                }
                _ => ram.give_back(RamRange { offset: run.offset, bytes: run.bytes as u64 }),
            }
        }
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
    if !part.shared || part.is_own() {
        return move_pages(ram, part, Kind::Moved);
    }
    match part.backing() {
        Some(Backing::Writable(file)) => {
            let region = files.add(&file, offset, memory)?;
            let offset = region.range.offset;
            Ok(Run::new(memory, offset, Kind::File(Arc::new(region)), writable))
        }
        Some(Backing::ReadOnly(file)) => move_pages(ram, part, Kind::Copied(Arc::new(file), offset)),
        None if writable && part.is_only_here() => {
            let original = duplicate(memory)?;
            move_pages(ram, part, Kind::Kept(original)).inspect_err(|_| {
                // SAFETY: the mapping was made above, and nothing refers to it.
                unsafe { libc::munmap(original as *mut _, memory.bytes) };
            })
        }
        None => Err(ClientError::Fault),
    }
}

/// Maps what is mapped at `memory`, which must be shared, a second time.
fn duplicate(memory: UserMemory) -> io::Result<usize> {
    // SAFETY: with an old length of 0 the mapping stays, and the new one is at an address of the kernel's choice.
    let at = unsafe { libc::mremap(memory.address as *mut _, 0, memory.bytes, libc::MREMAP_MAYMOVE) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

/// Puts pages of the memfd in the place of a part, contents unchanged.
fn move_pages(ram: &SharedRam, part: &Part, kind: Kind) -> Result<Run, ClientError> {
    let Part { memory, writable, .. } = *part;
    let range = ram.allocate(memory.bytes)?;
    let (file, copy) = ((ram.fd(), range.offset), ram.at(range.offset));
    // SAFETY: the memory is readable (`parts`), and the program's; the range is new and ours.
    if let Err(error) = unsafe { move_into_file(memory, file, copy, writable) } {
        ram.give_back(range);
        return Err(error.into());
    }
    Ok(Run::new(memory, range.offset, kind, writable))
}

/// Gives the program a mapping of its own again, with the same contents.
fn restore(memory: UserMemory, run: &Run, shadows: &mut Shadows) -> io::Result<()> {
    match &run.kind {
        Kind::Moved => shadows.make_private(memory, run.writable),
        // SAFETY: the run holds the mapping since it was made.
        Kind::Kept(original) => unsafe { move_back(memory, *original) },
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

#[cfg(test)]
#[path = "pages_test.rs"]
mod tests;
