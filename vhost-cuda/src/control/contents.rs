// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a saved session (docs/spec/saved-sessions.md): its number, and the places of its contents in the files beside it.
//!
//! The worker, which executes code of the guest, writes these files and chooses the places. Whoever may write to the folder of the
//! session chooses all of it. Both harm that session only: contents that are wrong are refused when they are on the card.

use std::io::{self, Read, Write};

use vhost_cuda_common::parts::{self, Contents, Place, kind, malformed, read_rows};
use zerocopy::{FromBytes, IntoBytes};

/// The maximum number of chunks of a session: 8 TiB. It bounds what a worker has `ctl` keep.
const MAX_CHUNKS: usize = 1 << 22;

/// The name of contents, and the place of each chunk in their files.
#[derive(Debug, PartialEq, Eq)]
pub struct Places {
    name: [u8; 16],
    rows: Vec<Place>,
}

/// Reads the places that a worker has written.
///
/// Errors: those of `from`; `InvalidData` for another stream.
pub fn read_places(mut from: impl Read) -> io::Result<Places> {
    let (mut part, mut rows) = (Vec::new(), Vec::new());
    let found = parts::read(&mut from, &mut part)?;
    let head = Contents::read_from_bytes(&part).ok().filter(|_| found == kind::CONTENTS);
    let Contents { name, chunks } = head.ok_or_else(|| malformed("it has no contents"))?;
    loop {
        match parts::read(&mut from, &mut part)? {
            kind::PLACES => read_rows(&part, &mut rows, MAX_CHUNKS)?,
            kind::END if part.is_empty() && rows.len() as u64 == chunks => return Ok(Places { name, rows }),
            _ => return Err(malformed("places are missing")),
        }
    }
}

/// Writes places for a worker.
pub fn write_places(mut to: impl Write, Places { name, rows }: &Places) -> io::Result<()> {
    let head = Contents { name: *name, chunks: rows.len() as u64 };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    parts::write_rows(&mut to, kind::PLACES, rows)?;
    parts::write(&mut to, kind::END, &[])?;
    to.flush()
}

/// Writes the description of a session.
pub fn write(mut to: impl Write, session: u64, places: &Places) -> io::Result<()> {
    parts::write(&mut to, kind::SESSION, &[&session.to_le_bytes()])?;
    write_places(to, places)
}

/// Reads the description of a session: its number, and the places of its contents.
///
/// Errors: those of `from`; `InvalidData` for anything else.
pub fn read(mut from: impl Read) -> io::Result<(u64, Places)> {
    let none = || malformed("it is no saved session");
    let mut part = Vec::new();
    if parts::read(&mut from, &mut part)? != kind::SESSION {
        return Err(none());
    }
    let session = <[u8; 8]>::try_from(&part[..]).map(u64::from_le_bytes).map_err(|_| none())?;
    let places = read_places(&mut from)?;
    match from.read(&mut [0])? {
        0 => Ok((session, places)),
        _ => Err(malformed("it does not end where it must")),
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::parts::write_rows;

    use super::*;

    fn places() -> Places {
        let row = |address, chunk: u64| Place { address, offset: chunk << 21 };
        Places { name: [7; 16], rows: vec![row(100, 3), row(200, 0), row(300, 1)] }
    }

    #[test]
    fn a_session_comes_as_it_was_written() {
        let mut stream = Vec::new();
        write(&mut stream, 9, &places()).unwrap();
        assert_eq!(read(&stream[..]).unwrap(), (9, places()));
        for cut in 0..stream.len() {
            assert!(read(&stream[..cut]).is_err(), "{cut} bytes");
            let mut damaged = stream.clone();
            damaged[cut] ^= 1;
            assert!(read(&damaged[..]).is_err(), "byte {cut}");
        }
        stream.push(0);
        assert!(read(&stream[..]).is_err(), "more than its end");
    }

    #[test]
    fn places_are_as_many_as_the_head_says() {
        for (said, rows) in [(2, 3), (4, 3), (u64::MAX, 0)] {
            let mut stream = Vec::new();
            let head = Contents { name: [7; 16], chunks: said };
            parts::write(&mut stream, kind::CONTENTS, &[head.as_bytes()]).unwrap();
            write_rows(&mut stream, kind::PLACES, &places().rows[..rows]).unwrap();
            parts::write(&mut stream, kind::END, &[]).unwrap();
            assert!(read_places(&stream[..]).is_err(), "{said} and {rows}");
        }
        let mut stream = Vec::new();
        write_places(&mut stream, &places()).unwrap();
        assert_eq!(read_places(&stream[..]).unwrap(), places());
        assert!(read_places(&stream[..stream.len() - 1]).is_err());
        assert!(read(&stream[..]).is_err(), "without a session");
    }
}
