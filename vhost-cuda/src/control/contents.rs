// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents in the file of a saved session (docs/spec/saved-sessions.md): chunks at places of their size, and behind them parts with
//! their addresses and digests. Several threads read and write the chunks.
//!
//! The worker, which executes code of the guest, may write to the file in memory at any time, and chooses the places. Whoever may write
//! the file of the session chooses all of it. Both harm that session only: contents that are wrong are refused when they are on the card.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use vhost_cuda_common::link::CHUNK_BYTES;
use vhost_cuda_common::parts::{
    self, Contents, HEAD_BYTES, Place, StoredChunk, kind, malformed, read_rows, write_rows,
};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};
use zerocopy::{FromBytes, IntoBytes};

/// The maximum number of threads.
const MAX_THREADS: usize = 16;
/// The length of a chunk, and of the part at the end of a file, in bytes.
const CHUNK: usize = CHUNK_BYTES as usize;
const TRAILER: usize = HEAD_BYTES + size_of::<u64>();

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
    let Contents { name, chunks } = read_contents(&mut from, &mut part)?;
    loop {
        match parts::read(&mut from, &mut part)? {
            kind::PLACES => read_rows(&part, &mut rows, most)?,
            kind::END if part.is_empty() && rows.len() as u64 == chunks => return Ok(Places { name, rows }),
            _ => return Err(malformed("places are missing")),
        }
    }
}

fn read_contents(from: impl Read, part: &mut Vec<u8>) -> io::Result<Contents> {
    let found = parts::read(from, part)?;
    let head = Contents::read_from_bytes(part).ok().filter(|_| found == kind::CONTENTS);
    head.ok_or_else(|| malformed("it has no contents"))
}

/// Writes places for a worker.
pub fn write_places(mut to: impl Write, Places { name, rows }: &Places) -> io::Result<()> {
    let head = Contents { name: *name, chunks: rows.len() as u64 };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    parts::write_rows(&mut to, kind::PLACES, rows)?;
    parts::write(&mut to, kind::END, &[])?;
    to.flush()
}

/// Completes the file of a session. Its chunks are there already, or at their places in `memory`.
///
/// Errors: those of both files. A place that is not there is `UnexpectedEof`.
pub fn write(file: &File, session: u64, places: &Places, memory: Option<&File>) -> io::Result<()> {
    let rows = Mutex::new(vec![StoredChunk::default(); places.rows.len()]);
    for_each(places.rows.len(), |index, chunk| {
        let Place { address, mut offset } = places.rows[index];
        memory.unwrap_or(file).read_exact_at(chunk, offset)?;
        if memory.is_some() {
            offset = index as u64 * CHUNK_BYTES;
            file.write_all_at(chunk, offset)?;
        }
        rows.lock()[index] = StoredChunk { address, offset, digest: *blake3::hash(chunk).as_bytes() };
        Ok(())
    })?;
    let rows = rows.into_inner();
    let end = rows.iter().map(|row| row.offset + CHUNK_BYTES).max().unwrap_or(0);
    // Whatever else is there.
    file.set_len(end)?;
    let mut to = BufWriter::new(file);
    to.seek(SeekFrom::Start(end))?;
    parts::write(&mut to, kind::SESSION, &[&session.to_le_bytes()])?;
    let head = Contents { name: places.name, chunks: rows.len() as u64 };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    write_rows(&mut to, kind::STORED, &rows)?;
    parts::write(&mut to, kind::TRAILER, &[&end.to_le_bytes()])?;
    to.flush()
}

/// The part of a file that follows its chunks.
#[derive(Debug)]
pub struct Saved {
    /// The number of its session.
    pub session: u64,
    name: [u8; 16],
    rows: Vec<StoredChunk>,
}

impl Saved {
    /// Reads it.
    ///
    /// Errors: the file's; `InvalidData` for another file.
    pub fn of(file: &File) -> io::Result<Self> {
        let none = || malformed("it is no saved session");
        let word = |part: &[u8]| <[u8; 8]>::try_from(part).map(u64::from_le_bytes).map_err(|_| none());
        let bytes = file.metadata()?.len();
        let mut trailer = [0; TRAILER];
        let last = bytes.checked_sub(TRAILER as u64).ok_or_else(none)?;
        file.read_exact_at(&mut trailer, last)?;
        let (found, begin) = parts::parse(&trailer)?;
        let begin =
            word(begin).ok().filter(|begin| found == kind::TRAILER && *begin <= last).ok_or_else(none)?;
        let mut from = BufReader::new(file);
        from.seek(SeekFrom::Start(begin))?;
        let mut part = Vec::new();
        if parts::read(&mut from, &mut part)? != kind::SESSION {
            return Err(none());
        }
        let session = word(&part)?;
        let Contents { name, chunks } = read_contents(&mut from, &mut part)?;
        let (most, mut rows) = ((begin / CHUNK_BYTES) as usize, Vec::new());
        while (rows.len() as u64) < chunks {
            match parts::read(&mut from, &mut part)? {
                kind::STORED => read_rows(&part, &mut rows, most)?,
                _ => return Err(malformed("chunks are missing")),
            }
        }
        if rows.len() as u64 != chunks || from.stream_position()? != last {
            return Err(malformed("it does not end where it must"));
        }
        Ok(Self { session, name, rows })
    }

