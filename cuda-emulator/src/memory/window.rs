// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reserved piece of the host's address space from which device memory is cut.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The requested address of the first window. The following ones lie above it.
const FIRST_BASE: u64 = 0x0700_0000_0000;
/// The number of addresses that are tried: one window per emulated device of this process, and some for existing
/// mappings.
const TRIES: u64 = 16;
/// Memory becomes accessible in steps of this size, so that the mapping stays in two pieces however much is allocated.
const COMMIT_STEP: u64 = 64 << 20;
/// The granularity of madvise.
pub(super) const PAGE: u64 = 4096;

/// A large page of x86-64.
const LARGE_PAGE: u64 = 2 << 20;
/// Allocations that get large pages, which take room in the machine as a whole: from here on.
const MIN_LARGE: u64 = 4 * LARGE_PAGE;

/// # Invariants
/// `[base, base + bytes)` is mapped, and belongs to this value alone until it is dropped: anonymous private memory, but for
/// the pages that [`Window::share`] replaced by those of a file. Its first `committed` bytes are readable and writable, the
/// rest is inaccessible.
#[derive(Debug)]
pub(super) struct Window {
    base: u64,
    bytes: u64,
    committed: u64,
}

impl Window {
    /// Reserves `bytes` (a multiple of [`COMMIT_STEP`] after rounding up) without using memory.
    pub(super) fn reserve(bytes: u64) -> io::Result<Window> {
        let bytes = bytes.max(1).div_ceil(COMMIT_STEP).saturating_mul(COMMIT_STEP);
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut last = io::Error::from(io::ErrorKind::OutOfMemory);
        for attempt in 0..TRIES {
            let Some(base) = FIRST_BASE.checked_add(bytes.max(1 << 40).saturating_mul(attempt)) else {
                break;
            };
            // SAFETY: MAP_FIXED_NOREPLACE never touches an existing mapping.
            let place = unsafe {
                libc::mmap(
                    base as *mut libc::c_void,
                    length,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if place == libc::MAP_FAILED {
                last = io::Error::last_os_error();
                continue;
            }
            return Ok(Window { base: place as u64, bytes, committed: 0 });
        }
        Err(last)
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the window accessible up to `end` (an address in it).
    pub(super) fn commit(&mut self, end: u64) -> io::Result<()> {
        let wanted = (end - self.base).div_ceil(COMMIT_STEP) * COMMIT_STEP;
        let wanted = wanted.min(self.bytes);
        if wanted <= self.committed {
            return Ok(());
        }
        let start = self.base + self.committed;
        let length = (wanted - self.committed) as usize;
        let (start, protection) = (start as *mut libc::c_void, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the range lies in this window, which nothing else uses.
        let status = unsafe { libc::mprotect(start, length, protection) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        self.committed = wanted;
        Ok(())
    }

    /// Asks for large pages in a range of the window, if it is large: looking pages up and making them takes a third of the
    /// time of kernels that only go through memory once.
    pub(super) fn prefer_large_pages(&self, base: u64, bytes: u64) {
        let start = base.next_multiple_of(LARGE_PAGE);
        let end = (base + bytes) / LARGE_PAGE * LARGE_PAGE;
        if bytes < MIN_LARGE || start >= end {
            return;
        }
        // SAFETY: the range lies in this window; what it holds stays. It is a wish: where it is refused, nothing is lost.
        unsafe { libc::madvise(start as *mut libc::c_void, (end - start) as usize, libc::MADV_HUGEPAGE) };
    }

    /// Zeroes a freed range and gives whole pages back. The range stays accessible: an access that was checked just
    /// before the free, on another thread, must not kill the process.
    pub(super) fn discard(&self, base: u64, bytes: u64) {
        let end = base + bytes;
        let inner = base.next_multiple_of(PAGE);
        let inner_end = end / PAGE * PAGE;
        let zero = |from: u64, to: u64| {
            // SAFETY: the caller passes a committed range of this window, which no Rust object lives in.
            unsafe { std::ptr::write_bytes(from as *mut u8, 0, (to - from) as usize) }
        };
        if inner >= inner_end {
            zero(base, end);
            return;
        }
        zero(base, inner);
        zero(inner_end, end);
        // SAFETY: whole pages of a committed range of this window, which no Rust object lives in; anonymous pages
        // read as zero afterwards.
        let status = unsafe {
            libc::madvise(inner as *mut libc::c_void, (inner_end - inner) as usize, libc::MADV_DONTNEED)
        };
        if status != 0 {
            zero(inner, inner_end);
        }
    }

    /// Replaces whole pages (committed, of one allocation) by those of `file`, which has as many and cannot shrink.
    pub(super) fn share(&self, base: u64, bytes: u64, file: &File) -> io::Result<()> {
        self.map(base, bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Replaces whole pages by new ones, all zero.
    pub(super) fn renew(&self, base: u64, bytes: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        if let Err(error) = self.map(base, bytes, flags, -1) {
            // The pages stay those of the file: processes that have it may see later writes.
            log::error!("memory that was shared cannot be made private again: {error}");
        }
    }

    fn map(&self, base: u64, bytes: u64, flags: i32, file: i32) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller passes committed pages of this window, which no Rust object lives in.
        let place = unsafe {
            libc::mmap(
                base as *mut libc::c_void,
                bytes as usize,
                protection,
                flags | libc::MAP_FIXED,
                file,
                0,
            )
        };
        if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own (invariant).
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.bytes as usize) };
    }
}
