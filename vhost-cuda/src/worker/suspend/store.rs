// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of suspended memory, in host memory of this process.
//!
//! Contents are stored in chunks. A chunk of zeros takes no memory. Each other one has a digest, which is compared before it returns
//! to the device: wrong contents would be worse for a program than none.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash3_64;

/// The size of a chunk in bytes: the driver's unit of physical memory.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// The digest of a chunk of zeros.
const ZEROS: u64 = 0;

/// The reason for which contents are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget;

/// Room for contents.
///
/// # Invariants
///
/// `base` is the address of a private mapping of `bytes` bytes that this value owns. A chunk is written or read only by the thread to
/// which the caller has given its position (see [`Self::store`] and [`Self::load`]).
#[derive(Debug)]
pub struct Store {
    base: usize,
    bytes: usize,
    digests: Vec<AtomicU64>,
    budget: u64,
    stored: AtomicU64,
}

impl Store {
    /// Reserves room for `bytes` bytes, whole chunks, of which at most `budget` may become memory.
    ///
    /// Errors: the process gets no addresses.
    pub fn new(bytes: u64, budget: u64) -> io::Result<Self> {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        let bytes = (chunks * CHUNK_BYTES) as usize;
        let mut digests = Vec::new();
        digests.try_reserve_exact(chunks as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
        digests.resize_with(chunks as usize, AtomicU64::default);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(1), protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A hint: fewer faults and fewer page tables.
        // SAFETY: the new mapping.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { base: base as usize, bytes, digests, budget, stored: AtomicU64::new(0) })
    }

    /// Returns the bytes of memory that contents take.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Stores `contents`, at most one chunk, at `at`, the beginning of a chunk. No other thread may use that chunk meanwhile.
    ///
    /// Errors: the budget does not suffice. Nothing is stored.
    pub fn store(&self, at: u64, contents: &[u8]) -> Result<(), OverBudget> {
        let digest = &self.digests[(at / CHUNK_BYTES) as usize];
        if is_zero(contents) {
            digest.store(ZEROS, Ordering::Relaxed);
            return Ok(());
        }
        let bytes = contents.len() as u64;
        if self.stored.fetch_add(bytes, Ordering::Relaxed) + bytes > self.budget {
            self.stored.fetch_sub(bytes, Ordering::Relaxed);
            return Err(OverBudget);
        }
        let room = self.room(at, contents.len());
        // SAFETY: the chunk lies in the mapping (checked by `room`), and is the caller's alone.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), room, contents.len()) };
        digest.store(digest_of(contents), Ordering::Relaxed);
        Ok(())
    }

    /// Copies the chunk at `at` to `contents`. Returns false if it is not what was stored. No other thread may write that chunk
    /// meanwhile.
    pub fn load(&self, at: u64, contents: &mut [u8]) -> bool {
        let digest = self.digests[(at / CHUNK_BYTES) as usize].load(Ordering::Relaxed);
        if digest == ZEROS {
            contents.fill(0);
            return true;
        }
        let room = self.room(at, contents.len());
        // SAFETY: the chunk lies in the mapping (checked by `room`), and nobody writes it.
        unsafe { std::ptr::copy_nonoverlapping(room, contents.as_mut_ptr(), contents.len()) };
        digest_of(contents) == digest
    }

    fn room(&self, at: u64, bytes: usize) -> *mut u8 {
        assert!(at as usize + bytes <= self.bytes, "a part lies in the store");
        (self.base + at as usize) as *mut u8
    }

    /// Changes a byte, as broken memory would.
    #[cfg(test)]
    pub fn damage(&self, at: u64) {
        // SAFETY: the byte lies in the mapping (checked by `room`); no other thread is there in tests.
        unsafe { *self.room(at, 1) ^= 1 };
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's (invariant).
        unsafe { libc::munmap(self.base as *mut _, self.bytes.max(1)) };
    }
}

fn digest_of(contents: &[u8]) -> u64 {
    // Zero means zeros.
    XxHash3_64::oneshot(contents).max(1)
}

fn is_zero(contents: &[u8]) -> bool {
    contents.chunks(4096).all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_memory_and_the_rest_is_compared() {
        let store = Store::new(3 * CHUNK_BYTES, CHUNK_BYTES + 10).unwrap();
        let mut chunk = vec![0; CHUNK_BYTES as usize];
        store.store(0, &chunk).unwrap();
        assert_eq!(store.stored_bytes(), 0);
        *chunk.last_mut().unwrap() = 7;
        store.store(CHUNK_BYTES, &chunk).unwrap();
        assert_eq!(store.store(2 * CHUNK_BYTES, &chunk), Err(OverBudget));
        store.store(2 * CHUNK_BYTES, &chunk[chunk.len() - 10..]).unwrap();
        assert_eq!(store.stored_bytes(), CHUNK_BYTES + 10);
        let mut back = vec![1; CHUNK_BYTES as usize];
        assert!(store.load(CHUNK_BYTES, &mut back) && back == chunk);
        assert!(store.load(0, &mut back) && is_zero(&back));
        store.damage(CHUNK_BYTES + 5);
        assert!(!store.load(CHUNK_BYTES, &mut back));
    }
}
