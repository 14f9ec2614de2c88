// SPDX-License-Identifier: GPL-2.0-only

//! A byte string in physically contiguous pieces, suitable for a descriptor chain.

use core::cmp::min;
use kernel::{
    prelude::*,
    uaccess::{
        UserSliceReader,
        UserSliceWriter, //
    },
};

/// Maximum bytes of a piece: the largest size that the page allocator always provides (`PAGE_ALLOC_COSTLY_ORDER`).
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// The byte string. Its pieces never move once they contain data.
pub(crate) struct Chunks {
    pieces: KVec<KVec<u8>>,
    /// Number of bytes that may still be appended.
    room: usize,
}

impl Chunks {
    /// Returns an empty byte string with a capacity of `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Result<Self> {
        Ok(Self {
            pieces: KVec::with_capacity(bytes.div_ceil(PIECE_BYTES), GFP_KERNEL_ACCOUNT)?,
            room: bytes,
        })
    }

    /// Returns `bytes` zeros.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self> {
        let mut this = Self::with_capacity(bytes)?;
        while this.room > 0 {
            this.tail(this.room)?;
        }
        Ok(this)
    }

    /// Appends up to `want` zeros in one piece and returns them; empty only if there is no room.
    fn tail(&mut self, want: usize) -> Result<&mut [u8]> {
        let want = min(want, self.room);
        let full = self.pieces.last().is_none_or(|p| p.len() >= p.capacity());
        if full {
            let piece = KVec::with_capacity(min(self.room, PIECE_BYTES), GFP_KERNEL_ACCOUNT)?;
            self.pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        }
        let piece = self.pieces.last_mut().ok_or(EINVAL)?;
        let start = piece.len();
        // An allocator may return more than requested; the excess is not used.
        let limit = min(piece.capacity(), PIECE_BYTES);
        let end = min(start + want, limit);
        piece.resize(end, 0, GFP_KERNEL_ACCOUNT)?;
        self.room -= end - start;
        Ok(&mut piece[start..])
    }

    /// Appends `bytes`. `EINVAL`: more than the capacity.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > self.room {
            return Err(EINVAL);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = self.tail(rest.len())?;
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    /// Appends `bytes` bytes of user memory.
    pub(crate) fn append_user(&mut self, mut from: UserSliceReader, bytes: usize) -> Result {
        if bytes > self.room {
            return Err(EINVAL);
        }
        let mut rest = bytes;
        while rest > 0 {
            let piece = self.tail(rest)?;
            from.read_slice(piece)?;
            rest -= piece.len();
        }
        Ok(())
    }

    /// Overwrites the first bytes. `EINVAL`: they are not all in the first piece.
    pub(crate) fn overwrite(&mut self, bytes: &[u8]) -> Result {
        let first = self.pieces.first_mut().ok_or(EINVAL)?;
        first
            .get_mut(..bytes.len())
            .ok_or(EINVAL)?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// Returns the pieces in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &piece[..])
    }

    /// Calls a function with `bytes` bytes from `offset` on, piece by piece. `EINVAL`: there are fewer bytes.
    fn visit(
        &self,
        offset: usize,
        bytes: usize,
        mut visitor: impl FnMut(&[u8]) -> Result,
    ) -> Result {
        let mut skip = offset;
        let mut rest = bytes;
        for piece in self.pieces() {
            let here = piece.get(skip..).unwrap_or(&[]);
            skip -= min(skip, piece.len());
            let here = &here[..min(here.len(), rest)];
            if !here.is_empty() {
                visitor(here)?;
                rest -= here.len();
            }
        }
        if rest == 0 {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Copies bytes from `offset` on to `into`.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> Result {
        let mut done = 0;
        self.visit(offset, into.len(), |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
            Ok(())
        })
    }

    /// Copies `bytes` bytes from `offset` on to user memory.
    pub(crate) fn read_user(
        &self,
        offset: usize,
        bytes: usize,
        into: &mut UserSliceWriter,
    ) -> Result {
        self.visit(offset, bytes, |piece| into.write_slice(piece))
    }
}

#[kunit_tests(virtio_cuda_chunks)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_pieces() -> Result {
        let total = 2 * PIECE_BYTES + 100;
        let mut chunks = Chunks::with_capacity(total)?;
        for i in 0..total / 4 {
            chunks.append(&(i as u32).to_le_bytes())?;
        }
        assert!(chunks.pieces().all(|p| p.len() <= PIECE_BYTES));
        assert_eq!(chunks.pieces().count(), 3);
        let mut word = [0; 4];
        for i in [0, PIECE_BYTES / 4 - 1, PIECE_BYTES / 4, total / 4 - 1] {
            chunks.read(i * 4, &mut word)?;
            assert_eq!(u32::from_le_bytes(word), i as u32);
        }
        let mut across = [0; 6];
        chunks.read(PIECE_BYTES - 2, &mut across)?;
        let next = (PIECE_BYTES as u32 / 4).to_le_bytes();
        assert_eq!(across[2..], next);
        assert!(chunks.read(total - 2, &mut word).is_err());
        Ok(())
    }

    #[test]
    fn the_capacity_is_a_limit() -> Result {
        let mut chunks = Chunks::with_capacity(10)?;
        chunks.append(&[1; 10])?;
        assert!(chunks.append(&[1]).is_err());
        chunks.overwrite(&[2; 4])?;
        assert!(chunks.overwrite(&[2; 11]).is_err());
        let mut all = [0; 10];
        chunks.read(0, &mut all)?;
        assert_eq!(all, [2, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
        Ok(())
    }

    #[test]
    fn zeroed_has_all_its_bytes() -> Result {
        let chunks = Chunks::zeroed(PIECE_BYTES + 1)?;
        let lengths = chunks.pieces().map(|p| p.len());
        assert!(lengths.eq([PIECE_BYTES, 1]));
        assert_eq!(Chunks::zeroed(0)?.pieces().count(), 0);
        Ok(())
    }
}
