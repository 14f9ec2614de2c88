// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory in the worker: the only file here that sees guest-physical addresses.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use log::debug;
use vhost_cuda_common::link::Region;
use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};
use vm_memory::{FileOffset, MmapRegion};

use crate::gpu::{CuResult, CudaError};
use crate::memory::mapper::{Mapping, NamedFile, map_shared};
use virtio_cuda_ring::streaming;

/// Guest memory, by the daemon's last description.
#[derive(Debug, Default)]
pub struct GuestPages {
    /// The regions, sorted and without overlaps.
    regions: Vec<Mapped>,
}

#[derive(Debug)]
struct Mapped {
    region: Region,
    file: GuestFile,
    /// The mapping of all of it; without one, pages are mapped when a request refers to them.
    whole: Option<MmapRegion<()>>,
}

/// A file of guest memory.
#[derive(Clone, Debug)]
pub enum GuestFile {
    /// This process has its descriptor, and maps all of it (`--guest-pages all`).
    Whole(Arc<File>),
    /// As `Whole`, but single pages of it cannot be mapped elsewhere (hugetlbfs).
    Huge(Arc<File>),
    /// Another process has its descriptors, and maps what the guest's process has named (`--guest-pages named`).
    Named(NamedFile),
}

/// The bytes that the kernel maps at the first read of newly mapped memory (`fault_around_bytes`), also for later writes. A
/// write makes it map one page.
const AROUND: usize = 64 << 10;

/// The maximum length of an entry in bytes: whole pages.
const MAX_ENTRY: u64 = 1 << 30;

/// Maps pieces of whole pages side by side, from `base` on. After an error some of them may be mapped.
///
/// Errors: a file has huge pages only (nothing is mapped then), or the kernel refuses.
///
/// # Safety
///
/// Nothing else may use the memory there.
pub unsafe fn map_side_by_side(pieces: &[FilePiece], base: u64) -> io::Result<()> {
    // The kernel would map whole huge pages, over the memory beside.
    if pieces.iter().any(|piece| matches!(piece.file, GuestFile::Huge(_))) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "memory of hugetlbfs has no single pages"));
    }
    let mut at = base;
    for together in pieces.chunk_by(|one, next| one.file.is(&next.file)) {
        let mapping = |piece: &FilePiece| {
            let &FilePiece { bytes, offset, writable, .. } = piece;
            let mapping = Mapping { at: Some(at as usize), bytes: bytes as usize, offset, writable };
            at += bytes;
            mapping
        };
        let mappings: Vec<Mapping> = together.iter().map(mapping).collect();
        match &together[0].file {
            // SAFETY: `# Safety` promises that nothing else uses the memory from `base` on, where the pieces lie.
            GuestFile::Named(file) => unsafe { file.map(&mappings, |_, _| {}) }?,
            GuestFile::Whole(file) => {
                for mapping in &mappings {
                    // SAFETY: `# Safety` promises that nothing else uses the memory from `base` on, where the piece lies.
                    unsafe { map_shared(file.as_raw_fd(), mapping) }?;
                }
            }
            GuestFile::Huge(_) => unreachable!("refused above"),
        }
    }
    Ok(())
}

impl GuestFile {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) | (Self::Huge(one), Self::Huge(other)) => {
                Arc::ptr_eq(one, other)
            }
            (Self::Named(one), Self::Named(other)) => one.is(other),
            _ => false,
        }
    }
}

/// A piece of a file that backs guest memory, in whole pages.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The file.
    pub file: GuestFile,
    /// The offset of the piece in it.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its address in this process, if all of its region is mapped.
    pub address: Option<usize>,
    /// True if it may be written.
    pub writable: bool,
}

/// Appends a piece, to the last one if it goes on there.
fn push_joined(pieces: &mut Vec<FilePiece>, piece: FilePiece) {
    match pieces.last_mut() {
        Some(last)
            if last.file.is(&piece.file)
                && last.offset + last.bytes == piece.offset
                && last.address.map(|address| address + last.bytes as usize) == piece.address =>
        {
            last.bytes += piece.bytes;
        }
        _ => pieces.push(piece),
    }
}

