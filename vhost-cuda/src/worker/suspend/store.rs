// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of suspended memory, in host memory of this process.
//!
//! Contents are stored in chunks. A chunk of zeros takes no memory. Contents stay when the session is resumed, so that the next
//! suspension copies only chunks that have changed.

use std::collections::BTreeMap;
use std::io;

use super::digests::Digest;
use super::transfer::Piece;

/// The size of a chunk in bytes: the driver's unit of physical memory.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// The room for a chunk.
///
/// # Invariants
///
/// The address of [`CHUNK_BYTES`] bytes in the mapping of a [`Contents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(usize);

impl Room {
    /// Stores a chunk.
    ///
    /// # Safety
    ///
    /// The store must live, and no other thread may use this room meanwhile.
    pub unsafe fn store(self, chunk: &[u8]) {
        assert_eq!(chunk.len() as u64, CHUNK_BYTES, "a whole chunk");
        // SAFETY: as long as a chunk (invariant); the caller vouches for the rest.
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), self.0 as *mut u8, chunk.len()) }
    }

    /// Copies the chunk to a buffer.
    ///
    /// # Safety
    ///
    /// The store must live, and no other thread may write to this room meanwhile.
    pub unsafe fn load(self, chunk: &mut [u8]) {
        assert_eq!(chunk.len() as u64, CHUNK_BYTES, "a whole chunk");
        // SAFETY: as long as a chunk (invariant); the caller vouches for the rest.
        unsafe { std::ptr::copy_nonoverlapping(self.0 as *const u8, chunk.as_mut_ptr(), chunk.len()) }
    }
}

/// A chunk of a part.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// The digest of its contents.
    digest: Digest,
    /// True if its room has these contents, or will have them when the suspension succeeds. False for zeros.
    stored: bool,
}

/// The contents of a part.
///
/// # Invariants
///
/// `base` is the address of a private mapping that this value owns, with [`CHUNK_BYTES`] bytes for each of `chunks`, at least one.
#[derive(Debug)]
struct Contents {
    base: usize,
    chunks: Vec<Chunk>,
}

impl Contents {
    fn new(bytes: u64) -> io::Result<Self> {
        let count = (bytes / CHUNK_BYTES) as usize;
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        chunks.resize(count, Chunk::default());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A hint: fewer faults and fewer page tables.
        // SAFETY: the new mapping.
        unsafe { libc::madvise(base, bytes as usize, libc::MADV_HUGEPAGE) };
        Ok(Self { base: base as usize, chunks })
    }

    fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }

    fn stored_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.stored).count() as u64 * CHUNK_BYTES
    }

    fn room(&self, index: usize) -> Room {
        assert!(index < self.chunks.len(), "a chunk of this part");
        Room(self.base + index * CHUNK_BYTES as usize)
    }

    /// Notes the digests of the part at `address`. Adds the chunks whose contents are to be copied to `pieces`.
    fn note(&mut self, address: u64, digests: &[Digest], zeros: Digest, pieces: &mut Vec<Piece>) {
        for (index, &digest) in digests.iter().enumerate() {
            let room = self.room(index);
            let Some(chunk) = self.chunks.get_mut(index) else { return };
            let before = std::mem::replace(chunk, Chunk { digest, stored: digest != zeros });
            if chunk.stored && !(before.stored && before.digest == digest) {
                pieces.push(Piece { address: address + index as u64 * CHUNK_BYTES, room: Some(room) });
            } else if before.stored && !chunk.stored {
                // SAFETY: a chunk of this value's mapping (invariants), of which nobody reads the contents any more.
                unsafe { libc::madvise(room.0 as *mut _, CHUNK_BYTES as usize, libc::MADV_DONTNEED) };
            }
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's (invariant).
        unsafe { libc::munmap(self.base as *mut _, self.bytes() as usize) };
    }
}

/// The contents of all parts of a session, by their addresses.
#[derive(Debug, Default)]
pub struct Store(BTreeMap<u64, Contents>);

