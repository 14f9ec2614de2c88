// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The boundary between the meaning of a call and its transport.

use std::sync::OnceLock;

use crate::ClientError;

/// Memory of the program that a request names: an address and a length in bytes.
///
/// It may be dangling, as a raw pointer may: the program chose it. Functions that access it are unsafe to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserMemory {
    /// First byte.
    pub address: usize,
    /// Bytes; 0 for none.
    pub bytes: usize,
}

impl UserMemory {
    /// No memory.
    pub const NONE: Self = Self { address: 0, bytes: 0 };

    /// The memory of a slice.
    pub fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr() as usize, bytes: bytes.len() }
    }

    /// The memory of a mutable slice.
    pub fn of_mut(bytes: &mut [u8]) -> Self {
        Self { address: bytes.as_mut_ptr() as usize, bytes: bytes.len() }
    }

    /// Passes copies of the pieces of the memory to `take`, in their order.
    ///
    /// # Safety
    /// The memory is readable. Other threads may write it: then the copies have some of the bytes.
    pub unsafe fn read(self, mut take: impl FnMut(&[u8])) {
        const PIECE_BYTES: usize = 64 << 10;
        let mut piece = Vec::new();
        for start in (0..self.bytes).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(self.bytes - start);
            piece.clear();
            // SAFETY: a part of the memory, which is readable by this function's contract.
            unsafe { Self { address: self.address + start, bytes }.append_to(&mut piece) };
            take(&piece);
        }
    }

    /// A copy of the memory.
    ///
    /// # Safety
    /// The memory is readable. Other threads may write it: then the copy has some of the bytes.
    pub unsafe fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::new();
        // SAFETY: this function has the contract of `append_to`.
        unsafe { self.append_to(&mut copy) };
        copy
    }

    /// Appends a copy of the memory.
    ///
    /// # Safety
    /// The memory is readable. Other threads may write it: then the copy has some of the bytes.
    pub unsafe fn append_to(self, copy: &mut Vec<u8>) {
        if self.bytes == 0 {
            return;
        }
        copy.reserve(self.bytes);
        // SAFETY: readable by this function's contract; the vector has reserved room for as many bytes behind its end, and
        // they are initialised when its length says so. No reference to the memory is made.
        unsafe {
            let end = copy.as_mut_ptr().add(copy.len());
            std::ptr::copy_nonoverlapping(self.address as *const u8, end, self.bytes);
            copy.set_len(copy.len() + self.bytes);
        }
    }
}

/// One opaque call.
#[derive(Debug)]
pub struct Request<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The buffer for the reply.
    pub reply: &'a mut [u8],
    /// Memory that the device reads.
    pub input: UserMemory,
    /// Memory that the device writes or, with `keep`, maps until [`Transport::unpin`].
    pub output: UserMemory,
    /// Keep the pages of `output`, whose ends are page aligned.
    pub keep: bool,
    /// With `keep`: the pages are pageable, and the program may unmap them at any time; [`Transport::is_fresh`]
    /// reports that.
    pub track: bool,
    /// With `keep`, without `track`: the device only reads the pages, so that the program need not be able to write them.
    pub read_only: bool,
    /// Number of the calling thread, from 1: calls of different threads may travel apart.
    pub thread: u32,
    /// Returns whether a reply means that the device wrote `output`; otherwise the program's memory stays unchanged.
    pub delivers_output: fn(&[u8]) -> bool,
}

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Bytes written into [`Request::reply`].
    pub bytes: usize,
    /// With `keep`: the tag of the kept pages.
    pub tag: u64,
}

/// Bounds of one call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of a payload and of a reply, in bytes.
    pub payload_bytes: usize,
    /// Maximum length of `input` and of `output`, in bytes.
    pub bulk_bytes: usize,
    /// Pieces in which a longer copy travels best; at most `bulk_bytes`.
    pub copy_bytes: usize,
    /// Maximum number of outstanding calls of the session.
    pub outstanding: u32,
    /// Maximum bytes that the session keeps at once.
    pub kept_bytes: u64,
}

