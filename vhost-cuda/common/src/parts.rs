// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of saved sessions: a stream of parts, each with its kind, version, length and digest. `docs/spec/saved-sessions.md` is its
//! specification.
//!
//! Whoever reads a stream trusts nothing of it. No part is longer than [`MAX_BYTES`], and none counts before its digest was compared.

use std::io::{self, Read, Write};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::link::CHUNK_BYTES;

/// The first bytes of each part.
const MAGIC: [u8; 4] = *b"VCSP";
/// The version of all parts.
const VERSION: u16 = 1;
/// The maximum length of a part's contents: a chunk, and its address.
pub const MAX_BYTES: u64 = CHUNK_BYTES + 8;

/// The number of files in a folder of contents, and the maximum number of those that come along with a request.
pub const FILES: usize = 16;

/// Kinds of parts.
pub mod kind {
    /// The session: its number in the daemon's log (`u64`).
    pub const SESSION: u16 = 1;
    /// The chunks that follow: [`super::Contents`].
    pub const CONTENTS: u16 = 2;
    /// A chunk: its address (`u64`), and its bytes.
    pub const CHUNK: u16 = 3;
    /// The end: nothing follows.
    pub const END: u16 = 4;
    /// In place of chunks: their places in files ([`super::Place`]).
    pub const PLACES: u16 = 5;

    // The kinds below are those of a session that goes from one worker to another. They come in this order.

    /// Facts of the session.
    pub const STATE: u16 = 16;
    /// Settings that outlive the driver's objects: a call each.
    pub const SETTING: u16 = 17;
    /// Libraries of NVIDIA that it uses.
    pub const LIBRARIES: u16 = 18;
    /// Addresses that the driver has reserved for it.
    pub const RESERVED: u16 = 19;
    /// The part of these that is lent to the window.
    pub const LENT: u16 = 20;
    /// Further addresses of the window.
    pub const CLAIMED: u16 = 21;
    /// An area of guest memory in the window.
    pub const AREA: u16 = 22;
    /// Allocations of `cuMemCreate`.
    pub const CREATED: u16 = 23;
    /// Their mappings.
    pub const MAPPINGS: u16 = 24;
    /// Regions of `cuMemAlloc`.
    pub const REGIONS: u16 = 25;
    /// Allocations in these.
    pub const ALLOCATIONS: u16 = 26;
    /// Pages that are registered with the GPU.
    pub const REGISTRATIONS: u16 = 27;
    /// Ranges that a GPU address may lie in.
    pub const RANGES: u16 = 28;
    /// Retains of primary contexts.
    pub const RETAINS: u16 = 29;
    /// A call that makes an object again, or sets a setting.
    pub const CALL: u16 = 30;
    /// A piece of a variable of device code.
    pub const VARIABLE: u16 = 31;
    /// Times of events.
    pub const TIMES: u16 = 32;
    /// Positions of lanes.
    pub const LANES: u16 = 33;
    /// A guest thread.
    pub const THREAD: u16 = 34;
    /// A request that was not executed.
    pub const REQUEST: u16 = 35;
    /// Digests of the chunks of a piece of memory.
    pub const DIGESTS: u16 = 36;
    /// The host that the session leaves with its machine.
    pub const HOST: u16 = 37;
    /// Text that device code has printed and the program has not fetched.
    pub const TEXT: u16 = 38;
    /// A piece of the session's graphs.
    pub const GRAPHS: u16 = 40;
    /// Addresses of pieces of memory that stay on the card. The files that keep them come in this order, over a socket of their own. No
    /// contents follow, but the end.
    pub const HELD: u16 = 61;
    /// The devices that the session sees, if there are several, and which ones it uses.
    pub const DEVICES: u16 = 67;
    /// Access of devices to regions of `cuMemAlloc` that does not follow from [`PEERS`].
    pub const ACCESS: u16 = 70;
    /// Contexts that may access the memory of others.
    pub const PEERS: u16 = 71;
    /// Memory that the session has offered to other processes. It stays on the card.
    pub const OFFERED: u16 = 72;
    /// Memory of other processes that the session has opened. It stays on the card.
    pub const OPENED: u16 = 73;

    // The kinds below are those of the state of a machine.

    /// Its queues, and its sessions that do not go along.
    pub const MACHINE: u16 = 48;
    /// An image of device code: its user, length and digest. Its bytes follow in [`PIECE`]s.
    pub const IMAGE: u16 = 49;
    /// The next bytes of an image.
    pub const PIECE: u16 = 50;
    /// What the daemon knows of a session. The session follows as it goes from one worker to another, up to [`END`].
    pub const MEMBER: u16 = 51;
    /// In place of the rest of a session: it does not go along.
    pub const LOST: u16 = 52;
    /// The end of the machine's state.
    pub const LAST: u16 = 53;

    // The kinds below are those of contents that go ahead of their machine.

