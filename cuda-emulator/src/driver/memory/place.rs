// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address ranges at which memory files are mapped.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::driver::result::{CUresult, CuResult};

/// The granularity of sizes and addresses of memory that is allocated without an address, in bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// A mapping of a whole memory file.
///
/// # Invariants
/// `bytes` bytes at `address` can be read and written as long as the process lives. They become plain memory when the
/// value ends, and the next one of the same size replaces that memory.
pub(crate) struct Place {
    address: u64,
    bytes: u64,
}

/// Ranges of values that have ended, by size.
static FREE: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::new(BTreeMap::new());

impl Place {
    /// Maps the first `bytes` bytes of a file.
    pub(crate) fn new(file: &OwnedFd, bytes: u64) -> CuResult<Place> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let known = free.get_mut(&bytes).and_then(Vec::pop);
        drop(free);
        let address = known.map_or_else(|| reserve_place(bytes, GRANULARITY, 0), Ok)?;
        // From here on the range is released if the mapping fails.
        let place = Place { address, bytes };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: a new place, or one that belonged to no value (invariant).
        let mapped = unsafe {
            libc::mmap(address as *mut c_void, bytes as usize, protection, flags, file.as_raw_fd(), 0)
        };
        if mapped == libc::MAP_FAILED { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(place) }
    }

    /// The first address.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the value's own place (invariant); who still reads there finds plain memory.
        let place = unsafe { blank(self.address, self.bytes, protection, libc::MAP_FIXED) };
        if place != libc::MAP_FAILED {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            free.entry(self.bytes).or_default().push(self.address);
        }
    }
}

/// Reserves unused, inaccessible addresses. `alignment` is a power of two of at least a page.
pub(crate) fn reserve_place(bytes: u64, alignment: u64, hint: u64) -> CuResult<u64> {
    if hint != 0 && hint.is_multiple_of(alignment) {
        // The addresses around it may be in use.
        // SAFETY: MAP_FIXED_NOREPLACE: a place that nothing uses.
        let start = unsafe { blank(hint, bytes, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE) };
        if start as u64 == hint {
            return Ok(hint);
        }
    }
    let padded = bytes.checked_add(alignment).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: no MAP_FIXED: a place that nothing uses.
    let start = unsafe { blank(hint, padded, libc::PROT_NONE, 0) };
    if start == libc::MAP_FAILED {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let start = start as u64;
    let base = start.next_multiple_of(alignment);
    // SAFETY: what lies before and behind the aligned part is a part of the new mapping that nobody knows of.
    unsafe {
        if base > start {
            libc::munmap(start as *mut c_void, (base - start) as usize);
        }
        let (end, all) = (base + bytes, start + padded);
        if all > end {
            libc::munmap(end as *mut c_void, (all - end) as usize);
        }
    }
    Ok(base)
}

/// Maps an address range again, inaccessible or as plain memory.
///
/// # Safety
/// The range must be a mapping that only the caller uses.
pub(crate) unsafe fn blank(base: u64, bytes: u64, protection: i32, fixed: i32) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: the range is the caller's alone by this function's contract; without MAP_FIXED the address is only a
    // hint.
    unsafe { libc::mmap(base as *mut c_void, bytes as usize, protection, flags, -1, 0) }
}
