// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory as the daemon maps it, and its dirty log for live migration.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use vhost_user_backend::bitmap::BitmapMmapRegion;
use virtio_cuda_protocol::transport::MemEntry;
use vm_memory::bitmap::Bitmap;
use vm_memory::{
    FileOffset, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestMemoryRegion,
};

use crate::sessions::link::Region;

/// One state of guest memory.
pub type Memory = GuestMemoryMmap<BitmapMmapRegion>;
/// Guest memory that the VMM replaces.
pub type SharedMemory = GuestMemoryAtomic<Memory>;
/// A state of guest memory, held mapped.
pub type Snapshot = <SharedMemory as GuestAddressSpace>::T;

/// A file of guest memory, as long as anybody has it open: its device and number.
pub type FileId = (u64, u64);

/// The files that back `memory`.
pub fn files_of(memory: &Memory) -> HashSet<FileId> {
    let id = |file: &FileOffset| file.file().metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    memory.iter().filter_map(|region| id(region.file_offset()?)).collect()
}

/// The regions as a worker gets them: where each lies, and the file that it maps.
#[derive(Clone, Debug, Default)]
pub struct MemoryTable {
    /// Each region and its file.
    pub regions: Vec<(Region, FileOffset)>,
}

impl MemoryTable {
    /// The table of `memory`. Regions that no file backs cannot be shared and are left out.
    pub fn of(memory: &Memory) -> Arc<Self> {
        let regions = memory
            .iter()
            .filter_map(|region| {
                let file = region.file_offset()?.clone();
                let place = Region {
                    guest_addr: region.start_addr().0,
                    bytes: region.len(),
                    file_offset: file.start(),
                };
                Some((place, file))
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
