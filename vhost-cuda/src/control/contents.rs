// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents in the file of a saved session (docs/spec/saved-sessions.md). Its chunks have one length, so several threads write and read
//! them, each at its place.
//!
//! The worker, which executes code of the guest, may write to the file in memory at any time, and chooses the places. Whoever may write
//! the file of the session chooses all of it. Both harm that session only: contents that are wrong are refused when they are on the card.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{self, Contents, HEAD_BYTES, Place, kind, malformed, read_rows};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};
use zerocopy::{FromBytes, IntoBytes};

/// The maximum number of threads.
const MAX_THREADS: usize = 16;
/// The length of a chunk, of its address, of the part with both, and of what comes before the first one, in bytes.
const CHUNK: usize = CHUNK_BYTES as usize;
const ADDRESS: usize = size_of::<u64>();
const PART: usize = HEAD_BYTES + ADDRESS + CHUNK;
const SESSION: usize = HEAD_BYTES + ADDRESS;
const BEGIN: usize = SESSION + HEAD_BYTES + size_of::<Contents>();

/// The name of contents, and the place of each chunk in the file in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Places {
    name: [u8; 16],
    rows: Vec<Place>,
}

/// Reads the places that a worker has written. `memory` bounds their number.
///
/// Errors: those of `from`; `InvalidData` for another stream.
pub fn read_places(mut from: impl Read, memory: &File) -> io::Result<Places> {
    let most = usize::try_from(memory.metadata()?.len() / CHUNK_BYTES).unwrap_or(usize::MAX);
    let (mut part, mut rows) = (Vec::new(), Vec::new());
    let found = parts::read(&mut from, &mut part)?;
    let head = Contents::read_from_bytes(&part).ok().filter(|_| found == kind::CONTENTS);
    let Contents { name, chunks } = head.ok_or_else(|| malformed("it has no contents"))?;
    loop {
        match parts::read(&mut from, &mut part)? {
            kind::PLACES => read_rows(&part, &mut rows, most)?,
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

/// Writes the contents of a session to its file.
///
/// Errors: those of both files. A place that is not in `memory` is `UnexpectedEof`.
pub fn write(file: &File, session: u64, Places { name, rows }: &Places, memory: &File) -> io::Result<()> {
    let (mut begin, mut end) = (Vec::new(), Vec::new());
    parts::write(&mut begin, kind::SESSION, &[&session.to_le_bytes()])?;
    let head = Contents { name: *name, chunks: rows.len() as u64 };
    parts::write(&mut begin, kind::CONTENTS, &[head.as_bytes()])?;
    parts::write(&mut end, kind::END, &[])?;
    file.write_all_at(&begin, 0)?;
    for_each(rows.len(), |index, part| {
        let Place { address, offset } = rows[index];
        let (head, contents) = part.split_at_mut(HEAD_BYTES);
        contents[..ADDRESS].copy_from_slice(&address.to_le_bytes());
        memory.read_exact_at(&mut contents[ADDRESS..], offset)?;
        head.copy_from_slice(&parts::head(kind::CHUNK, &[contents])?);
        file.write_all_at(part, place_of(index))
    })?;
    file.write_all_at(&end, place_of(rows.len()))
}

/// Returns the number of the session whose file this is.
///
/// Errors: the file's; `InvalidData` for another file.
pub fn session_of(file: &File) -> io::Result<u64> {
    let mut part = [0; SESSION];
    file.read_exact_at(&mut part, 0)?;
    let (kind, contents) = parts::parse(&part)?;
    let session = <[u8; ADDRESS]>::try_from(contents).ok().filter(|_| kind == kind::SESSION);
    session.map(u64::from_le_bytes).ok_or_else(|| malformed("it is no saved session"))
}

/// Reads the contents of a session from its file. They are one after the other in `memory`, whose length is sealed.
///
/// Errors: the file's; `InvalidData` for a file that is damaged, or has more contents than `memory` has room for.
pub fn read(file: &File, memory: &File) -> io::Result<Places> {
    let mut part = [0; BEGIN - SESSION];
    file.read_exact_at(&mut part, SESSION as u64)?;
    let (found, head) = parts::parse(&part)?;
    let head = Contents::read_from_bytes(head).ok().filter(|_| found == kind::CONTENTS);
    let Contents { name, chunks } = head.ok_or_else(|| malformed("it has no contents"))?;
    let bytes = memory.metadata()?.len();
    let count = usize::try_from(chunks).ok().filter(|_| chunks <= bytes / CHUNK_BYTES);
    let count = count.ok_or_else(|| malformed("it has more contents than the session"))?;
    let mut end = [0; HEAD_BYTES];
    file.read_exact_at(&mut end, place_of(count))?;
    if parts::parse(&end)?.0 != kind::END {
        return Err(malformed("it does not end where it must"));
    }
    // Files in memory let one thread write at a time, and mappings of them as many as there are.
    let mapped = MmapRegion::<()>::from_file(FileOffset::new(memory.try_clone()?, 0), bytes as usize);
    let mapped = mapped.map_err(io::Error::other)?;
    let rows = Mutex::new(vec![Place::default(); count]);
    for_each(count, |index, part| {
        file.read_exact_at(part, place_of(index))?;
        let (found, contents) = parts::parse(part)?;
        let chunk = contents.split_first_chunk().filter(|(_, chunk)| chunk.len() == CHUNK);
        let (address, chunk) =
            chunk.filter(|_| found == kind::CHUNK).ok_or_else(|| malformed("a chunk is missing"))?;
        let offset = index * CHUNK;
        mapped.get_slice(offset, CHUNK).map_err(io::Error::other)?.copy_from(chunk);
        rows.lock()[index] = Place { address: u64::from_le_bytes(*address), offset: offset as u64 };
        Ok(())
    })?;
    Ok(Places { name, rows: rows.into_inner() })
}

/// The place of the part with chunk `index` in a file, or of the end if there are so many.
fn place_of(index: usize) -> u64 {
    BEGIN as u64 + index as u64 * PART as u64
}

/// Calls `work` for all numbers below `count`, on several threads, each with room for a part.
///
/// Errors: the first one. The rest is left out then.
fn for_each(count: usize, work: impl Fn(usize, &mut [u8]) -> io::Result<()> + Sync) -> io::Result<()> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        let mut part = vec![0; PART];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            if let Err(error) = work(index, &mut part) {
                next.store(count, Ordering::Relaxed);
                failure.lock().get_or_insert(error);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    thread::scope(|scope| {
        for _ in 1..threads.min(MAX_THREADS).min(count) {
            // Without a thread the others do its work.
            let _ = thread::Builder::new().name("contents".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::session::saving::contents_file;

    const NAME: [u8; 16] = [7; 16];

    fn memory(chunks: u64) -> File {
        contents_file(chunks * CHUNK_BYTES).unwrap().into()
    }

    fn file() -> File {
        vmm_sys_util::tempfile::TempFile::new().unwrap().into_file()
    }

    /// Memory with chunks, and places of all but one in another order.
    fn contents() -> (File, Places) {
        let memory = memory(4);
        for chunk in 0..4_u8 {
            memory.write_all_at(&vec![chunk + 1; CHUNK], u64::from(chunk) * CHUNK_BYTES).unwrap();
        }
        let row = |address, chunk: u64| Place { address, offset: chunk * CHUNK_BYTES };
        (memory, Places { name: NAME, rows: vec![row(100, 3), row(200, 0), row(300, 1)] })
    }

    #[test]
    fn contents_go_to_a_file_and_come_back() {
        let ((from, places), file) = (contents(), file());
        write(&file, 9, &places, &from).unwrap();
        assert_eq!(file.metadata().unwrap().len(), place_of(3) + HEAD_BYTES as u64);
        assert_eq!(session_of(&file).unwrap(), 9);
        // The form is that of the specification: parts one after the other.
        let (mut stream, mut part, mut kinds) = (&file, Vec::new(), Vec::new());
        io::Seek::rewind(&mut stream).unwrap();
        while let Ok(kind) = parts::read(&mut stream, &mut part) {
            kinds.push(kind);
        }
        assert_eq!(kinds, [kind::SESSION, kind::CONTENTS, kind::CHUNK, kind::CHUNK, kind::CHUNK, kind::END]);
        let to = memory(3);
        let back = read(&file, &to).unwrap();
        assert_eq!(back.name, NAME);
        let mut byte = [0];
        for (row, (address, value)) in back.rows.iter().zip([(100, 4), (200, 1), (300, 2)]) {
            to.read_exact_at(&mut byte, row.offset + CHUNK_BYTES - 1).unwrap();
            assert_eq!((row.address, byte), (address, [value]));
        }
        assert!(read(&file, &memory(2)).is_err(), "more than there is room for");
        for cut in [place_of(3), place_of(1), BEGIN as u64 - 1] {
            file.set_len(cut).unwrap();
            assert!(read(&file, &to).is_err());
        }
    }

    #[test]
    fn damage_is_found() {
        let ((from, places), file) = (contents(), file());
        write(&file, 9, &places, &from).unwrap();
        let mut byte = [0];
        for at in [SESSION as u64 + 50, place_of(0) + 50, place_of(2) + CHUNK_BYTES, place_of(3) + 5] {
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(read(&file, &memory(3)).is_err(), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert!(read(&file, &memory(3)).is_ok());
        let outside = Places { name: NAME, rows: vec![Place { address: 1, offset: 4 * CHUNK_BYTES }] };
        assert!(write(&file, 9, &outside, &from).is_err(), "a place that is not there");
    }

    #[test]
    fn places_come_as_they_were_written() {
        let (memory, places) = contents();
        let mut stream = Vec::new();
        write_places(&mut stream, &places).unwrap();
        assert_eq!(read_places(&stream[..], &memory).unwrap(), places);
        assert!(read_places(&stream[..stream.len() - 1], &memory).is_err());
        assert!(read_places(&stream[..], &self::memory(2)).is_err(), "more than there is room for");
        let fewer = Contents { name: NAME, chunks: 2 };
        let head = parts::head(kind::CONTENTS, &[fewer.as_bytes()]).unwrap();
        stream[..HEAD_BYTES].copy_from_slice(&head);
        stream[HEAD_BYTES..HEAD_BYTES + size_of::<Contents>()].copy_from_slice(fewer.as_bytes());
        assert!(read_places(&stream[..], &memory).is_err(), "another number");
    }
}
