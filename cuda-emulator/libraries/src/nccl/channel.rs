// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A rank's ends of its channels: rings of bytes in the shared memory. The position of the local end is stored in
//! this process, where other ranks cannot write. That of the other end is checked whenever it is read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::segment::{ROOM, Segment};
use super::{REMOTE_ERROR, Status};

/// All channels from and to a rank.
pub struct Links {
    segment: Arc<Segment>,
    rank: usize,
    /// Bytes that were ever sent to each rank.
    sent: Vec<u64>,
    /// Bytes that were ever received from each rank.
    received: Vec<u64>,
}

impl Links {
    /// The channels of a rank that has not used them yet.
    pub fn new(segment: Arc<Segment>, rank: usize, ranks: usize) -> Self {
        Self { segment, rank, sent: vec![0; ranks], received: vec![0; ranks] }
    }

    /// Bytes that a rank's channel has room for.
    ///
    /// Errors: the rank has written nonsense.
    pub fn room(&self, to: usize) -> Result<usize, Status> {
        let read = self.segment.ends(self.rank, to).read.load(Ordering::Acquire);
        let unread = usize::try_from(self.sent[to].wrapping_sub(read)).map_err(|_| REMOTE_ERROR)?;
        ROOM.checked_sub(unread).ok_or(REMOTE_ERROR)
    }

    /// Bytes that have come from a rank.
    ///
    /// Errors: the rank has written nonsense.
    pub fn available(&self, from: usize) -> Result<usize, Status> {
        let written = self.segment.ends(from, self.rank).written.load(Ordering::Acquire);
        let unread = usize::try_from(written.wrapping_sub(self.received[from])).map_err(|_| REMOTE_ERROR)?;
        if unread <= ROOM { Ok(unread) } else { Err(REMOTE_ERROR) }
    }

    /// Sends bytes, for which there must be room.
    ///
    /// # Safety
    ///
    /// `data` has that many bytes, which may change meanwhile.
    pub unsafe fn send(&mut self, to: usize, data: *const u8, bytes: usize) {
        assert!(bytes <= ROOM, "checked by the caller");
        let (ring, at) = (self.segment.ring_of(self.rank, to), self.sent[to] as usize % ROOM);
        let first = bytes.min(ROOM - at);
        // SAFETY: `data` has the bytes by this function's contract; both pieces lie in the ring. Its bytes are no Rust object:
        // the other rank may read them, and a hostile one write, at any time.
        unsafe {
            std::ptr::copy_nonoverlapping(data, ring.add(at), first);
            std::ptr::copy_nonoverlapping(data.add(first), ring, bytes - first);
        }
        self.sent[to] = self.sent[to].wrapping_add(bytes as u64);
        self.segment.ends(self.rank, to).written.store(self.sent[to], Ordering::Release);
        self.segment.ring(to);
    }

    /// Receives bytes, which must have come.
    ///
    /// # Safety
    ///
    /// `place` has room for that many bytes.
    pub unsafe fn receive(&mut self, from: usize, place: *mut u8, bytes: usize) {
        assert!(bytes <= ROOM, "checked by the caller");
        let (ring, at) = (self.segment.ring_of(from, self.rank), self.received[from] as usize % ROOM);
        let first = bytes.min(ROOM - at);
        // SAFETY: `place` has room by this function's contract; both pieces lie in the ring, whose bytes are no Rust object and
        // may be any.
        unsafe {
            std::ptr::copy_nonoverlapping(ring.add(at), place, first);
            std::ptr::copy_nonoverlapping(ring, place.add(first), bytes - first);
        }
        self.received[from] = self.received[from].wrapping_add(bytes as u64);
        self.segment.ends(from, self.rank).read.store(self.received[from], Ordering::Release);
        self.segment.ring(from);
    }
}
