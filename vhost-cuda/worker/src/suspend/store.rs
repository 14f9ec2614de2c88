// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of suspended memory, in host memory of this process.
//!
//! Contents are stored in chunks. A chunk of zeros takes no memory. Contents stay when the session is resumed, so that the next
//! suspension copies only chunks that have changed.

mod ahead;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use vhost_cuda_common::parts::{FILES, Place, malformed};

use super::digests::Digest;
use super::lent::{Files, Offer};
use super::pages::Pages;
use super::room::{CHUNK_BYTES, Room};
use super::transfer::Piece;

/// The name of contents that have left host memory.
pub type Name = [u8; 16];
/// The maximum number of threads that write contents to files.
const MAX_THREADS: usize = FILES;

/// A chunk of a part.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// The digest of its contents.
    digest: Digest,
    /// The room with these contents, or for them when the suspension succeeds. `None` for zeros.
    room: Option<Room>,
    /// True if the contents have left host memory.
    is_away: bool,
}

/// The contents of a part.
///
/// # Invariants
///
/// The rooms of `chunks` were taken from `pages`, each for one chunk.
#[derive(Debug)]
struct Contents {
    pages: Arc<Pages>,
    chunks: Vec<Chunk>,
}

impl Contents {
    fn new(pages: &Arc<Pages>, bytes: u64) -> io::Result<Self> {
        let count = (bytes / CHUNK_BYTES) as usize;
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        chunks.resize(count, Chunk::default());
        Ok(Self { pages: pages.clone(), chunks })
    }

    fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }

    fn stored_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.room.is_some()).count() as u64 * CHUNK_BYTES
    }

    /// Notes the digests of the part at `address`. Adds the chunks whose contents are to be copied to `pieces`.
    ///
    /// Errors: the process gets no addresses. The contents are of no use then.
    fn note(
        &mut self,
        address: u64,
        digests: &[Digest],
        zeros: Digest,
        pieces: &mut Vec<Piece>,
    ) -> io::Result<()> {
        // The file of saved contents stays as it is.
        let keeps = |chunk: &Chunk, digest: &Digest| {
            chunk.room.is_some_and(|room| !room.is_saved() || chunk.digest == *digest)
        };
        let both = || self.chunks.iter().zip(digests);
        let missing = both().filter(|(chunk, digest)| **digest != zeros && !keeps(chunk, digest)).count();
        let mut rooms = self.pages.take(missing)?.into_iter();
        for ((chunk, &digest), index) in self.chunks.iter_mut().zip(digests).zip(0..) {
            let mut before = std::mem::replace(chunk, Chunk { digest, ..Chunk::default() });
            if digest == zeros || !keeps(&before, &digest) {
                before.room.take().into_iter().for_each(|room| self.pages.give(room));
            }
            if digest == zeros {
                continue;
            }
            chunk.room = Some(before.room.or_else(|| rooms.next()).ok_or(io::ErrorKind::OutOfMemory)?);
            if before.room.is_none() || before.digest != digest {
                pieces.push(Piece { address: address + index * CHUNK_BYTES, room: chunk.room });
            }
        }
        Ok(())
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.chunks.iter().filter_map(|chunk| chunk.room).for_each(|room| self.pages.give(room));
    }
}

/// The contents of all parts of a session, by their addresses.
#[derive(Debug, Default)]
pub struct Store {
    pages: Arc<Pages>,
    contents: BTreeMap<u64, Contents>,
    /// Files for the contents of the suspension.
    pub offer: Option<Offer>,
}

