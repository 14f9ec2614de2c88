// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of saved sessions: a stream of parts, each with its kind, version, length and digest. `docs/spec/saved-sessions.md` is its
//! specification.
//!
//! Whoever reads a stream trusts nothing of it. No part is longer than [`MAX_BYTES`], and none counts before its digest was compared.

use std::io::{self, Read, Write};

use zerocopy::{FromZeros, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::link::CHUNK_BYTES;

/// The first bytes of each part.
const MAGIC: [u8; 4] = *b"VCSP";
/// The version of all parts.
const VERSION: u16 = 1;
/// The maximum length of a part's contents: a chunk, and its address.
pub const MAX_BYTES: u64 = CHUNK_BYTES + 8;

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

impl Head {
    fn digest(&self, contents: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.as_bytes()[..16]);
        for piece in contents {
            hasher.update(piece);
        }
        *hasher.finalize().as_bytes()
    }
}

/// Writes a part, whose contents are these pieces.
///
/// Errors: those of `to`; `InvalidInput` for contents that are too long.
pub fn write(mut to: impl Write, kind: u16, contents: &[&[u8]]) -> io::Result<()> {
    let bytes = contents.iter().map(|piece| piece.len() as u64).sum();
    if bytes > MAX_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = Head { magic: MAGIC, kind, version: VERSION, bytes, digest: [0; 32] };
    head.digest = head.digest(contents);
    to.write_all(head.as_bytes())?;
    contents.iter().try_for_each(|piece| to.write_all(piece))
}

/// Reads the next part, whose contents replace those of `contents`. Returns its kind.
///
/// Errors: those of `from`, `UnexpectedEof` among them; `InvalidData` for what is no part, too long, of an unknown version, or damaged.
pub fn read(mut from: impl Read, contents: &mut Vec<u8>) -> io::Result<u16> {
    let mut head = Head::new_zeroed();
    from.read_exact(head.as_mut_bytes())?;
    let Head { magic, kind, version, bytes, digest } = head;
    if magic != MAGIC || version != VERSION || bytes > MAX_BYTES {
        return Err(malformed("it is no part of a saved session that this program knows"));
    }
    contents.resize(bytes as usize, 0);
    from.read_exact(contents)?;
    if head.digest(&[contents]) != digest {
        return Err(malformed("a part has changed since it was written (its digest differs)"));
    }
    Ok(kind)
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
        let (mut from, mut contents) = (&stream[..], Vec::new());
        assert_eq!(read(&mut from, &mut contents).unwrap(), kind::SESSION);
        assert_eq!(contents, 7_u64.to_le_bytes());
        assert_eq!(read(&mut from, &mut contents).unwrap(), kind::CHUNK);
        assert_eq!(contents, b"address");
        assert_eq!(read(&mut from, &mut contents).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
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