    /// The beginning of a pass over the memory of a session: the number of chunks that it sends (`u64`).
    pub const PASS: u16 = 54;
    /// After [`CONTENTS`]: the addresses of chunks that have gone ahead, and are not sent again (`u64` each).
    pub const ARRIVED: u16 = 55;
    /// The session whose chunks follow: its id on the wire (`u64`).
    pub const AHEAD: u16 = 56;

    /// Returns whether a part is of a session that goes from one worker to another.
    pub fn is_of_session(kind: u16) -> bool {
        (STATE..=TEXT).contains(&kind)
            || [GRAPHS, DEVICES, ACCESS, PEERS, CONTENTS, CHUNK, PLACES, ARRIVED, END].contains(&kind)
    }
}

/// Writes rows of equal length, in as many parts as they need.
///
/// Errors: as for [`write`].
pub fn write_rows<T: IntoBytes + Immutable>(mut to: impl Write, kind: u16, rows: &[T]) -> io::Result<()> {
    let most = MAX_BYTES as usize / size_of::<T>();
    rows.chunks(most).try_for_each(|some| write(&mut to, kind, &[some.as_bytes()]))
}

/// Appends the rows of a part to `rows`, of which there may be `most`.
///
/// Errors: `InvalidData` for too many, or a row that is cut.
pub fn read_rows<T: FromBytes>(contents: &[u8], rows: &mut Vec<T>, most: usize) -> io::Result<()> {
    let (some, rest) = (contents.chunks_exact(size_of::<T>()), contents.len() % size_of::<T>());
    if rest != 0 || some.len() > most.saturating_sub(rows.len()) {
        return Err(malformed("there are too many rows, or one is cut"));
    }
    rows.extend(some.filter_map(|row| T::read_from_bytes(row).ok()));
    Ok(())
}

/// The head of a part. Numbers are little-endian, as on all hosts with CUDA that this is built for.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    kind: u16,
    version: u16,
    /// The length of the contents, which follow.
    bytes: u64,
    /// BLAKE3 of the fields before this one, and of the contents.
    digest: [u8; 32],
}

/// The contents of the part [`kind::CONTENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Contents {
    /// A random name of these contents.
    pub name: [u8; 16],
    /// The number of chunks.
    pub chunks: u64,
}

/// A row of the part [`kind::PLACES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Place {
    /// The address of a chunk.
    pub address: u64,
    /// The place of its bytes in all files together, chunk by chunk in turn: that of number `n` is in file `n % count`, with `n / count` before it.
    pub offset: u64,
}

/// The length of a part's head in bytes.
pub const HEAD_BYTES: usize = size_of::<Head>();

impl Head {
    fn digest(&self, contents: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.as_bytes()[..16]);
        for piece in contents {
            hasher.update(piece);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the length of the contents.
    fn check_form(&self) -> io::Result<usize> {
        if self.magic != MAGIC || self.version != VERSION || self.bytes > MAX_BYTES {
            return Err(malformed("it is no part of a saved session that this program knows"));
        }
        Ok(self.bytes as usize)
    }

    fn check(&self, contents: &[&[u8]]) -> io::Result<()> {
        self.check_form()?;
        if self.digest(contents) != self.digest {
            return Err(malformed("a part has changed since it was written (its digest differs)"));
        }
        Ok(())
    }
}

/// Returns the head of a part, whose contents are these pieces.
///
/// Errors: `InvalidInput` for contents that are too long.
pub fn head(kind: u16, contents: &[&[u8]]) -> io::Result<[u8; HEAD_BYTES]> {
    let bytes = contents.iter().map(|piece| piece.len() as u64).sum();
    if bytes > MAX_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = Head { magic: MAGIC, kind, version: VERSION, bytes, digest: [0; 32] };
    head.digest = head.digest(contents);
    Ok(zerocopy::transmute!(head))
}

/// Writes a part, whose contents are these pieces.
///
/// Errors: those of `to`; `InvalidInput` for contents that are too long.
pub fn write(mut to: impl Write, kind: u16, contents: &[&[u8]]) -> io::Result<()> {
    to.write_all(&head(kind, contents)?)?;
    contents.iter().try_for_each(|piece| to.write_all(piece))
}

/// Returns the kind and the contents of a part that is there as a whole.
///
/// Errors: `InvalidData`, as for [`read`], and for another length.
pub fn parse(part: &[u8]) -> io::Result<(u16, &[u8])> {
    let (head, contents) = Head::read_from_prefix(part).map_err(|_| malformed("a part is cut"))?;
    if head.bytes != contents.len() as u64 {
        return Err(malformed("a part has another length"));
    }
    head.check(&[contents]).map(|()| (head.kind, contents))
}

/// Reads the next part, whose contents replace those of `contents`. Returns its kind.
///
/// Errors: those of `from`, `UnexpectedEof` among them; `InvalidData` for what is no part, too long, of an unknown version, or damaged.
pub fn read(mut from: impl Read, contents: &mut Vec<u8>) -> io::Result<u16> {
    let mut head = Head::new_zeroed();
    from.read_exact(head.as_mut_bytes())?;
    contents.resize(head.check_form()?, 0);
    from.read_exact(contents)?;
    head.check(&[contents]).map(|()| head.kind)
}

/// Reads the next part as it is, head and all, in place of what is in `part`, which is undefined after an error. Returns its kind. Its digest is not compared: whoever
/// uses it does that.
///
/// Errors: as for [`read`].
pub fn copy(mut from: impl Read, part: &mut Vec<u8>) -> io::Result<u16> {
    let kind = copy_head(&mut from, part)?;
    from.read_exact(&mut part[HEAD_BYTES..])?;
    Ok(kind)
}

/// Does the same for the head only. The contents, which `part` has room for, are still to be read.
///
/// Errors: as for [`read`].
pub fn copy_head(mut from: impl Read, part: &mut Vec<u8>) -> io::Result<u16> {
    let mut head = Head::new_zeroed();
    from.read_exact(head.as_mut_bytes())?;
    // The buffer of a part as long as this one is not cleared again.
    part.resize(HEAD_BYTES + head.check_form()?, 0);
    part[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    Ok(head.kind)
}

/// Returns the error of a stream that is malformed.
pub fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut stream = Vec::new();
        write(&mut stream, kind::SESSION, &[&7_u64.to_le_bytes()]).unwrap();
        write(&mut stream, kind::CHUNK, &[b"ad", b"dress"]).unwrap();
        stream
    }

