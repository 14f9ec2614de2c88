// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents that are copied chunk by chunk while their session runs.

use std::io;

use super::{Chunk, Contents, Store};
use crate::suspend::digests::Digest;
use crate::suspend::room::{CHUNK_BYTES, Room};

impl Store {
    /// Takes new contents of the chunk at `address`, in the part at `base` of `bytes` bytes. Returns their room, which the caller fills, or
    /// `None` for zeros.
    ///
    /// Errors: the process gets no addresses, or the part has no such chunk. The chunk is as before.
    pub fn renew(
        &mut self,
        (base, bytes): (u64, u64),
        address: u64,
        digest: Digest,
        zeros: Digest,
    ) -> io::Result<Option<Room>> {
        if self.contents.get(&base).is_none_or(|contents| contents.bytes() != bytes) {
            self.contents.insert(base, Contents::new(&self.pages, bytes)?);
        }
        let index = address.checked_sub(base).map(|offset| (offset / CHUNK_BYTES) as usize);
        let contents = self.contents.get_mut(&base);
        let chunk = contents.zip(index).and_then(|(contents, index)| contents.chunks.get_mut(index));
        let chunk = chunk.ok_or(io::ErrorKind::InvalidInput)?;
        if digest == zeros {
            chunk.room.take().into_iter().for_each(|room| self.pages.give(room));
        } else if chunk.room.is_none_or(Room::is_saved) {
            // The file of saved contents stays as it is.
            let before = std::mem::replace(&mut chunk.room, self.pages.take(1)?.pop());
            before.into_iter().for_each(|room| self.pages.give(room));
        }
        *chunk = Chunk { digest, room: chunk.room, is_away: false };
        Ok(chunk.room)
    }

    /// Returns the chunks that take memory: their addresses, digests and rooms.
    pub fn rooms(&self) -> impl Iterator<Item = (u64, Digest, Room)> {
        self.contents.iter().flat_map(|(&base, contents)| {
            let chunks = contents.chunks.iter().zip(0..);
            chunks.filter_map(move |(chunk, index)| {
                Some((base + index * CHUNK_BYTES, chunk.digest, chunk.room?))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1 << 40;
    const ZEROS: Digest = [0, 0];

    #[test]
    fn what_was_copied_ahead_is_not_copied_again() {
        let mut store = Store::default();
        let part = (AT, 4 * CHUNK_BYTES);
        let at = |index: u64| AT + index * CHUNK_BYTES;
        let first = store.renew(part, at(1), [1, 1], ZEROS).unwrap().unwrap();
        assert_eq!(store.renew(part, at(1), [2, 2], ZEROS).unwrap(), Some(first), "its room stays");
        assert!(store.renew(part, at(2), [3, 3], ZEROS).unwrap().is_some());
        assert_eq!(store.renew(part, at(3), ZEROS, ZEROS).unwrap(), None);
        assert!(store.renew(part, at(4), [1, 1], ZEROS).is_err(), "behind the part");
        assert!(store.renew(part, AT - CHUNK_BYTES, [1, 1], ZEROS).is_err(), "before it");
        let rooms: Vec<_> = store.rooms().map(|(address, digest, _)| (address, digest)).collect();
        assert_eq!(rooms, [(at(1), [2, 2]), (at(2), [3, 3])]);
        let pieces = store.prepare(&[part], &[[7, 7], [2, 2], [4, 4], ZEROS], ZEROS).unwrap();
        let copied: Vec<_> = pieces.iter().map(|piece| piece.address).collect();
        assert_eq!(copied, [at(0), at(2)]);
        assert_eq!(store.renew(part, at(0), ZEROS, ZEROS).unwrap(), None, "zeros give their room back");
        assert_eq!(store.stored_bytes(), 2 * CHUNK_BYTES);
        assert!(store.renew((AT, CHUNK_BYTES), at(0), [1, 1], ZEROS).unwrap().is_some(), "another size");
        assert_eq!(store.stored_bytes(), CHUNK_BYTES);
    }
}