impl Store {
    /// Stores contents in `pages`.
    pub fn new(pages: &Arc<Pages>) -> Self {
        Self { pages: pages.clone(), ..Self::default() }
    }

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
            let same = self.contents.remove(&address).filter(|contents| contents.bytes() == bytes);
            let mut contents = same.map_or_else(|| Contents::new(&self.pages, bytes), Ok)?;
            let of_it;
            let count = contents.chunks.len();
            (of_it, digests) = digests.split_at_checked(count).ok_or(io::ErrorKind::InvalidInput)?;
            contents.note(address, of_it, zeros, &mut pieces)?;
            self.contents.insert(address, contents);
        }
        Ok(pieces)
    }

    /// Ends the contents of the part at `address`.
    pub fn remove(&mut self, address: u64) {
        self.contents.remove(&address);
    }

    /// Ends the contents of all parts but those at addresses for which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        self.contents.retain(|&address, _| stays(address));
    }

    /// Returns the chunks that take memory, by their addresses.
    pub fn stored(&self) -> impl Iterator<Item = (u64, Room)> {
        let of_part = |(&base, contents): (&u64, &Contents)| {
            let with_room = |(chunk, index): (&Chunk, u64)| Some((base + index * CHUNK_BYTES, chunk.room?));
            contents.chunks.iter().zip(0..).filter_map(with_room).collect::<Vec<_>>()
        };
        self.contents.iter().flat_map(of_part)
    }

    /// Gives up all contents, which are away then.
    pub fn leave(&mut self) {
        for chunk in self.contents.values_mut().flat_map(|contents| &mut contents.chunks) {
            if let Some(room) = chunk.room.take() {
                self.pages.give(room);
                chunk.is_away = true;
            }
        }
    }

    /// Returns the number of chunks that are away.
    pub fn away(&self) -> usize {
        let chunks = self.contents.values().flat_map(|contents| &contents.chunks);
        chunks.filter(|chunk| chunk.is_away).count()
    }

    /// Takes memory for all chunks that are away.
    ///
    /// Errors: the process gets no addresses.
    pub fn provide(&mut self) -> io::Result<()> {
        let mut rooms = self.pages.take(self.away())?.into_iter();
        let chunks = self.contents.values_mut().flat_map(|contents| &mut contents.chunks);
        chunks.filter(|chunk| chunk.is_away).for_each(|chunk| chunk.room = rooms.next());
        Ok(())
    }

    /// Takes no more contents to the files of the offer.
    pub fn without_offer(self) -> Self {
        Self { offer: None, ..self }
    }

    fn chunk_at(&mut self, address: u64) -> Option<&mut Chunk> {
        let (base, contents) = self.contents.range_mut(..=address).next_back()?;
        let offset = address - base;
        let index =
            usize::try_from(offset / CHUNK_BYTES).ok().filter(|_| offset.is_multiple_of(CHUNK_BYTES))?;
        contents.chunks.get_mut(index)
    }

    /// Returns the chunk at `address`, if it is away.
    fn away_at(&mut self, address: u64) -> Option<&mut Chunk> {
        self.chunk_at(address).filter(|chunk| chunk.is_away)
    }

    /// Takes the chunks that are in the files of the offer from there.
    ///
    /// Errors: the files cannot be mapped. The contents of these chunks are of no use then.
    pub fn settle(&mut self) -> io::Result<()> {
        let Some(offer) = &self.offer else { return Ok(()) };
        let places = offer.places();
        let offsets: Vec<u64> = places.iter().map(|place| place.offset).collect();
        let rooms = self.pages.take_of(offer.map()?, &offsets)?;
        for (place, room) in places.iter().zip(rooms) {
            let chunk = self.chunk_at(place.address).and_then(|chunk| chunk.room.as_mut());
            let over = chunk.map_or(room, |own| std::mem::replace(own, room));
            self.pages.give(over);
        }
        Ok(())
    }

    /// Returns the memory for the chunk at `address`, which is away until now. `None` if there is no such chunk.
    pub fn arrive(&mut self, address: u64) -> Option<Room> {
        let chunk = self.away_at(address)?;
        chunk.is_away = chunk.room.is_none();
        chunk.room
    }

    /// Moves all contents to files, in which they may be already by the offer. Returns their places there. Each chunk is in one of both all the time, so
    /// this takes little more host memory.
    ///
    /// Errors: those of the files. All contents are there, some of them in the files.
    pub fn move_to(&mut self, files: &Files) -> io::Result<Vec<Place>> {
        let pages = &self.pages;
        let (there, next) = self.offer.as_ref().map_or_else(Default::default, |offer| offer.places_in(files));
        let there: HashMap<u64, u64> = there.iter().map(|place| (place.address, place.offset)).collect();
        let stored: Vec<u64> = self.stored().map(|(address, _)| address).collect();
        let mut behind = next..;
        let mut place = |&address: &u64| match there.get(&address) {
            Some(&offset) => Place { address, offset },
            None => Place { address, offset: behind.next().unwrap_or(next) * CHUNK_BYTES },
        };
        let all: Vec<Place> = stored.iter().map(&mut place).collect();
        let chunks = self.contents.values_mut().flat_map(|contents| &mut contents.chunks);
        let rooms = chunks.filter_map(|chunk| chunk.room.as_mut()).zip(&stored);
        let rooms = rooms.filter(|(_, address)| !there.contains_key(address)).map(|(room, _)| room);
        let rooms: Vec<&mut Room> = rooms.collect();
        let places: Vec<u64> = (next..).take(rooms.len()).map(|index| index * CHUNK_BYTES).collect();
        let threads = thread::available_parallelism().map_or(1, |count| count.get());
        let threads = threads.clamp(1, MAX_THREADS).min(rooms.len());
        let theirs = pages.take_of(files.provide(next as usize + places.len())?, &places)?;
        let left = Mutex::new(rooms.into_iter().zip(theirs).zip(&places));
        let (next, failure) = (|| left.lock().next(), Mutex::new(None));
        let run = || {
            while let Some(((room, other), &place)) = next() {
                let is_over = failure.lock().is_some();
                // SAFETY: a room of this store, which is borrowed: each is one thread's.
                match if is_over { Ok(false) } else { unsafe { files.write(place, *room) }.map(|()| true) } {
                    Ok(true) => pages.give(std::mem::replace(room, other)),
                    Ok(false) => pages.give(other),
                    Err(error) => {
                        failure.lock().get_or_insert(error);
                        pages.give(other);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // Without a thread the others do its work.
                let _ = thread::Builder::new().name("suspend-share".into()).spawn_scoped(scope, run);
            }
            run();
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        Ok(all)
    }

    /// Takes the contents of all chunks that are away from files, where they are at these places.
    ///
    /// Errors: a chunk is not among them, is there twice, is not away, or has no place of its own in the files. All are away still.
    pub fn take_from(&mut self, files: &Files, places: &[Place]) -> io::Result<()> {
        let mut seen = BTreeSet::new();
        let mut is_new = |place: &Place| seen.insert(place.address) && self.away_at(place.address).is_some();
        if !places.iter().all(&mut is_new) || places.len() != self.away() {
            return Err(malformed("its places are not those of the chunks that are away"));
        }
        let offsets: Vec<u64> = places.iter().map(|place| place.offset).collect();
        let rooms = files.map().and_then(|areas| self.pages.take_of(areas, &offsets));
        let rooms = rooms.map_err(|_| malformed("a chunk is not in the files, or where another one is"))?;
        for (place, room) in places.iter().zip(rooms) {
            if let Some(chunk) = self.away_at(place.address) {
                *chunk = Chunk { digest: chunk.digest, room: Some(room), is_away: false };
            }
        }
        Ok(())
    }

    /// Returns the digests of the chunks of each part, by its address.
    pub fn digests(&self) -> impl Iterator<Item = (u64, Vec<Digest>)> {
        let digests = |contents: &Contents| contents.chunks.iter().map(|chunk| chunk.digest).collect();
        self.contents.iter().map(move |(&address, contents)| (address, digests(contents)))
    }

    /// Returns the bytes of memory that contents take.
    pub fn stored_bytes(&self) -> u64 {
        self.contents.values().map(Contents::stored_bytes).sum()
    }

    /// Returns the bytes of memory that the contents of the part at `address` take.
    pub fn stored_bytes_of(&self, address: u64) -> u64 {
        self.contents.get(&address).map_or(0, Contents::stored_bytes)
    }

    /// Returns the chunks of the part at `address`, with their digests. Those without room are zeros.
    pub fn chunks(&self, address: u64) -> impl Iterator<Item = (Piece, Digest)> {
        self.contents.get(&address).into_iter().flat_map(move |contents| {
            contents.chunks.iter().zip(0..).map(move |(chunk, index)| {
                (Piece { address: address + index * CHUNK_BYTES, room: chunk.room }, chunk.digest)
            })
        })
    }

    /// Changes the first byte of the part at `address`, as broken memory would.
    #[cfg(test)]
    pub fn damage(&self, address: u64) {
        self.contents[&address].chunks[0].room.unwrap().damage();
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
        unsafe { pieces[0].room.unwrap().load(&mut back) }.unwrap();
        assert!(back == chunk);
        assert_eq!(store.chunks(5).count(), 0, "unknown");
    }
}