    #[test]
    fn parts_come_back_as_they_were() {
        let stream = written();
        assert_eq!(stream.len(), 2 * size_of::<Head>() + 8 + 7, "the layout is that of the specification");
        assert_eq!(stream[..16], *b"VCSP\x01\0\x01\0\x08\0\0\0\0\0\0\0");
        let first = HEAD_BYTES + 8;
        assert_eq!(parse(&stream[..first]).unwrap(), (kind::SESSION, &7_u64.to_le_bytes()[..]));
        assert!(parse(&stream[..first - 1]).is_err() && parse(&stream[..first + 1]).is_err());
        let (mut from, mut contents) = (&stream[..], Vec::new());
        assert_eq!(read(&mut from, &mut contents).unwrap(), kind::SESSION);
        assert_eq!(contents, 7_u64.to_le_bytes());
        assert_eq!(read(&mut from, &mut contents).unwrap(), kind::CHUNK);
        assert_eq!(contents, b"address");
        assert_eq!(read(&mut from, &mut contents).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_copy_of_a_part_is_the_part() {
        let stream = written();
        let (mut from, mut part, mut copy) = (&stream[..], Vec::new(), Vec::new());
        while let Ok(found) = super::copy(&mut from, &mut part) {
            assert!([kind::SESSION, kind::CHUNK].contains(&found));
            copy.extend_from_slice(&part);
        }
        assert!(from.is_empty() && copy == stream);
        let mut long = stream;
        long[8..16].copy_from_slice(&(MAX_BYTES + 1).to_le_bytes());
        assert!(super::copy(&long[..], &mut part).is_err() && part.capacity() as u64 <= 2 * MAX_BYTES);
    }

    #[test]
    fn rows_go_into_as_many_parts_as_they_need() {
        let rows: Vec<u64> = (0..MAX_BYTES / 8 + 3).collect();
        let mut stream = Vec::new();
        write_rows(&mut stream, 20, &rows).unwrap();
        let (mut from, mut contents, mut back) = (&stream[..], Vec::new(), Vec::new());
        for _ in 0..2 {
            assert_eq!(read(&mut from, &mut contents).unwrap(), 20);
            read_rows::<u64>(&contents, &mut back, rows.len()).unwrap();
        }
        assert!(from.is_empty() && back == rows);
        assert!(read_rows::<u64>(&[0; 8], &mut back, rows.len()).is_err(), "too many");
        assert!(read_rows::<u64>(&[0; 9], &mut Vec::new(), 9).is_err(), "cut");
        write_rows::<u64>(&mut stream, 20, &[]).unwrap();
        assert_eq!(stream.len() as u64, 2 * 48 + 8 * rows.len() as u64, "no part without rows");
    }

    #[test]
    fn each_byte_of_a_part_counts() {
        let stream = written();
        let mut contents = Vec::new();
        for place in 0..stream.len() {
            let mut damaged = stream.clone();
            damaged[place] ^= 0x10;
            let mut from = &damaged[..];
            let all = read(&mut from, &mut contents).and_then(|_| read(&mut from, &mut contents));
            assert!(all.is_err(), "byte {place}");
            assert!(contents.len() as u64 <= MAX_BYTES);
            let mut cut = &stream[..place];
            assert!(read(&mut cut, &mut contents).and_then(|_| read(&mut cut, &mut contents)).is_err());
        }
        let mut to = Vec::new();
        assert!(write(&mut to, kind::CHUNK, &[&vec![0; MAX_BYTES as usize], b"x"]).is_err() && to.is_empty());
    }
}
