// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory in the worker: the only file here that sees guest-physical addresses.

use std::fs::File;
use std::io;
use std::sync::Arc;

use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MmapRegion, VolatileSlice,
};

use super::gpu::{CuResult, CudaError};
use crate::link::Region;

/// Guest memory as the daemon described it last.
#[derive(Debug, Default)]
pub struct GuestPages {
    memory: GuestMemoryMmap<()>,
}

/// A piece of a file that backs guest memory, in whole pages.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The file.
    pub file: Arc<File>,
    /// Where the piece begins in it.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl GuestPages {
    /// Maps the regions.
    ///
    /// Errors: regions that overlap or cannot be mapped.
    pub fn map(regions: Vec<(Region, File)>) -> io::Result<Self> {
        let mut mapped = Vec::with_capacity(regions.len());
        for (region, file) in regions {
            let bytes = usize::try_from(region.bytes).map_err(io::Error::other)?;
            let mapping = MmapRegion::from_file(FileOffset::new(file, region.file_offset), bytes)
                .map_err(io::Error::other)?;
            let region = GuestRegionMmap::new(mapping, GuestAddress(region.guest_addr))
                .ok_or_else(|| io::Error::other("a region wraps around"))?;
            mapped.push(region);
        }
        let memory = GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other)?;
        Ok(Self { memory })
    }
}

/// Pages of a guest process, in order.
#[derive(Clone, Debug)]
pub struct PageList {
    pages: Arc<GuestPages>,
    entries: Vec<MemEntry>,
}

impl PageList {
    /// The memory that `entries` name.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if some of it is not there (any more).
    pub fn new(pages: Arc<GuestPages>, entries: Vec<MemEntry>) -> CuResult<Self> {
        let there =
            |entry: &MemEntry| pages.memory.check_range(GuestAddress(entry.addr), entry.bytes as usize);
        if entries.iter().all(there) { Ok(Self { pages, entries }) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.bytes)).sum()
    }

    /// The memory from its start, piece by piece.
    pub fn slices(&self) -> Slices<'_> {
        Slices { list: self, entry: 0, offset: 0 }
    }

    /// Copies everything to `bytes`, whose length must be [`Self::bytes`].
    pub fn read(&self, mut bytes: &mut [u8]) {
        let mut slices = self.slices();
        while let Some(slice) = slices.next(bytes.len()) {
            let (now, later) = bytes.split_at_mut(slice.len());
            slice.copy_to(now);
            bytes = later;
        }
    }

    /// Copies `bytes` to the start of the pages, as much as fits.
    pub fn write(&self, mut bytes: &[u8]) {
        let mut slices = self.slices();
        while let Some(slice) = slices.next(bytes.len()) {
            let (now, later) = bytes.split_at(slice.len());
            slice.copy_from(now);
            bytes = later;
        }
    }

    /// Where the pages lie in their files, to be mapped elsewhere.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if they are not whole pages.
    pub fn file_pieces(&self) -> CuResult<Vec<FilePiece>> {
        let mut pieces: Vec<FilePiece> = Vec::new();
        for entry in &self.entries {
            let mut addr = entry.addr;
            let mut left = u64::from(entry.bytes);
            while left > 0 {
                let (region, start) =
                    self.pages.memory.to_region_addr(GuestAddress(addr)).ok_or(CudaError::INVALID_VALUE)?;
                let backing = region.file_offset().ok_or(CudaError::INVALID_VALUE)?;
                let bytes = left.min(region.len() - start.0);
                let offset = backing.start() + start.0;
                if !(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES)) {
                    return Err(CudaError::INVALID_VALUE);
                }
                match pieces.last_mut() {
                    Some(last)
                        if Arc::ptr_eq(&last.file, backing.arc()) && last.offset + last.bytes == offset =>
                    {
                        last.bytes += bytes;
                    }
                    _ => pieces.push(FilePiece { file: backing.arc().clone(), offset, bytes }),
                }
                addr += bytes;
                left -= bytes;
            }
        }
        Ok(pieces)
    }
}

/// Walks over a [`PageList`].
#[derive(Debug)]
pub struct Slices<'a> {
    list: &'a PageList,
    entry: usize,
    offset: u64,
}

impl<'a> Slices<'a> {
    /// The next piece that is contiguous in this process, at most `most` bytes. `None` at the end, or if `most` is 0.
    pub fn next(&mut self, most: usize) -> Option<VolatileSlice<'a>> {
        let entry = self.list.entries.get(self.entry).filter(|_| most > 0)?;
        let left = (u64::from(entry.bytes) - self.offset) as usize;
        let addr = GuestAddress(entry.addr + self.offset);
        // The range was checked, so there is a slice; it ends where a region does.
        let slice = self.list.pages.memory.get_slices(addr, left.min(most)).next()?.ok()?;
        self.offset += slice.len() as u64;
        if self.offset == u64::from(entry.bytes) {
            self.entry += 1;
            self.offset = 0;
        }
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempfile::TempFile;

    /// Guest memory of two regions that touch, of 4 pages each: file offset 0 and 16 pages.
    fn fixture_pages() -> (Arc<GuestPages>, File) {
        let file = TempFile::new().unwrap().into_file();
        file.set_len(32 * PAGE_BYTES).unwrap();
        let region = |guest_addr, file_offset| {
            (Region { guest_addr, bytes: 4 * PAGE_BYTES, file_offset }, file.try_clone().unwrap())
        };
        let pages = GuestPages::map(vec![region(0x10000, 0), region(0x14000, 16 * PAGE_BYTES)]).unwrap();
        (Arc::new(pages), file)
    }

    fn entry(addr: u64, bytes: u64) -> MemEntry {
        MemEntry { addr, bytes: bytes as u32, reserved: 0 }
    }

    #[test]
    fn bytes_go_through_scattered_pages_in_order() {
        let (pages, _file) = fixture_pages();
        let list = PageList::new(pages, vec![entry(0x13ffe, 4), entry(0x10001, 3)]).unwrap();
        assert_eq!(list.bytes(), 7);
        list.write(b"abcdefg");
        let mut back = [0; 7];
        list.read(&mut back);
        assert_eq!(&back, b"abcdefg");
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let (pages, _file) = fixture_pages();
        for bad in [entry(0x18000, 1), entry(0x17fff, 2), entry(0xffff, 2), entry(u64::MAX, 8)] {
            assert!(PageList::new(pages.clone(), vec![entry(0x10000, 8), bad]).is_err());
        }
    }

    #[test]
    fn pieces_of_the_file_are_merged_and_split_at_regions() {
        let (pages, _file) = fixture_pages();
        let list =
            PageList::new(pages.clone(), vec![entry(0x12000, 3 * PAGE_BYTES), entry(0x15000, PAGE_BYTES)]);
        let pieces = list.unwrap().file_pieces().unwrap();
        let places: Vec<_> =
            pieces.iter().map(|piece| (piece.offset / PAGE_BYTES, piece.bytes / PAGE_BYTES)).collect();
        assert_eq!(places, [(2, 2), (16, 2)]);
        let odd = PageList::new(pages, vec![entry(0x12001, PAGE_BYTES)]).unwrap();
        assert_eq!(odd.file_pieces().unwrap_err(), CudaError::INVALID_VALUE);
    }
}
