// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents that are copied chunk by chunk while their session runs.

use std::io;

use super::{Chunk, Contents, Store};
use crate::suspend::digests::Digest;
use crate::suspend::room::{CHUNK_BYTES, Room};

impl Store {
    /// Takes new contents of the chunk at `address`, in the part at `base` of `bytes` bytes. They are in `room`, or zeros without one.
    ///
    /// Errors: the process gets no addresses, or the part has no such chunk, whose room is given back. What was there is as before.
    pub fn renew(
        &mut self,
        (base, bytes): (u64, u64),
        address: u64,
        digest: Digest,
        room: Option<Room>,
    ) -> io::Result<()> {
        let (result, over) = match self.chunk_of((base, bytes), address) {
            Ok(chunk) => (Ok(()), std::mem::replace(chunk, Chunk { digest, room, is_away: false }).room),
            Err(error) => (Err(error), room),
        };
        over.into_iter().for_each(|room| self.pages.give(room));
        result
    }

    fn chunk_of(&mut self, (base, bytes): (u64, u64), address: u64) -> io::Result<&mut Chunk> {
        if self.contents.get(&base).is_none_or(|contents| contents.bytes() != bytes) {
            self.contents.insert(base, Contents::new(&self.pages, bytes)?);
        }
        let index = address.checked_sub(base).map(|offset| (offset / CHUNK_BYTES) as usize);
        let contents = self.contents.get_mut(&base);
        let chunk = contents.zip(index).and_then(|(contents, index)| contents.chunks.get_mut(index));
        chunk.ok_or(io::ErrorKind::InvalidInput.into())
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
        let room = |store: &Store| store.pages.take(1).unwrap().pop();
        let first = room(&store);
        store.renew(part, at(1), [1, 1], first).unwrap();
        let next = room(&store);
        store.renew(part, at(1), [2, 2], next).unwrap();
        assert!(room(&store) == first, "the room of what was before is free");
        let another = room(&store);
        store.renew(part, at(2), [3, 3], another).unwrap();
        store.renew(part, at(3), ZEROS, None).unwrap();
        assert!(store.renew(part, at(4), [1, 1], None).is_err(), "behind the part");
        assert!(store.renew(part, AT - CHUNK_BYTES, [1, 1], None).is_err(), "before it");
        let rooms: Vec<_> = store.rooms().map(|(address, digest, _)| (address, digest)).collect();
        assert_eq!(rooms, [(at(1), [2, 2]), (at(2), [3, 3])]);
        let pieces = store.prepare(&[part], &[[7, 7], [2, 2], [4, 4], ZEROS], ZEROS).unwrap();
        let copied: Vec<_> = pieces.iter().map(|piece| piece.address).collect();
        assert_eq!(copied, [at(0), at(2)]);
        store.renew(part, at(0), ZEROS, None).unwrap();
        assert_eq!(store.stored_bytes(), 2 * CHUNK_BYTES, "zeros give their room back");
        let small = room(&store);
        store.renew((AT, CHUNK_BYTES), at(0), [1, 1], small).unwrap();
        assert_eq!(store.stored_bytes(), CHUNK_BYTES);
    }
}