    /// Returns the bytes of its contents.
    pub fn bytes(&self) -> u64 {
        self.rows.len() as u64 * CHUNK_BYTES
    }

    /// Checks all contents. Returns where they are: in the file, or one after the other in `memory`, to which they are copied then, and which
    /// is long enough.
    ///
    /// Errors: the file's; `InvalidData` for a file that is damaged.
    pub fn read(&self, file: &File, memory: Option<&File>) -> io::Result<Places> {
        // Files in memory let one thread write at a time, and mappings of them as many as there are.
        let map = |memory: &File| {
            MmapRegion::<()>::from_file(FileOffset::new(memory.try_clone()?, 0), self.bytes().max(1) as usize)
                .map_err(io::Error::other)
        };
        let mapped = memory.map(map).transpose()?;
        for_each(self.rows.len(), |index, chunk| {
            let StoredChunk { offset, digest, .. } = self.rows[index];
            file.read_exact_at(chunk, offset)?;
            if *blake3::hash(chunk).as_bytes() != digest {
                return Err(malformed("a chunk has changed since it was written (its digest differs)"));
            }
            if let Some(mapped) = &mapped {
                mapped.get_slice(index * CHUNK, CHUNK).map_err(io::Error::other)?.copy_from(chunk);
            }
            Ok(())
        })?;
        let place = |(index, row): (u64, &StoredChunk)| Place {
            address: row.address,
            offset: if mapped.is_some() { index * CHUNK_BYTES } else { row.offset },
        };
        Ok(Places { name: self.name, rows: (0..).zip(&self.rows).map(place).collect() })
    }
}

/// Calls `work` for all numbers below `count`, on several threads, each with room for a chunk.
///
/// Errors: the first one. The rest is left out then.
fn for_each(count: usize, work: impl Fn(usize, &mut [u8]) -> io::Result<()> + Sync) -> io::Result<()> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        let mut chunk = vec![0; CHUNK];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            if let Err(error) = work(index, &mut chunk) {
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

    /// Chunks in a file, and the places of all but one in another order.
    fn contents(file: &File) -> Places {
        for chunk in 0..4_u8 {
            file.write_all_at(&vec![chunk + 1; CHUNK], u64::from(chunk) * CHUNK_BYTES).unwrap();
        }
        let row = |address, chunk: u64| Place { address, offset: chunk * CHUNK_BYTES };
        Places { name: NAME, rows: vec![row(100, 3), row(200, 0), row(300, 1)] }
    }

    /// A file with them, to which they were copied, or in which they were.
    fn written(in_place: bool) -> File {
        let (memory, file) = (memory(4), file());
        let places = contents(if in_place { &file } else { &memory });
        write(&file, 9, &places, (!in_place).then_some(&memory)).unwrap();
        file
    }

    #[test]
    fn contents_go_to_a_file_and_come_back() {
        for in_place in [false, true] {
            let file = written(in_place);
            let chunks = if in_place { 4 } else { 3 };
            let trailer = 4 * HEAD_BYTES + 8 + 24 + 3 * size_of::<StoredChunk>() + 8;
            assert_eq!(file.metadata().unwrap().len(), chunks * CHUNK_BYTES + trailer as u64);
            let saved = Saved::of(&file).unwrap();
            assert_eq!((saved.session, saved.bytes()), (9, 3 * CHUNK_BYTES));
            let to = memory(3);
            for memory in [None, Some(&to)] {
                let back = saved.read(&file, memory).unwrap();
                assert_eq!(back.name, NAME);
                let mut byte = [0];
                for (row, (address, value)) in back.rows.iter().zip([(100, 4), (200, 1), (300, 2)]) {
                    let at = row.offset + CHUNK_BYTES - 1;
                    memory.unwrap_or(&file).read_exact_at(&mut byte, at).unwrap();
                    assert_eq!((row.address, byte), (address, [value]));
                }
            }
            let bytes = file.metadata().unwrap().len();
            for cut in [bytes - 1, bytes - trailer as u64, 5] {
                file.set_len(cut).unwrap();
                assert!(Saved::of(&file).is_err());
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let file = written(false);
        let end = 3 * CHUNK_BYTES;
        let mut byte = [0];
        for at in [0, CHUNK_BYTES, end - 1] {
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let saved = Saved::of(&file).unwrap();
            assert!([None, Some(&memory(3))].iter().all(|to| saved.read(&file, *to).is_err()), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        for at in end..file.metadata().unwrap().len() {
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(Saved::of(&file).is_err(), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert!(Saved::of(&file).unwrap().read(&file, None).is_ok());
        let outside = Places { name: NAME, rows: vec![Place { address: 1, offset: 4 * CHUNK_BYTES }] };
        assert!(write(&self::file(), 9, &outside, Some(&memory(4))).is_err(), "a place that is not there");
    }

    #[test]
    fn places_come_as_they_were_written() {
        let memory = memory(4);
        let places = contents(&memory);
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