impl GuestPages {
    /// Maps the regions whose file this process has. Pages of other regions are mapped when a request refers to them.
    ///
    /// Errors: regions that overlap or cannot be mapped.
    pub fn map(mut regions: Vec<(Region, GuestFile)>) -> io::Result<Self> {
        regions.sort_by_key(|(region, _)| region.guest_addr);
        let mut mapped: Vec<Mapped> = Vec::with_capacity(regions.len());
        let mut free = 0;
        for (region, file) in regions {
            let end = region.guest_addr.checked_add(region.bytes);
            if region.guest_addr < free || region.file_offset.checked_add(region.bytes).is_none() {
                return Err(io::Error::other("regions of guest memory overlap or wrap around"));
            }
            free = end.ok_or_else(|| io::Error::other("a region wraps around"))?;
            let whole = match &file {
                GuestFile::Whole(file) | GuestFile::Huge(file) => {
                    let bytes = usize::try_from(region.bytes).map_err(io::Error::other)?;
                    let backing = FileOffset::from_arc(file.clone(), region.file_offset);
                    Some(MmapRegion::from_file(backing, bytes).map_err(io::Error::other)?)
                }
                GuestFile::Named(_) => None,
            };
            mapped.push(Mapped { region, file, whole });
        }
        Ok(Self { regions: mapped })
    }

    /// Returns the region that has `addr`, and the offset in it.
    fn find(&self, addr: u64) -> Option<(&Mapped, u64)> {
        let after = self.regions.partition_point(|mapped| mapped.region.guest_addr <= addr);
        let found = self.regions.get(after.checked_sub(1)?)?;
        let offset = addr - found.region.guest_addr;
        (offset < found.region.bytes).then_some((found, offset))
    }
}

/// Pages of a guest process, in order. Clones are cheap and hold the memory mapped.
#[derive(Clone, Debug, Default)]
pub struct PageList(Option<Arc<Listed>>);

#[derive(Debug)]
struct Listed {
    pages: Arc<GuestPages>,
    entries: Vec<MemEntry>,
    /// The same memory as this process has it, as long pieces as possible.
    ///
    /// Invariant: lies in mappings of `pages`, or in `_own`.
    runs: Vec<Run>,
    /// The mappings that were made for this list alone.
    _own: Vec<OwnMapping>,
    bytes: u64,
}

/// Whole pages, mapped until it is dropped.
#[derive(Debug)]
struct OwnMapping {
    address: usize,
    bytes: usize,
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's alone, and the list that referred to it goes with it.
        unsafe { libc::munmap(self.address as *mut _, self.bytes) };
    }
}

/// The use of a list's memory in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Reads and writes in this process.
    Copies,
    /// Reads in this process.
    Reads,
    /// Mapping in the window.
    Window,
}

/// Contiguous memory of this process.
#[derive(Clone, Copy, Debug)]
struct Run {
    address: usize,
    bytes: usize,
}

/// A place in a [`PageList`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    run: usize,
    offset: usize,
}

/// The region that an entry was found in last: the next one is mostly in the same.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    start: u64,
    bytes: u64,
    address: Option<usize>,
}

impl GuestPages {
    /// Appends the memory of `entry` to `runs`. Returns `None` if some of it is not guest memory.
    fn locate(&self, entry: &MemEntry, view: &mut View, runs: &mut Vec<Run>) -> Option<()> {
        let (mut addr, mut left) = (entry.addr, u64::from(entry.bytes));
        while left > 0 {
            if addr.wrapping_sub(view.start) >= view.bytes {
                let (found, _) = self.find(addr)?;
                let (start, bytes) = (found.region.guest_addr, found.region.bytes);
                *view =
                    View { start, bytes, address: found.whole.as_ref().map(|whole| whole.as_ptr() as usize) };
            }
            let offset = addr - view.start;
            let bytes = left.min(view.bytes - offset);
            // Where nothing is mapped yet, runs are looked for only to see that there is memory.
            let address = view.address.map_or(0, |address| address + offset as usize);
            let run = Run { address, bytes: bytes as usize };
            match runs.last_mut() {
                Some(last) if view.address.is_some() && last.address + last.bytes == run.address => {
                    last.bytes += run.bytes;
                }
                _ => runs.push(run),
            }
            left -= bytes;
            addr = if left > 0 { addr.checked_add(bytes)? } else { addr };
        }
        Some(())
    }
}

