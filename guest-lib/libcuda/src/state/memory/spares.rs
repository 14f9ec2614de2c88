// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Freed pinned memory that is kept for the next allocation of its length, because pinning and registering pages takes
//! a millisecond. Meanwhile the program cannot access it, as if it were unmapped; the GPU could.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_environment::speed;
use virtio_cuda_client::transport::UserMemory;

/// Maximum bytes of a spare allocation. Longer memory is not kept.
pub const MAX_BYTES: u64 = 16 << 20;
/// Maximum bytes of all spare memory. Limits the pinned memory of the process.
pub const ALL_BYTES: usize = 32 << 20;

/// Unused pages that the device keeps.
#[derive(Debug)]
pub struct Spare<N> {
    /// The memory.
    pub pages: UserMemory,
    /// GPU address of the first page.
    pub device_address: u64,
    /// Tags of the kept pages.
    pub pinned: Vec<N>,
    /// The context in which they were registered.
    pub context: u64,
}

/// The spare pinned memory of a process, the oldest first. `N` is the type of the tags of kept pages.
#[derive(Debug)]
pub struct Spares<N>(Mutex<Vec<Spare<N>>>);

impl<N> Default for Spares<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<N> Spares<N> {
    fn lock(&self) -> MutexGuard<'_, Vec<Spare<N>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `spare`. Returns the memory that must be released for it: the oldest entries, or `spare` itself if it is
    /// too long or none is kept.
    pub fn keep(&self, spare: Spare<N>) -> Vec<Spare<N>> {
        let is_kept = speed::is_on() && spare.pages.bytes as u64 <= MAX_BYTES;
        if !is_kept || !protect(spare.pages, libc::PROT_NONE) {
            return vec![spare];
        }
        let mut spares = self.lock();
        spares.push(spare);
        let mut bytes: usize = spares.iter().map(|spare| spare.pages.bytes).sum();
        let too_many = spares.iter().take_while(|spare| {
            let is_over = bytes > ALL_BYTES;
            bytes -= if is_over { spare.pages.bytes } else { 0 };
            is_over
        });
        let count = too_many.count();
        spares.drain(..count).collect()
    }

    /// Takes memory of `bytes` bytes, in whole pages, filled with zeros. The memory that was freed last is taken first.
    pub fn take(&self, context: u64, bytes: u64) -> Option<Spare<N>> {
        let spare = {
            let mut spares = self.lock();
            let fits = |spare: &Spare<N>| spare.context == context && spare.pages.bytes as u64 == bytes;
            let index = spares.iter().rposition(fits)?;
            spares.remove(index)
        };
        if !protect(spare.pages, libc::PROT_READ | libc::PROT_WRITE) {
            // It cannot be used any more, and ends with its context.
            self.lock().insert(0, spare);
            return None;
        }
        // SAFETY: the pages of one allocation, which its user has freed; they were not used since.
        unsafe { std::ptr::write_bytes(spare.pages.address as *mut u8, 0, spare.pages.bytes) };
        Some(spare)
    }

    /// Removes and returns all spare memory.
    pub fn take_all(&self) -> Vec<Spare<N>> {
        std::mem::take(&mut *self.lock())
    }

    /// Removes and returns the memory that was registered in a destroyed context.
    pub fn forget_context(&self, context: u64) -> Vec<Spare<N>> {
        self.lock().extract_if(.., |spare| spare.context == context).collect()
    }
}

/// Sets the program's access to pages. Returns false if the kernel refuses.
fn protect(pages: UserMemory, access: libc::c_int) -> bool {
    // SAFETY: pages of the address window, which this library maps, and which are not in use.
    unsafe { libc::mprotect(pages.address as *mut _, pages.bytes, access) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(context: u64, bytes: usize) -> Spare<u64> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let pages = UserMemory { address: at as usize, bytes };
        Spare { pages, device_address: 7, pinned: vec![1], context }
    }

    #[test]
    fn freed_memory_is_zeros_for_the_next_one_of_its_length() {
        let spares = Spares::default();
        let first = spare(1, 8192);
        let address = first.pages.address;
        // SAFETY: memory of this test.
        unsafe { *(address as *mut u8) = 5 };
        assert!(spares.keep(first).is_empty());
        assert!(spares.take(1, 4096).is_none() && spares.take(2, 8192).is_none());
        let again = spares.take(1, 8192).expect("it lies ready");
        // SAFETY: memory of this test, which `take` has made accessible again.
        assert_eq!((again.pages.address, unsafe { *(address as *const u8) }), (address, 0));
        assert!(spares.take(1, 8192).is_none());
    }

    #[test]
    fn the_oldest_go_first_and_long_ones_do_not_stay() {
        let spares = Spares::default();
        assert_eq!(spares.keep(spare(1, MAX_BYTES as usize + 4096)).len(), 1);
        let half = ALL_BYTES / 2;
        assert!(spares.keep(spare(1, half)).is_empty() && spares.keep(spare(2, half)).is_empty());
        let removed = spares.keep(spare(3, 4096));
        assert_eq!(removed.iter().map(|spare| spare.context).collect::<Vec<_>>(), [1]);
        assert_eq!((spares.forget_context(2).len(), spares.take_all().len()), (1, 1));
    }
}
