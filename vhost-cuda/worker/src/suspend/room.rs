// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rooms for chunks of contents, and the mappings in which they lie.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

pub use vhost_cuda_common::link::{CHUNK_BYTES, POOL_BLOCK_BYTES};

/// The sizes of a room and of a block of them in bytes. A room is as large as the kernel's huge pages.
pub const CHUNK: usize = CHUNK_BYTES as usize;
pub const BLOCK: usize = POOL_BLOCK_BYTES as usize;
/// The number of rooms in a block.
pub const ROOMS: usize = BLOCK / CHUNK;
/// The size of the kernel's small pages in bytes.
pub const PAGE: usize = 4096;

/// The room for a chunk.
///
/// # Invariants
///
/// `address` is that of [`CHUNK`] bytes in an [`Area`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    address: usize,
    /// True if the block that it lies in was registered with the driver, so that the device copies without a buffer between.
    is_registered: bool,
    /// True if it lies in a file that can only be read.
    is_saved: bool,
}

impl Room {
    /// The room at `address`.
    ///
    /// # Safety
    ///
    /// The invariant.
    pub unsafe fn at(address: usize, is_registered: bool) -> Self {
        Self { address, is_registered, is_saved: false }
    }

    /// The room at `address`, which is in `area`.
    ///
    /// # Safety
    ///
    /// The invariant.
    pub unsafe fn of(area: &Area, address: usize) -> Self {
        Self { address, is_registered: false, is_saved: area.is_saved }
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.address
    }

    /// Returns whether the device can copy to it and from it.
    pub fn is_registered(self) -> bool {
        self.is_registered
    }

    /// Returns whether it can only be read.
    pub fn is_saved(self) -> bool {
        self.is_saved
    }

    /// Returns whether `other` begins where this room ends, in the same registered block.
    pub fn is_before(self, other: Self) -> bool {
        let is_one_block = self.address / BLOCK == other.address / BLOCK;
        self.is_registered && other.is_registered && is_one_block && self.address + CHUNK == other.address
    }

    /// Stores a chunk.
    ///
    /// # Safety
    ///
    /// The room must be taken ([`super::pages::Pages::take`]), and nobody else may use it meanwhile.
    pub unsafe fn store(self, chunk: &[u8]) {
        assert!(chunk.len() == CHUNK && !self.is_saved, "a whole chunk, to a room that can be written");
        // SAFETY: as long as a chunk (invariant); the caller vouches for the rest.
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), self.address as *mut u8, CHUNK) }
    }

    /// Copies the chunk to a buffer.
    ///
    /// Errors: it lies in a file that the kernel cannot read, or that has been cut.
    ///
    /// # Safety
    ///
    /// The room must be taken, and nobody may write to it meanwhile.
    pub unsafe fn load(self, chunk: &mut [u8]) -> io::Result<()> {
        assert_eq!(chunk.len(), CHUNK, "a whole chunk");
        self.bring()?;
        // SAFETY: as long as a chunk (invariant); the caller vouches for the rest.
        unsafe { std::ptr::copy_nonoverlapping(self.address as *const u8, chunk.as_mut_ptr(), CHUNK) }
        Ok(())
    }

    /// Writes the chunk to a file.
    ///
    /// Errors: those of that file; this room lies in a file that has been cut.
    ///
    /// # Safety
    ///
    /// As for [`Self::load`].
    pub unsafe fn write_to(self, file: &File, offset: u64) -> io::Result<()> {
        self.bring()?;
        // SAFETY: as long as a chunk (invariant); the caller vouches that nobody writes to it.
        file.write_all_at(unsafe { std::slice::from_raw_parts(self.address as *const u8, CHUNK) }, offset)
    }

    /// Has the kernel read a chunk of a file, all at once. Without that, a file that was cut would end this process by a signal. One that
    /// is cut just then still does.
    fn bring(self) -> io::Result<()> {
        if !self.is_saved {
            return Ok(());
        }
        // SAFETY: a mapping (invariant), of which the call changes nothing.
        if unsafe { libc::madvise(self.address as *mut _, CHUNK, libc::MADV_POPULATE_READ) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Kernels before 5.14 do not know the call.
        if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) }
    }

    /// Changes the first byte, as broken memory would.
    #[cfg(test)]
    pub fn damage(self) {
        // SAFETY: the byte lies in an area (invariant); no other thread is there in tests.
        unsafe { *(self.address as *mut u8) ^= 1 };
    }
}

