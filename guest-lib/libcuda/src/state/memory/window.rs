// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The address windows: addresses that mean the same in this process, in its worker and on the GPU. Only this library
//! allocates from them. The first window is for host memory: this library's memory, and device addresses of registered
//! memory. The worker reserves it, too. The next one, directly after it, is for managed memory that moves; the worker's
//! GPU driver reserves it. The last one is for reservations of the program ([`crate::vmm`]).

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use range_alloc::RangeAllocator;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{RESERVATIONS_BASE, WINDOW_BASE, WINDOW_BYTES};

/// Unit of allocation in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Minimum size in pages of allocations that are aligned to this many pages, so that huge pages fit.
const HUGE_PAGES: u64 = 512;

/// The window of this process that begins at `BASE`. It is reserved at the first use.
#[derive(Debug, Default)]
pub struct Window<const BASE: u64 = WINDOW_BASE>(OnceLock<Option<Mutex<RangeAllocator<u64>>>>);

/// The window of managed memory that moves.
pub type MovingWindow = Window<{ WINDOW_BASE + WINDOW_BYTES }>;

/// The window for reservations of the program.
pub type ReservationWindow = Window<RESERVATIONS_BASE>;

/// Rounds bytes up to whole pages.
pub fn round_up(bytes: u64) -> Result<u64, CudaError> {
    bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(CudaError::OUT_OF_MEMORY)
}

/// Reserves the window, or as much of it as a limit on address space (`ulimit -v`) allows.
fn reserve(base: u64) -> Option<Mutex<RangeAllocator<u64>>> {
    let mut bytes = WINDOW_BYTES;
    while bytes >= WINDOW_BYTES >> 10 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping that replaces nothing.
        let at = unsafe { libc::mmap(base as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
        if at as u64 == base {
            return Some(Mutex::new(RangeAllocator::new(0..bytes / PAGE_BYTES)));
        }
        if at != libc::MAP_FAILED {
            // A kernel before 4.17 treats the address as a hint.
            // SAFETY: the mapping was made just above.
            unsafe { libc::munmap(at, bytes as usize) };
        }
        bytes /= 4;
    }
    log::error!(
        "The address window at {base:#x} cannot be reserved ({}): no pinned or managed memory",
        io::Error::last_os_error()
    );
    None
}

impl<const BASE: u64> Window<BASE> {
    /// First address of the window.
    pub const START: u64 = BASE;

    fn with<T>(&self, body: impl FnOnce(&mut RangeAllocator<u64>) -> T) -> Result<T, CudaError> {
        let allocator = self.0.get_or_init(|| reserve(BASE)).as_ref().ok_or(CudaError::OUT_OF_MEMORY)?;
        Ok(body(&mut allocator.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns whether an address lies in the window, once the window is reserved.
    pub fn contains(&self, address: u64) -> bool {
        (BASE..BASE + WINDOW_BYTES).contains(&address) && self.0.get().is_some_and(Option::is_some)
    }

    /// Allocates `bytes` bytes of addresses, in whole pages. They are reserved and inaccessible.
    pub fn take(&self, bytes: u64) -> Result<u64, CudaError> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let start = self.with(|free| {
            if pages < HUGE_PAGES {
                return free.allocate_range(pages).map(|range| range.start);
            }
            let found = free.allocate_range(pages.saturating_add(HUGE_PAGES - 1))?;
            let start = found.start.next_multiple_of(HUGE_PAGES);
            for rest in [found.start..start, start + pages..found.end] {
                if !rest.is_empty() {
                    free.free_range(rest);
                }
            }
            Ok(start)
        })?;
        start.map(|page| BASE + page * PAGE_BYTES).map_err(|_| CudaError::OUT_OF_MEMORY)
    }

    /// Frees addresses.
    pub fn give_back(&self, address: u64, bytes: u64) {
        let start = (address - BASE) / PAGE_BYTES;
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        // The window was reserved when the addresses were allocated.
        let _ = self.with(|free| free.free_range(start..start + pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_allocations_are_aligned_and_all_come_back() {
        let window: Window = Window::default();
        let small = window.take(1).expect("one page");
        let long = window.take((4 << 20) + 1).expect("4 MiB and a page");
        assert_eq!(small, WINDOW_BASE);
        assert!(long > small && long.is_multiple_of(2 << 20));
        let between = window.take(PAGE_BYTES).expect("the rest before the long one is free");
        assert!(between < long);
        window.give_back(long, (4 << 20) + 1);
        window.give_back(between, PAGE_BYTES);
        window.give_back(small, 1);
        assert_eq!(window.take(WINDOW_BYTES - (2 << 20)).expect("nearly all"), WINDOW_BASE);
    }
}