impl PageList {
    /// Returns the memory of `entries`, to be read and written.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if some of it is not guest memory (any more).
    pub fn new(pages: Arc<GuestPages>, entries: Vec<MemEntry>) -> CuResult<Self> {
        Self::list(pages, entries, Purpose::Copies)
    }

    /// Returns the memory of `entries`, only to be read. Where single pages are mapped, they cannot be written.
    ///
    /// Errors: as for [`Self::new`].
    pub fn to_read(pages: Arc<GuestPages>, entries: Vec<MemEntry>) -> CuResult<Self> {
        Self::list(pages, entries, Purpose::Reads)
    }

    /// Returns the memory of `entries`, for a caller that only needs [`Self::file_pieces`].
    ///
    /// Errors: as for [`Self::new`].
    pub fn for_window(pages: Arc<GuestPages>, entries: Vec<MemEntry>) -> CuResult<Self> {
        Self::list(pages, entries, Purpose::Window)
    }

    fn list(pages: Arc<GuestPages>, entries: Vec<MemEntry>, purpose: Purpose) -> CuResult<Self> {
        if entries.is_empty() {
            return Ok(Self(None));
        }
        let (mut view, mut runs) = (View::default(), Vec::with_capacity(entries.len()));
        for entry in &entries {
            pages.locate(entry, &mut view, &mut runs).ok_or(CudaError::INVALID_VALUE)?;
        }
        let bytes = runs.iter().map(|run| run.bytes as u64).sum();
        let mut own = Vec::new();
        if runs.iter().any(|run| run.address == 0) {
            runs.clear();
            if purpose != Purpose::Window {
                pages.map_named(&entries, purpose == Purpose::Copies, &mut runs, &mut own)?;
            }
        }
        Ok(Self(Some(Arc::new(Listed { pages, entries, runs, _own: own, bytes }))))
    }