impl Store {
    /// Prepares for the contents of `parts` (address and bytes, whole chunks), whose chunks have these digests, in the same order.
    /// Returns the chunks that are to be copied. Until all are, the contents of these parts are of no use.
    ///
    /// Errors: the process gets no addresses, or there are fewer digests than chunks.
    pub fn prepare(
        &mut self,
        parts: &[(u64, u64)],
        mut digests: &[Digest],
        zeros: Digest,
    ) -> io::Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for &(address, bytes) in parts {
            let same = self.0.remove(&address).filter(|contents| contents.bytes() == bytes);
            let mut contents = same.map_or_else(|| Contents::new(bytes), Ok)?;
            let of_it;
            let count = contents.chunks.len();
            (of_it, digests) = digests.split_at_checked(count).ok_or(io::ErrorKind::InvalidInput)?;
            contents.note(address, of_it, zeros, &mut pieces);
            self.0.insert(address, contents);
        }
        Ok(pieces)
    }

    /// Ends the contents of the part at `address`.
    pub fn remove(&mut self, address: u64) {
        self.0.remove(&address);
    }

    /// Ends the contents of all parts but those at addresses for which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        self.0.retain(|&address, _| stays(address));
    }

    /// Returns the bytes of memory that contents take.
    pub fn stored_bytes(&self) -> u64 {
        self.0.values().map(Contents::stored_bytes).sum()
    }

    /// Returns the bytes of memory that the contents of the part at `address` take.
    pub fn stored_bytes_of(&self, address: u64) -> u64 {
        self.0.get(&address).map_or(0, Contents::stored_bytes)
    }

    /// Returns the chunks of the part at `address`, with their digests. Those without room are zeros.
    pub fn chunks(&self, address: u64) -> impl Iterator<Item = (Piece, Digest)> {
        self.0.get(&address).into_iter().flat_map(move |contents| {
            contents.chunks.iter().enumerate().map(move |(index, chunk)| {
                let room = chunk.stored.then(|| contents.room(index));
                (Piece { address: address + index as u64 * CHUNK_BYTES, room }, chunk.digest)
            })
        })
    }

    /// Changes the first byte of the part at `address`, as broken memory would.
    #[cfg(test)]
    pub fn damage(&self, address: u64) {
        let room = self.0[&address].room(0);
        // SAFETY: the byte lies in the mapping (invariant); no other thread is there in tests.
        unsafe { *(room.0 as *mut u8) ^= 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEROS: Digest = [0, 0];

    #[test]
    fn only_what_has_changed_is_copied() {
        let mut store = Store::default();
        let mut prepare = |parts: &[(u64, u64)], digests: &[u64]| {
            let digests: Vec<_> = digests.iter().map(|&digest| [digest, 0]).collect();
            store.retain(|address| parts.iter().any(|part| part.0 == address));
            let pieces = store.prepare(parts, &digests, ZEROS).unwrap();
            let copied: Vec<_> = pieces.iter().map(|piece| piece.address).collect();
            (copied, store.stored_bytes() / CHUNK_BYTES)
        };
        let [a, b, next] = [1 << 30, 2 << 30, CHUNK_BYTES];
        let both = [(a, 3 * next), (b, next)];
        assert_eq!(prepare(&both, &[1, 0, 2, 3]), (vec![a, a + 2 * next, b], 3));
        assert_eq!(prepare(&both, &[1, 0, 2, 3]), (vec![], 3), "unchanged");
        assert_eq!(prepare(&both, &[1, 4, 0, 5]), (vec![a + next, b], 3), "zeros give their room back");
        assert_eq!(prepare(&[(b, next)], &[5]), (vec![], 1), "freed");
        assert_eq!(prepare(&both, &[1, 4, 0, 5]), (vec![a, a + next], 3), "new at the same address");
        assert_eq!(prepare(&[(a, next)], &[1]), (vec![a], 1), "of another size");
        assert_eq!(prepare(&[], &[]), (vec![], 0));
        assert!(store.prepare(&both, &[[1, 0]; 3], ZEROS).is_err(), "fewer digests than chunks");
    }

    #[test]
    fn rooms_keep_what_was_stored() {
        let mut store = Store::default();
        let pieces = store.prepare(&[(0, 2 * CHUNK_BYTES)], &[[1, 1], ZEROS], ZEROS).unwrap();
        let chunk = vec![7; CHUNK_BYTES as usize];
        // SAFETY: the store lives, and there is no other thread.
        unsafe { pieces[0].room.unwrap().store(&chunk) };
        let chunks: Vec<_> = store.chunks(0).collect();
        assert_eq!((chunks[0], chunks.len()), ((pieces[0], [1, 1]), 2));
        assert_eq!(chunks[1], (Piece { address: CHUNK_BYTES, room: None }, ZEROS));
        let mut back = vec![0; CHUNK_BYTES as usize];
        // SAFETY: as above.
        unsafe { pieces[0].room.unwrap().load(&mut back) };
        assert!(back == chunk);
        assert_eq!(store.chunks(5).count(), 0, "unknown");
    }
}