/// The division of a long copy into calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of the pieces, each a call of its own.
    pub piece_bytes: usize,
    /// The number of pieces that should be under way at the same time.
    pub at_once: usize,
}

impl Pieces {
    /// For memory that the device reads and writes where it lies, in pieces of at most `most` bytes: while one
    /// piece is copied, the list of the next one's pages is on its way.
    pub fn in_place(most: usize) -> Self {
        const PIECE_BYTES: usize = 4 << 20;
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        Self { piece_bytes: most.min(PIECE_BYTES), at_once: cores.clamp(2, MAX_AT_ONCE) }
    }
}

/// Maximum number of pieces of a copy that are under way at once.
pub const MAX_AT_ONCE: usize = 6;

/// A transport to the device. One value is one session.
pub trait Transport: Send + Sync {
    /// Bounds of one call.
    fn limits(&self) -> Limits;

    /// The best division of a long copy of `memory` into calls.
    fn pieces(&self, memory: UserMemory) -> Pieces;

    /// Returns whether other processors than this process's execute the calls.
    fn has_other_processors(&self) -> bool {
        false
    }

    /// Submits a call and waits for its reply.
    ///
    /// # Safety
    /// Until this returns, [`Request::input`] is readable, and [`Request::output`] is writable and no reference to it is
    /// used; with [`Request::keep`], the latter until [`Self::unpin`].
    unsafe fn call(&self, request: Request<'_>) -> Result<Reply, ClientError>;

    /// Maximum bytes of pageable memory that stay kept and tracked; 0 for none.
    fn cache_bytes(&self) -> u64 {
        0
    }

    /// Returns whether `memory` can be kept and tracked.
    fn can_track(&self, _memory: UserMemory) -> bool {
        false
    }

    /// Returns whether the program still has, at the same addresses, the pages that were kept and tracked under `tag`.
    /// Once false, it stays false.
    fn is_fresh(&self, _tag: u64) -> bool {
        false
    }

    /// Takes back pages kept under `tag`. When this returns, the worker no longer maps them.
    fn unpin(&self, tag: u64) -> Result<(), ClientError>;

    /// Maps `bytes` (whole pages) of zeroed memory that the session's worker maps too, permanently. Returns its address in
    /// this process, and its tag. A forked child does not have it.
    fn share(&self, bytes: usize) -> Result<(*mut u8, u64), ClientError>;

    /// Backs `memory` (page aligned, reserved by the caller, inaccessible) with zeroed pages of a kind that
    /// calls can keep.
    fn map(&self, memory: UserMemory) -> Result<(), ClientError>;

    /// Gives the pages of [`Transport::map`] back and leaves the addresses reserved and inaccessible.
    fn unmap(&self, memory: UserMemory);

    /// Makes pages that the program already uses (page aligned) fit for keeping, contents unchanged. `read_only`: for
    /// [`Request::read_only`].
    fn adopt(&self, memory: UserMemory, read_only: bool) -> Result<(), ClientError>;

    /// Undoes one [`Transport::adopt`].
    fn release(&self, memory: UserMemory);

    /// For benchmarks: at least `bytes` of memory that the device can reach and whose pages it finds in random
    /// order. `None` where pageable memory is scattered already, or there is no room.
    fn map_scattered(&self, _bytes: usize) -> Option<UserMemory> {
        None
    }

    /// Undoes [`Transport::map_scattered`]. Returns false if there is no such memory at `address`.
    fn unmap_scattered(&self, _address: usize) -> bool {
        false
    }

    /// Leaves the session to the parent, in the child of a fork: closes descriptors, and gives the child its own copy of memory
    /// that would stay shared. Takes no lock and allocates nothing. The transport is never used afterwards.
    fn in_child(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_memory_in_its_order() {
        for bytes in [0, 1, 64 << 10, (200 << 10) + 1] {
            let memory: Vec<u8> = (0..bytes as u32).map(|byte| (byte % 251) as u8).collect();
            let mut read = Vec::new();
            // SAFETY: the vector outlives the call.
            unsafe { UserMemory::of(&memory).read(|piece| read.extend_from_slice(piece)) };
            assert!(read == memory, "{bytes} bytes");
        }
    }
}