    fn runs(&self) -> &[Run] {
        self.0.as_ref().map_or(&[], |listed| &listed.runs)
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |listed| listed.bytes)
    }

    /// The entries of which it was made.
    pub fn entries(&self) -> Vec<MemEntry> {
        self.0.as_ref().map_or_else(Vec::new, |listed| listed.entries.clone())
    }

    /// The place `bytes` bytes after `from`, at most the end.
    pub fn advance(&self, from: Cursor, bytes: usize) -> Cursor {
        let (mut at, mut left) = (from, bytes);
        while let Some(run) = self.runs().get(at.run)
            && left >= run.bytes - at.offset
        {
            left -= run.bytes - at.offset;
            at = Cursor { run: at.run + 1, offset: 0 };
        }
        if at.run < self.runs().len() { Cursor { offset: at.offset + left, ..at } } else { at }
    }

    /// Pieces of `bytes` bytes from `from` on, as far as there are: address and length.
    fn pieces(&self, from: Cursor, bytes: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        let runs = self.runs().get(from.run..).unwrap_or(&[]);
        let (mut offset, mut left) = (from.offset, bytes);
        runs.iter().enumerate().map_while(move |(index, run)| {
            let piece = left.min(run.bytes - offset);
            if piece == 0 {
                return None;
            }
            // Scattered pages: the CPU's own prefetcher does not find the next one.
            if let Some(next) = runs.get(index + 1) {
                prefetch(next.address, left - piece);
            }
            let address = (run.address + offset) as *mut u8;
            (offset, left) = (0, left - piece);
            Some((address, piece))
        })
    }

    /// Copies `bytes` bytes from `from` on to `to`, as far as there are.
    ///
    /// # Safety
    ///
    /// `to` must have room for `bytes` bytes that no other thread uses meanwhile.
    pub unsafe fn read_to(&self, from: Cursor, to: *mut u8, bytes: usize) {
        let mut to = to;
        for (piece, length) in self.pieces(from, bytes) {
            // SAFETY: the piece is mapped while `self` lives (invariant of `Listed`). The guest may write to it
            // at the same time, which decides only over the bytes that it gets. The caller vouches for `to`.
            unsafe {
                streaming::copy(piece.cast_const(), to, length);
                to = to.add(length);
            }
        }
        // The GPU gets the address next.
        streaming::fence();
    }

    /// Copies `bytes` bytes from `from` to the place `to` and on, as far as there are pages.
    ///
    /// # Safety
    ///
    /// `from` must be good for reading `bytes` bytes.
    pub unsafe fn write_from(&self, to: Cursor, from: *const u8, bytes: usize) {
        let mut from = from;
        for (piece, length) in self.pieces(to, bytes) {
            let end = piece.wrapping_add(length);
            let mut at = piece;
            while at < end {
                let part = AROUND - at as usize % AROUND;
                let part = part.min(end as usize - at as usize);
                // SAFETY: the piece is mapped while `self` lives (invariant of `Listed`). The guest may use it at the
                // same time. `from` is good for `bytes` bytes by this function's contract, and the parts of all pieces are
                // no longer in total.
                unsafe {
                    if part > PAGE_BYTES as usize {
                        at.read_volatile();
                    }
                    std::ptr::copy_nonoverlapping(from, at, part);
                    from = from.add(part);
                }
                at = at.wrapping_add(part);
            }
        }
    }

    /// Copies everything to `bytes`, as much as fits.
    pub fn read(&self, bytes: &mut [u8]) {
        // SAFETY: the slice has that room and is borrowed exclusively.
        unsafe { self.read_to(Cursor::default(), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `bytes` to the start of the pages, as much as fits.
    pub fn write(&self, bytes: &[u8]) {
        // SAFETY: the slice has that length.
        unsafe { self.write_from(Cursor::default(), bytes.as_ptr(), bytes.len()) };
    }

    /// Returns the positions of the pages in their files, to be mapped elsewhere.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if they are not whole pages.
    pub fn file_pieces(&self) -> CuResult<Vec<FilePiece>> {
        let mut pieces: Vec<FilePiece> = Vec::new();
        let Some(listed) = &self.0 else { return Ok(pieces) };
        for piece in listed.pages.pieces(&listed.entries).ok_or(CudaError::INVALID_VALUE)? {
            let FilePiece { offset, bytes, .. } = &piece;
            if !(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES)) {
                return Err(CudaError::INVALID_VALUE);
            }
            push_joined(&mut pieces, piece);
        }
        Ok(pieces)
    }
}

impl GuestPages {
    /// Returns the positions of the memory of `entries` in its files; `None` if some of it is not guest memory.
    fn pieces(&self, entries: &[MemEntry]) -> Option<Vec<FilePiece>> {
        let mut pieces = Vec::with_capacity(entries.len());
        for entry in entries {
            let (mut addr, mut left) = (entry.addr, u64::from(entry.bytes));
            while left > 0 {
                let (found, start) = self.find(addr)?;
                let bytes = left.min(found.region.bytes - start);
                let offset = found.region.file_offset + start;

                let address = found.whole.as_ref().map(|whole| whole.as_ptr() as usize + start as usize);
                pieces.push(FilePiece { file: found.file.clone(), offset, bytes, address, writable: true });
                left -= bytes;
                addr = if left > 0 { addr.checked_add(bytes)? } else { addr };
            }
        }
        Some(pieces)
    }

    /// Returns guest memory that has these pieces, in their order. `None` if some of it is not guest memory any more.
    pub fn entries_of(&self, pieces: &[FilePiece]) -> Option<Vec<MemEntry>> {
        let mut entries = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (mut offset, mut left) = (piece.offset, piece.bytes);
            while left > 0 {
                let inside = |mapped: &&Mapped| {
                    let start = mapped.region.file_offset;
                    mapped.file.is(&piece.file) && offset >= start && offset - start < mapped.region.bytes
                };
                let found = self.regions.iter().find(inside)?;
                let start = offset - found.region.file_offset;
                let bytes = left.min(found.region.bytes - start).min(MAX_ENTRY);
                let addr = found.region.guest_addr + start;
                entries.push(MemEntry { addr, bytes: bytes as u32, reserved: 0 });
                (offset, left) = (offset + bytes, left - bytes);
            }
        }
        Some(entries)
    }

    /// Maps the pages of `entries` for a list of their own.
    fn map_named(
        &self,
        entries: &[MemEntry],
        writable: bool,
        runs: &mut Vec<Run>,
        own: &mut Vec<OwnMapping>,
    ) -> CuResult<()> {
        let mut pieces: Vec<FilePiece> = Vec::new();
        for piece in self.pieces(entries).ok_or(CudaError::INVALID_VALUE)? {
            push_joined(&mut pieces, piece);
        }
        for together in pieces.chunk_by(|one, next| one.file.is(&next.file)) {
            let GuestFile::Named(file) = &together[0].file else {
                let mapped = together.iter().filter_map(|piece| Some((piece.address?, piece.bytes as usize)));
                runs.extend(mapped.map(|(address, bytes)| Run { address, bytes }));
                continue;
            };
            let pages = |piece: &FilePiece| {
                let before = piece.offset % PAGE_BYTES;
                let bytes = (before + piece.bytes).next_multiple_of(PAGE_BYTES) as usize;
                Mapping { at: None, bytes, offset: piece.offset - before, writable }
            };
            let mappings: Vec<Mapping> = together.iter().map(pages).collect();
            let mut pieces = together.iter();
            let mapped = |mapping: &Mapping, address: usize| {
                own.push(OwnMapping { address, bytes: mapping.bytes });
                runs.extend(pieces.next().map(|piece| Run {
                    address: address + (piece.offset - mapping.offset) as usize,
                    bytes: piece.bytes as usize,
                }));
            };
            // SAFETY: no address is asked for.
            unsafe { file.map(&mappings, mapped) }.map_err(|error| {
                debug!("pages of the guest cannot be mapped: {error}");
                CudaError::OUT_OF_MEMORY
            })?;
        }
        Ok(())
    }
}

