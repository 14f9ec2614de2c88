// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory in the daemon's mapping, and its dirty log for live migration.

use std::collections::HashSet;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use rustix::fs::{FsWord, SealFlags, fcntl_add_seals, fcntl_get_seals, fstatfs};
use vhost_user_backend::bitmap::BitmapMmapRegion;
use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};
use vm_memory::bitmap::Bitmap;
use vm_memory::{
    FileOffset, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestMemoryRegion,
};

use crate::args::GuestPages;
use crate::sessions::link::Region;

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

/// Returns the files that back `memory`.
pub fn files_of(memory: &Memory) -> HashSet<FileId> {
    let id = |file: &FileOffset| file.file().metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    memory.iter().filter_map(|region| id(region.file_offset()?)).collect()
}

/// Protects the files of `memory` before they are shared with workers. A worker cannot shorten a file, which would
/// end the VMM. Unless `pages` gives workers all of memory, it also cannot open a file that only one of its threads
/// has (through `/proc`). Returns the error of a failed protection. Files on a file system keep their permissions and
/// have no seals.
pub fn protect(memory: &Memory, pages: GuestPages) -> io::Result<()> {
    let mut result = Ok(());
    for backing in memory.iter().filter_map(GuestMemoryRegion::file_offset) {
        result = result.and(seal(backing.file()));
        if pages != GuestPages::All {
            result = result.and(close_to_others(backing.file()));
        }
    }
    result
}

fn seal(file: &File) -> io::Result<()> {
    // Fails if the file is sealed against further seals. Then the required one may be among them.
    let added = fcntl_add_seals(file, SealFlags::SHRINK);
    if fcntl_get_seals(file)?.contains(SealFlags::SHRINK) { Ok(()) } else { Ok(added?) }
}

/// Removes the permissions of an unnamed file. A process with a descriptor does not need them.
fn close_to_others(file: &File) -> io::Result<()> {
    if file.metadata()?.nlink() == 0 {
        file.set_permissions(Permissions::from_mode(0o0))?;
    }
    Ok(())
}

/// Returns true if the memory has a file of which only huge pages can be mapped, and not the pages that a process
/// names.
pub fn has_huge_pages_only(memory: &Memory) -> bool {
    memory
        .iter()
        .filter_map(GuestMemoryRegion::file_offset)
        .any(|backing| page_bytes_of(backing.file()) > PAGE_BYTES)
}

/// Returns the page size of a file in bytes: the smallest part that can be mapped.
fn page_bytes_of(file: &File) -> u64 {
    let about = fstatfs(file).ok().filter(|about| about.f_type == HUGETLBFS);
    about.map_or(PAGE_BYTES, |about| about.f_bsize as u64)
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
    /// True if the worker gets the file, and maps all of the region. Otherwise it maps pages that its process names.
    pub whole: bool,
}

impl MemoryTable {
    /// Returns the table of `memory`. Regions without a file are left out, and so are those of huge pages where
    /// workers get only named pages.
    pub fn of(memory: &Memory, pages: GuestPages) -> Arc<Self> {
        let regions = memory
            .iter()
            .filter_map(|region| {
                let file = region.file_offset()?.clone();
                let page_bytes = page_bytes_of(file.file());
                let whole = match pages {
                    GuestPages::Auto => page_bytes > PAGE_BYTES,
                    // A mapping of one page would also map all pages around it.
                    GuestPages::Named if page_bytes > PAGE_BYTES => return None,
                    GuestPages::Named => false,
                    GuestPages::All => true,
                };
                let region = Region {
                    guest_addr: region.start_addr().0,
                    bytes: region.len(),
                    file_offset: file.start(),
                    page_bytes,
                };
                Some(SharedRegion { region, file, whole })
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
        protect(&memory, GuestPages::All).unwrap();
        protect(&memory, GuestPages::All).unwrap();
        assert!(file.set_len(4096).is_err());
        file.set_len(8192 * 2).unwrap();
        let (memory, file) = memory_of(MemfdFlags::empty());
        assert!(protect(&memory, GuestPages::All).is_err(), "a file that cannot be sealed is reported");
        file.set_len(4096).unwrap();
    }

    #[test]
    fn files_of_huge_pages_are_shared_whole_or_not_at_all() {
        let whole = |memory: &Memory, pages| -> Vec<bool> {
            MemoryTable::of(memory, pages).regions.iter().map(|shared| shared.whole).collect()
        };
        let (memory, _file) = memory_of(MemfdFlags::empty());
        assert!(!has_huge_pages_only(&memory));
        assert_eq!(whole(&memory, GuestPages::Auto), [false]);
        assert_eq!(whole(&memory, GuestPages::Named), [false]);
        assert_eq!(whole(&memory, GuestPages::All), [true]);
        let file = File::from(memfd_create("guest", MemfdFlags::HUGETLB).unwrap());
        let bytes = page_bytes_of(&file);
        assert!(bytes > PAGE_BYTES);
        file.set_len(bytes).unwrap();
        let ranges = [(GuestAddress(0), bytes as usize, Some(FileOffset::new(file, 0)))];
        // If this host has no huge pages, nothing can be mapped.
        let Ok(memory) = Memory::from_ranges_with_files(ranges) else { return };
        assert!(has_huge_pages_only(&memory));
        assert_eq!(whole(&memory, GuestPages::Auto), [true]);
        assert_eq!(whole(&memory, GuestPages::Named), []);
        assert_eq!(whole(&memory, GuestPages::All), [true]);
    }

    #[test]
    fn memory_of_which_pages_are_named_has_no_rights() {
        let (memory, file) = memory_of(MemfdFlags::ALLOW_SEALING);
        protect(&memory, GuestPages::Auto).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0);
    }
}