/// A mapping with rooms.
///
/// # Invariants
///
/// `base` is the address of a mapping of `bytes` bytes that this value owns. Nobody can take its pages away, unless it is that of a file of
/// the operator's: then this process would end.
#[derive(Debug)]
pub struct Area {
    base: usize,
    bytes: usize,
    /// True for a file that can only be read.
    is_saved: bool,
}

impl Area {
    /// Maps addresses for `count` parts of `size` bytes each, without pages.
    ///
    /// Errors: the process gets no more addresses.
    pub fn new(count: usize, size: usize) -> io::Result<Self> {
        // One more, because the first part begins at a multiple of its size, as huge pages do.
        let bytes = count.checked_add(1).and_then(|count| count.checked_mul(size));
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A hint: fewer faults and fewer page tables.
        // SAFETY: the new mapping.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { base: base as usize, bytes, is_saved: false })
    }

    /// Maps a file, with a room for each of its chunks. With `is_saved` they can only be read; without it, the length of the file is sealed.
    ///
    /// Errors: it has something else than whole chunks, or the process gets no more addresses.
    pub fn of_file(file: &File, is_saved: bool) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if !length.is_multiple_of(CHUNK_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut area = Self::new((length / CHUNK_BYTES) as usize, CHUNK)?;
        area.is_saved = is_saved;
        if length == 0 {
            return Ok(area);
        }
        let protection = if is_saved { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        let (first, bytes) = (area.first_room() as *mut _, area.bytes - CHUNK);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: it replaces a part of the new mapping, which nobody uses. The file stays as long as it is.
        let mapped = unsafe { libc::mmap(first, bytes, protection, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as in `new`.
        unsafe { libc::madvise(first, bytes, libc::MADV_HUGEPAGE) };
        Ok(area)
    }

    /// Returns the address of the first of its rooms, if it has such.
    pub fn first_room(&self) -> usize {
        self.base.next_multiple_of(CHUNK)
    }

    /// Returns the number of bytes of all of its rooms.
    pub fn room_bytes(&self) -> u64 {
        (self.bytes - CHUNK) as u64
    }

    /// Returns the addresses of the parts of `size` bytes, which must be that of [`Self::new`], the last one first.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = usize> {
        let first = self.base.next_multiple_of(size);
        (0..self.bytes / size - 1).rev().map(move |index| first + index * size)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's (invariant). Rooms in it have ended: `super::pages` counts them.
        unsafe { libc::munmap(self.base as *mut _, self.bytes) };
    }
}

/// Lets the kernel provide the pages at these addresses. Returns false if it has none.
///
/// # Safety
///
/// They must lie in an [`Area`], and nobody may use the contents.
pub unsafe fn fill(address: usize, bytes: usize) -> bool {
    // SAFETY: the caller vouches for a mapping of this module. The call changes no contents.
    if unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_POPULATE_WRITE) } == 0 {
        return true;
    }
    if io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
        return false;
    }
    // Kernels before 5.14 do not know the call.
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: the caller vouches for a mapping of which nobody uses the contents.
        unsafe { ((address + offset) as *mut u8).write_volatile(0) };
    }
    true
}

/// Gives the pages at these addresses back to the kernel.
///
/// # Safety
///
/// As for [`fill`].
pub unsafe fn empty(address: usize, bytes: usize) {
    // SAFETY: the caller vouches for a mapping of this module of which nobody uses the contents.
    unsafe { libc::madvise(address as *mut _, bytes, libc::MADV_DONTNEED) };
}