/// Asks the CPU for the first lines, at most `bytes` bytes, at `address`.
fn prefetch(address: usize, bytes: usize) {
    const LINE: usize = 64;
    const MAX_TOUCHED: usize = 1 << 10;
    for offset in (0..bytes.min(MAX_TOUCHED)).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint: no address does harm.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>((address + offset) as *const i8);
        }
    }
}

/// Guest memory for unit tests.
#[cfg(any(test, fuzzing))]
pub mod fixture {
    use super::*;
    #[cfg(test)]
    use vmm_sys_util::tempfile::TempFile;

    /// A file in memory for a guest's memory.
    pub fn memory_file(bytes: u64) -> File {
        let file = vhost_cuda_common::files::memory_file(c"guest").expect("a file in memory");
        file.set_len(bytes).expect("room");
        file
    }

    /// `pages` pages from address 0x10000 on, and their file.
    #[cfg(test)]
    pub fn fixture_memory(pages: u64) -> (Arc<GuestPages>, File) {
        let file = TempFile::new().unwrap().into_file();
        file.set_len(pages * PAGE_BYTES).unwrap();
        let region = Region {
            guest_addr: 0x10000,
            bytes: pages * PAGE_BYTES,
            file_offset: 0,
            page_bytes: PAGE_BYTES,
            number: 0,
        };
        (
            Arc::new(
                GuestPages::map(vec![(region, GuestFile::Whole(Arc::new(file.try_clone().unwrap())))])
                    .unwrap(),
            ),
            file,
        )
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
        let shared = GuestFile::Whole(Arc::new(file.try_clone().unwrap()));
        let region = |guest_addr, file_offset| {
            (
                Region { guest_addr, bytes: 4 * PAGE_BYTES, file_offset, page_bytes: PAGE_BYTES, number: 0 },
                shared.clone(),
            )
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
        let mut middle = [0; 4];
        let at = list.advance(Cursor::default(), 2);
        // SAFETY: the array has that room.
        unsafe { list.read_to(at, middle.as_mut_ptr(), 4) };
        assert_eq!(&middle, b"cdef");
        assert_eq!(list.advance(at, 2), list.advance(Cursor::default(), 4));
        assert_eq!(list.advance(at, 5), list.advance(at, 1000), "the end");
    }

    #[test]
    fn neighbours_become_one_run() {
        let (pages, _file) = fixture_pages();
        let list = PageList::new(pages, vec![entry(0x10000, 4096), entry(0x11000, 4096), entry(0x10800, 8)]);
        let runs: Vec<_> = list.unwrap().runs().iter().map(|run| run.bytes).collect();
        assert_eq!(runs, [8192, 8]);
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
