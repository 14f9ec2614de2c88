// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory in the daemon's mapping, and its dirty log for live migration.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use clap::ValueEnum;
use rustix::fs::{FsWord, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs};
use vhost_cuda_common::link::Region;
use vhost_user_backend::bitmap::BitmapMmapRegion;
use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};
use vm_memory::bitmap::Bitmap;
use vm_memory::{
    FileOffset, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestMemoryRegion,
};

/// The guest memory that a worker can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuestPages {
    /// As `Named` where that is possible, otherwise as `All`.
    Auto,
    /// The pages that the session's process has named.
    Named,
    /// All memory of its virtual machine.
    All,
}

/// `HUGETLBFS_MAGIC`.
const HUGETLBFS: FsWord = 0x9584_58f6;

/// One state of guest memory.
pub type Memory = GuestMemoryMmap<BitmapMmapRegion>;
/// Guest memory that the VMM replaces.
pub type SharedMemory = GuestMemoryAtomic<Memory>;
/// A state of guest memory, held mapped.
pub type Snapshot = <SharedMemory as GuestAddressSpace>::T;

/// A file of guest memory, valid as long as it is open: its device and inode.
pub type FileId = (u64, u64);

/// Files of guest memory, open for reading only.
pub type ReadOnlyFiles = HashMap<FileId, Arc<File>>;

/// Returns the files that back `memory`.
pub fn files_of(memory: &Memory) -> HashSet<FileId> {
    memory.iter().filter_map(|region| id_of(region.file_offset()?.file()).ok()).collect()
}

/// Returns the id of an open file.
pub fn id_of(file: &File) -> io::Result<FileId> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Protects the files of `memory` before they are shared with workers: a worker cannot shorten a file, which would end
/// the VMM. Returns the error of a failed protection. Files on a file system have no seals.
pub fn protect(memory: &Memory) -> io::Result<()> {
    let mut result = Ok(());
    for backing in memory.iter().filter_map(GuestMemoryRegion::file_offset) {
        result = result.and(seal(backing.file()));
    }
    result
}

/// Opens the files of `memory` again, for reading only, if they are not in `known`: a worker that maps from these
/// cannot make the mapping writable. A file that cannot be opened is itself in the result, with the error beside it.
pub fn open_read_only(memory: &Memory, known: &ReadOnlyFiles) -> (ReadOnlyFiles, io::Result<()>) {
    let (mut files, mut result) = (ReadOnlyFiles::new(), Ok(()));
    for backing in memory.iter().filter_map(GuestMemoryRegion::file_offset) {
        let file = backing.arc();
        let Ok(id) = id_of(file) else { continue };
        let known = known.get(&id).filter(|known| !Arc::ptr_eq(known, file));
        files.entry(id).or_insert_with(|| match known {
            Some(known) => known.clone(),
            None => reopen(file).map_or_else(
                |error| {
                    result = Err(error);
                    file.clone()
                },
                Arc::new,
            ),
        });
    }
    (files, result)
}

/// Opens a file again for reading. Its permissions count: those of unnamed memory (memfd) are everybody's.
fn reopen(file: &File) -> io::Result<File> {
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    match id_of(&again)? == id_of(file)? {
        true => Ok(again),
        false => Err(io::Error::other("it is another file now")),
    }
}

fn seal(file: &File) -> io::Result<()> {
    // Fails if the file is sealed against further seals. Then the required one may be among them.
    let added = fcntl_add_seals(file, SealFlags::SHRINK);
    if fcntl_get_seals(file)?.contains(SealFlags::SHRINK) { Ok(()) } else { Ok(added?) }
}

/// Returns true if the memory has a file of which only huge pages can be mapped, and not the pages that a process
/// names.
pub fn has_huge_pages_only(memory: &Memory) -> bool {
    memory
        .iter()
        .filter_map(GuestMemoryRegion::file_offset)
        .any(|backing| page_bytes_of(backing.file()).is_ok_and(|bytes| bytes > PAGE_BYTES))
}

/// Returns the page size of a file in bytes: the smallest part that can be mapped.
fn page_bytes_of(file: &File) -> io::Result<u64> {
    let about = fstatfs(file)?;
    Ok(if about.f_type == HUGETLBFS { about.f_bsize as u64 } else { PAGE_BYTES })
}

/// The regions as a worker gets them.
#[derive(Clone, Debug, Default)]
pub struct MemoryTable {
    /// Each region.
    pub regions: Vec<SharedRegion>,
}

/// A region as a worker gets it.
#[derive(Clone, Debug)]
pub struct SharedRegion {
    /// Its position.
    pub region: Region,
    /// The file that backs it.
    pub file: FileOffset,
    /// The same file, open for reading only, if the worker maps pages that its process names. Otherwise it gets the
    /// file, and maps all of the region.
    pub read_only: Option<Arc<File>>,
}

impl MemoryTable {
    /// Returns the table of `memory`. Regions without a file are left out, those of huge pages where workers get only
    /// named pages, and those whose file is not in `files` yet: another table will follow.
    pub fn of(memory: &Memory, pages: GuestPages, files: &ReadOnlyFiles) -> Arc<Self> {
        let regions = memory
            .iter()
            .filter_map(|region| {
                let file = region.file_offset()?.clone();
                // Of a file of unknown pages no single one may be mapped.
                let page_bytes = page_bytes_of(file.file()).ok()?;
                let whole = match pages {
                    GuestPages::Auto => page_bytes > PAGE_BYTES,
                    // A mapping of one page would also map all pages around it.
                    GuestPages::Named if page_bytes > PAGE_BYTES => return None,
                    GuestPages::Named => false,
                    GuestPages::All => true,
                };
                let read_only =
                    if whole { None } else { Some(files.get(&id_of(file.file()).ok()?)?.clone()) };
                let region = Region {
                    guest_addr: region.start_addr().0,
                    bytes: region.len(),
                    file_offset: file.start(),
                    page_bytes,
                    number: 0,
                };
                Some(SharedRegion { region, file, read_only })
            })
            .collect();
        Arc::new(Self { regions })
    }
}

/// Marks `entries` as written in the dirty log, if one is set.
pub fn mark_written(memory: &Memory, entries: &[MemEntry]) {
    for entry in entries {
        let mut addr = entry.addr;
        let mut left = u64::from(entry.bytes);
        while left > 0 {
            let Some((region, start)) = memory.to_region_addr(GuestAddress(addr)) else { break };
            let bytes = left.min(region.len() - start.0);
            region.bitmap().mark_dirty(start.0 as usize, bytes as usize);
            addr += bytes;
            left -= bytes;
        }
    }
}

/// Marks all memory as written in the dirty log, if one is set.
pub fn mark_all_written(memory: &Memory) {
    for region in memory.iter() {
        region.bitmap().mark_dirty(0, region.len() as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memory_of(flags: MemfdFlags) -> (Memory, File) {
        let file = File::from(memfd_create("guest", flags).unwrap());
        file.set_len(8192).unwrap();
        let backing = FileOffset::new(file.try_clone().unwrap(), 0);
        (Memory::from_ranges_with_files([(GuestAddress(0), 8192, Some(backing))]).unwrap(), file)
    }

    #[test]
    fn memory_is_sealed_against_being_cut() {
        let (memory, file) = memory_of(MemfdFlags::ALLOW_SEALING);
        protect(&memory).unwrap();
        protect(&memory).unwrap();
        assert!(file.set_len(4096).is_err());
        file.set_len(8192 * 2).unwrap();
        let (memory, file) = memory_of(MemfdFlags::empty());
        assert!(protect(&memory).is_err(), "a file that cannot be sealed is reported");
        file.set_len(4096).unwrap();
    }

    #[test]
    fn files_of_huge_pages_are_shared_whole_or_not_at_all() {
        let whole = |memory: &Memory, pages| -> Vec<bool> {
            let (files, result) = open_read_only(memory, &ReadOnlyFiles::new());
            result.unwrap();
            let table = MemoryTable::of(memory, pages, &files);
            table.regions.iter().map(|shared| shared.read_only.is_none()).collect()
        };
        let (memory, _file) = memory_of(MemfdFlags::empty());
        assert!(!has_huge_pages_only(&memory));
        assert_eq!(whole(&memory, GuestPages::Auto), [false]);
        assert_eq!(whole(&memory, GuestPages::Named), [false]);
        assert_eq!(whole(&memory, GuestPages::All), [true]);
        let file = File::from(memfd_create("guest", MemfdFlags::HUGETLB).unwrap());
        let bytes = page_bytes_of(&file).unwrap();
        assert!(bytes > PAGE_BYTES);
        file.set_len(bytes).unwrap();
        let ranges = [(GuestAddress(0), bytes as usize, Some(FileOffset::new(file, 0)))];
        // If this host has no huge pages, nothing can be mapped.
        let Ok(memory) = Memory::from_ranges_with_files(ranges) else { return };
        assert!(has_huge_pages_only(&memory));
        assert_eq!(whole(&memory, GuestPages::Auto), [true]);
        assert_eq!(whole(&memory, GuestPages::Named), Vec::<bool>::new());
        assert_eq!(whole(&memory, GuestPages::All), [true]);
    }

    #[test]
    fn files_are_opened_for_reading_once_and_where_that_is_allowed() {
        let (memory, file) = memory_of(MemfdFlags::ALLOW_SEALING);
        let (files, result) = open_read_only(&memory, &ReadOnlyFiles::new());
        result.unwrap();
        let read_only = &files[&id_of(&file).unwrap()];
        let flags = rustix::fs::fcntl_getfl(&**read_only).unwrap();
        assert_eq!(flags & rustix::fs::OFlags::RWMODE, rustix::fs::OFlags::RDONLY);
        let (again, result) = open_read_only(&memory, &files);
        result.unwrap();
        assert!(Arc::ptr_eq(read_only, &again[&id_of(&file).unwrap()]));
        // A file that has not been opened is not shared yet.
        assert!(MemoryTable::of(&memory, GuestPages::Named, &ReadOnlyFiles::new()).regions.is_empty());
    }
}
