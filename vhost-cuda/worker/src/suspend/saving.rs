// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a suspended session that leave this process, and come back: in a file of the daemon's, with a stream that says where
//! ([`vhost_cuda_common::parts`]), or in the stream itself.
//!
//! They stay in host memory until the daemon says that they are safe. From then on the session cannot be resumed before
//! the same contents have come back, which are known by their random name. What comes back is not trusted: a stream may only fill the
//! chunks that are away, each once. Whether it has filled them rightly is seen by the digests of the next resumption: whoever has the
//! file may write to it at any time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::Ordering;

use log::debug;
use vhost_cuda_common::link::{ALREADY_SAVED, Frame, TO_LOAD, TO_SAVE, TO_SAVED, pool_of};
use vhost_cuda_common::parts::{self, Contents, kind, malformed, read_rows};
use vhost_cuda_common::recipes::Description;
use zerocopy::{FromBytes, IntoBytes};

use super::held::Way;
use super::room::{Area, CHUNK, CHUNK_BYTES};
use super::steps::Steps;
use super::store::{Name, Store};
use super::suspended::Suspended;
use crate::state::SessionState;

/// Keeps a file or a socket for the contents of the next request.
pub fn lend(session: &SessionState, frame: &mut Frame) {
    let way = frame.file.take().and_then(|file| match file.metadata() {
        Ok(metadata) if metadata.file_type().is_socket() => Some(Way::Card(OwnedFd::from(file).into())),
        _ => {
            let is_saved = frame.header.flags & ALREADY_SAVED != 0;
            let area = if is_saved { Area::of_saved(&file) } else { Area::of_file(&file) };
            area.inspect_err(|error| debug!("a file for contents cannot be mapped: {error}"))
                .ok()
                .map(Way::Memory)
        }
    });
    *session.suspension.lent.lock() = way.map(|way| (frame.header.id, way));
}

/// Returns the way for the contents of this request, if there is one.
pub fn lent(session: &SessionState, frame: &Frame) -> Option<Way> {
    let lent = session.suspension.lent.lock().take();
    lent.filter(|(id, _)| *id == frame.header.id).map(|(_, way)| way)
}

/// Executes a request to save contents, to give them up after that, or to load them. Returns the bytes of the contents that were written, given up or
/// read, or the reason for which nothing has changed.
pub fn execute(session: &'static SessionState, frame: &mut Frame) -> Description {
    let is_moving = &session.suspension.is_moving;
    // A move that comes meanwhile is refused, and does not wait.
    if is_moving.swap(true, Ordering::Acquire) {
        return Description {
            obstacle: Some("another move is under way".to_owned()),
            ..Description::default()
        };
    }
    let done = carry_out(session, frame);
    is_moving.store(false, Ordering::Release);
    match done {
        Ok(bytes) => Description { bytes, ..Description::default() },
        Err(reason) => {
            debug!("contents stay as they are: {reason}");
            Description { obstacle: Some(reason), ..Description::default() }
        }
    }
}

fn carry_out(session: &SessionState, frame: &mut Frame) -> Result<u64, String> {
    const NO_FILE: &str = "there is no file for its contents";
    let area = lent(session, frame).and_then(Way::memory);
    let mut suspended = session.suspension.suspended.lock();
    let now = suspended.as_mut().ok_or("it is not suspended")?;
    match (frame.header.kind, frame.file.take()) {
        (TO_SAVE, Some(file)) => {
            let is_all = session.placed.lock().movable().all(|part| part.stored);
            if !is_all || now.created.iter().any(|(_, part)| !part.stored) {
                return Err("a part of its memory is on the card".to_owned());
            }
            let area = area.ok_or(NO_FILE)?;
            save(now, file, area).map_err(|error| format!("the contents cannot be written: {error}"))
        }
        (TO_SAVED, None) => {
            let name = now.written.take().ok_or("its contents were not written")?;
            let bytes = now.store.stored_bytes();
            now.store.leave();
            now.saved = Some(name);
            Ok(bytes)
        }
        (TO_LOAD, Some(file)) => {
            let name = now.saved.ok_or("its contents are in host memory")?;
            let most = pool_of(&frame.payload).ok_or("a frame of the wrong size")?;
            if now.store.away() as u64 * CHUNK_BYTES > most {
                return Err("there is not enough host memory for its contents".to_owned());
            }
            load(file, name, &mut now.store, Some(area.ok_or(NO_FILE)?))
                .map_err(|error| format!("the contents cannot be read: {error}"))?;
            now.saved = None;
            Ok(now.store.stored_bytes())
        }
        _ => Err("a frame without its file".to_owned()),
    }
}

fn save(now: &mut Suspended, mut file: File, area: Area) -> io::Result<u64> {
    if now.saved.is_some() {
        return Err(malformed("they are saved already"));
    }
    now.written = None;
    let mut name = Name::default();
    getrandom::fill(&mut name).map_err(|_| io::ErrorKind::Other)?;
    let bytes = write_places(&mut file, name, &mut now.store, area)?;
    now.written = Some(name);
    Ok(bytes)
}

/// Writes all contents. Returns their bytes.
///
/// Errors: those of `to`.
pub fn write(mut to: impl Write, name: Name, store: &Store) -> io::Result<u64> {
    let bytes = store.stored_bytes();
    let head = Contents { name, chunks: bytes / CHUNK_BYTES };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    let mut chunk = vec![0; CHUNK];
    for (address, room) in store.stored() {
        // SAFETY: a room of the store, which is not changed meanwhile; moves wait.
        unsafe { room.load(&mut chunk) }?;
        parts::write(&mut to, kind::CHUNK, &[&address.to_le_bytes(), &chunk])?;
    }
    parts::write(&mut to, kind::END, &[])?;
    Ok(bytes)
}

/// Moves all contents to a file, and writes their places. Returns their bytes.
///
/// Errors: those of `to`, and of [`Store::move_to`].
pub fn write_places(mut to: impl Write, name: Name, store: &mut Store, area: Area) -> io::Result<u64> {
    let mut steps = Steps::begin();
    let places = store.move_to(area)?;
    steps.end("contents are in a file");
    let head = Contents { name, chunks: places.len() as u64 };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    parts::write_rows(&mut to, kind::PLACES, &places)?;
    parts::write(&mut to, kind::END, &[])?;
    Ok(head.chunks * CHUNK_BYTES)
}

/// Reads the contents of that name, all of which are away. With `area` they are there, and the stream has their places.
///
/// Errors: those of `from`; `InvalidData` for other contents, or not exactly those. All are away still.
pub fn load(from: impl Read, name: Name, store: &mut Store, area: Option<Area>) -> io::Result<()> {
    let loaded = try_to_load(from, name, store, area);
    if loaded.is_err() {
        store.leave();
    }
    loaded
}

fn try_to_load(mut from: impl Read, name: Name, store: &mut Store, area: Option<Area>) -> io::Result<()> {
    let mut part = Vec::new();
    if parts::read(&mut from, &mut part)? != kind::CONTENTS {
        return Err(malformed("it has no contents"));
    }
    load_after(&part, from, name, store, area)
}

/// As [`load`], after the part `head` that begins the contents. After an error some may not be away any more.
pub fn load_after(
    head: &[u8],
    mut from: impl Read,
    name: Name,
    store: &mut Store,
    area: Option<Area>,
) -> io::Result<()> {
    let chunks = store.away() as u64;
    if Contents::read_from_bytes(head).ok() != Some(Contents { name, chunks }) {
        return Err(malformed("it has other contents than those that were saved last"));
    }
    let mut part = Vec::new();
    if let Some(area) = area {
        let mut places = Vec::new();
        loop {
            match parts::read(&mut from, &mut part)? {
                kind::PLACES => read_rows(&part, &mut places, store.away())?,
                kind::END if part.is_empty() => return store.take_from(area, &places),
                _ => return Err(malformed("it has something else than places")),
            }
        }
    }
    store.provide()?;
    loop {
        match parts::read(&mut from, &mut part)? {
            kind::CHUNK => {}
            kind::END if part.is_empty() && store.away() == 0 => return Ok(()),
            _ => return Err(malformed("chunks are missing")),
        }
        let (address, chunk) = part.split_first_chunk().ok_or_else(|| malformed("a chunk is too short"))?;
        let room = (chunk.len() == CHUNK).then(|| store.arrive(u64::from_le_bytes(*address))).flatten();
        let room = room.ok_or_else(|| malformed("a chunk is of no memory that is away"))?;
        // SAFETY: the room was taken for this chunk, and nobody else uses it.
        unsafe { room.store(chunk) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::sync::Arc;

    use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
    use vhost_cuda_common::parts::Place;

    use super::*;
    use crate::suspend::pages::Pages;

    const AT: u64 = 0x7000_0000_0000;
    const NAME: Name = [7; 16];

    /// A store of two parts: three chunks, of which one has zeros, and one chunk.
    fn stored() -> Store {
        let mut store = Store::new(&Arc::new(Pages::default()));
        let parts = [(AT, 3 * CHUNK_BYTES), (AT + 64 * CHUNK_BYTES, CHUNK_BYTES)];
        let pieces = store.prepare(&parts, &[[1; 2], [0; 2], [3; 2], [4; 2]], [0; 2]).unwrap();
        for (piece, byte) in pieces.iter().zip(1..) {
            // SAFETY: a room of the store for this chunk.
            unsafe { piece.room.unwrap().store(&vec![byte; CHUNK]) };
        }
        assert_eq!(pieces.len(), 3);
        store
    }

    fn contents(store: &Store) -> Vec<(u64, u8, u8)> {
        let mut chunk = vec![0; CHUNK];
        let mut of_room = |(address, room): (u64, crate::suspend::room::Room)| {
            // SAFETY: a room of the store.
            unsafe { room.load(&mut chunk) }.unwrap();
            (address, chunk[0], chunk[CHUNK - 1])
        };
        store.stored().map(&mut of_room).collect()
    }

    #[test]
    fn contents_leave_and_come_back() {
        let mut store = stored();
        let before = contents(&store);
        assert_eq!(
            before.iter().map(|(_, first, last)| (*first, *last)).collect::<Vec<_>>(),
            [(1, 1), (2, 2), (3, 3)]
        );
        let mut stream = Vec::new();
        assert_eq!(write(&mut stream, NAME, &store).unwrap(), 3 * CHUNK_BYTES);
        assert_eq!(contents(&store), before, "they stay until they are safe");
        store.leave();
        assert_eq!((store.stored_bytes(), store.away()), (0, 3));
        load(&stream[..], NAME, &mut store, None).unwrap();
        assert_eq!((contents(&store), store.away()), (before, 0));
    }

    /// The part at each of these places of a stream begins there.
    fn places(stream: &[u8]) -> Vec<usize> {
        stream
            .windows(8)
            .enumerate()
            .filter(|(_, bytes)| bytes.starts_with(b"VCSP"))
            .map(|(at, _)| at)
            .collect()
    }

    /// A file of `chunks` chunks.
    fn file(chunks: u64) -> File {
        let file = memory_file(c"contents").unwrap();
        file.set_len(chunks * CHUNK_BYTES).unwrap();
        add_seals(&file, FIXED_LENGTH).unwrap();
        file
    }

    fn area(file: &File) -> Area {
        Area::of_file(file).unwrap()
    }

    #[test]
    fn contents_leave_and_come_back_in_a_file() {
        let (mut store, file) = (stored(), file(4));
        let before = contents(&store);
        let mut stream = Vec::new();
        assert_eq!(write_places(&mut stream, NAME, &mut store, area(&file)).unwrap(), 3 * CHUNK_BYTES);
        assert_eq!(contents(&store), before, "they stay until they are safe");
        let mut byte = [0];
        for (place, first) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            file.read_exact_at(&mut byte, place * CHUNK_BYTES).unwrap();
            assert_eq!(byte, [first], "chunk {place} of the file");
        }
        assert_eq!(file.metadata().unwrap().blocks() * 512, 3 * CHUNK_BYTES);
        store.leave();
        assert_eq!((store.stored_bytes(), store.away()), (0, 3));
        // To another process, and to this one.
        let mut other = stored();
        other.leave();
        for store in [&mut other, &mut store] {
            load(&stream[..], NAME, store, Some(area(&file))).unwrap();
            assert_eq!((contents(store), store.away()), (before.clone(), 0));
        }
        drop(other);
        assert_eq!(contents(&store), before, "one that ends takes nothing from the others");
    }

    #[test]
    fn stores_with_one_saved_file_leave_it_as_it_is() {
        let writable = memory_file(c"saved").unwrap();
        for (place, byte) in [(0, 1), (1, 2), (2, 3)] {
            writable.write_all_at(&vec![byte; CHUNK], place * CHUNK_BYTES).unwrap();
        }
        let file = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd())).unwrap();
        assert!(Area::of_file(&file).is_err(), "it can only be read");
        let mut stream = Vec::new();
        let place =
            |chunk: u64, at: u64| Place { address: AT + chunk * CHUNK_BYTES, offset: at * CHUNK_BYTES };
        let head = Contents { name: NAME, chunks: 3 };
        parts::write(&mut stream, kind::CONTENTS, &[head.as_bytes()]).unwrap();
        parts::write_rows(&mut stream, kind::PLACES, &[place(0, 0), place(2, 1), place(64, 2)]).unwrap();
        parts::write(&mut stream, kind::END, &[]).unwrap();
        let mut stores = [stored(), stored()];
        let before = contents(&stores[0]);
        for store in &mut stores {
            store.leave();
            load(&stream[..], NAME, store, Some(Area::of_saved(&file).unwrap())).unwrap();
            assert_eq!(contents(store), before);
        }
        // One session changes a chunk, clears another one, and is suspended again.
        let parts = [(AT, 3 * CHUNK_BYTES), (AT + 64 * CHUNK_BYTES, CHUNK_BYTES)];
        let pieces = stores[0].prepare(&parts, &[[9; 2], [0; 2], [0; 2], [4; 2]], [0; 2]).unwrap();
        let [changed] = pieces[..] else { panic!("{pieces:?}") };
        assert!(changed.address == AT && !changed.room.unwrap().is_saved());
        // SAFETY: a room of the store for this chunk.
        unsafe { changed.room.unwrap().store(&vec![9; CHUNK]) };
        assert_eq!(contents(&stores[0]), [(AT, 9, 9), (AT + 64 * CHUNK_BYTES, 3, 3)]);
        assert_eq!(contents(&stores[1]), before);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [1]);
        // One that is cut is an error, and no signal.
        writable.set_len(2 * CHUNK_BYTES).unwrap();
        let mut chunk = vec![0; CHUNK];
        // SAFETY: rooms of the store.
        let loaded = stores[1].stored().map(|(_, room)| unsafe { room.load(&mut chunk) }.is_ok());
        assert_eq!(loaded.collect::<Vec<_>>(), [true, true, false]);
        for wrong in [0, CHUNK_BYTES + 1] {
            writable.set_len(wrong).unwrap();
            assert!(Area::of_saved(&file).is_err());
        }
    }

    #[test]
    fn a_file_that_is_too_short_takes_nothing() {
        let mut store = stored();
        let before = contents(&store);
        assert!(write_places(&mut Vec::new(), NAME, &mut store, area(&file(2))).is_err());
        assert_eq!(contents(&store), before);
        let short = memory_file(c"contents").unwrap();
        short.set_len(CHUNK_BYTES - 1).unwrap();
        assert!(Area::of_file(&short).is_err(), "it has no room");
    }

    #[test]
    fn wrong_places_change_nothing() {
        let (mut store, file) = (stored(), file(4));
        let mut stream = Vec::new();
        write_places(&mut stream, NAME, &mut store, area(&file)).unwrap();
        let before = contents(&store);
        store.leave();
        let place =
            |chunk: u64, at: u64| Place { address: AT + chunk * CHUNK_BYTES, offset: at * CHUNK_BYTES };
        let right = [place(0, 3), place(2, 1), place(64, 0)];
        let stream = |places: &[Place]| {
            let mut stream = Vec::new();
            let head = Contents { name: NAME, chunks: 3 };
            parts::write(&mut stream, kind::CONTENTS, &[head.as_bytes()]).unwrap();
            parts::write_rows(&mut stream, kind::PLACES, places).unwrap();
            parts::write(&mut stream, kind::END, &[]).unwrap();
            stream
        };
        let inside = Place { offset: CHUNK_BYTES / 2, ..right[1] };
        let far = Place { offset: u64::MAX - CHUNK_BYTES + 1, ..right[1] };
        for (why, wrong) in [
            ("none", vec![]),
            ("a chunk is missing", right[..2].to_vec()),
            ("a chunk twice", vec![right[0], right[0], right[2]]),
            ("one too many", [&right[..], &right[..1]].concat()),
            ("zeros are there", vec![right[0], place(1, 1), right[2]]),
            ("no chunk of it", vec![right[0], place(5, 1), right[2]]),
            ("two at one place", vec![right[0], place(2, 3), right[2]]),
            ("inside of a chunk", vec![right[0], inside, right[2]]),
            ("behind the file", vec![right[0], place(2, 4), right[2]]),
            ("far behind it", vec![right[0], far, right[2]]),
        ] {
            assert!(load(&stream(&wrong)[..], NAME, &mut store, Some(area(&file))).is_err(), "{why}");
            assert_eq!((store.stored_bytes(), store.away()), (0, 3), "{why}");
        }
        assert!(load(&stream(&right)[..], NAME, &mut store, None).is_err(), "there is no file");
        let mut chunks = Vec::new();
        write(&mut chunks, NAME, &stored()).unwrap();
        assert!(load(&chunks[..], NAME, &mut store, Some(area(&file))).is_err(), "chunks beside a file");
        // In any order. They are not checked before the session is resumed.
        load(&stream(&right)[..], NAME, &mut store, Some(area(&file))).unwrap();
        let found: Vec<u8> = contents(&store).iter().map(|chunk| chunk.1).collect();
        assert_eq!((found, before.len()), (vec![0, 2, 1], 3));
    }

    #[test]
    fn a_stream_that_is_not_the_right_one_changes_nothing() {
        let mut store = stored();
        let before = contents(&store);
        let mut stream = Vec::new();
        write(&mut stream, NAME, &store).unwrap();
        store.leave();
        let at = places(&stream);
        let parts: Vec<&[u8]> =
            (0..5).map(|part| &stream[at[part]..at.get(part + 1).copied().unwrap_or(stream.len())]).collect();
        let [head, first, second, third, end] = parts[..] else { panic!("{at:?}") };
        let mut elsewhere = Vec::new();
        parts::write(&mut elsewhere, kind::CHUNK, &[&(AT + CHUNK_BYTES).to_le_bytes(), &vec![1; CHUNK]])
            .unwrap();
        let mut short = Vec::new();
        parts::write(&mut short, kind::CHUNK, &[&AT.to_le_bytes(), &vec![1; CHUNK - 1]]).unwrap();
        let mut ends = Vec::new();
        parts::write(&mut ends, kind::END, &[b"x"]).unwrap();
        let mut fewer = Vec::new();
        parts::write(&mut fewer, kind::CONTENTS, &[Contents { name: NAME, chunks: 2 }.as_bytes()]).unwrap();
        for (why, wrong) in [
            ("nothing", vec![]),
            ("no head", vec![first, second, third, end]),
            ("cut", vec![head, first, second, third]),
            ("a chunk is missing", vec![head, first, third, end]),
            ("a chunk twice", vec![head, first, first, third, end]),
            ("zeros are there", vec![head, first, &elsewhere, third, end]),
            ("a short chunk", vec![head, &short, second, third, end]),
            ("a long end", vec![head, first, second, third, &ends]),
            ("another number", vec![&fewer, first, second, end]),
            ("a head twice", vec![head, head, first, second, third, end]),
        ] {
            let error = load(&wrong.concat()[..], NAME, &mut store, None);
            assert!(error.is_err(), "{why}");
            assert_eq!((store.stored_bytes(), store.away()), (0, 3), "{why}");
        }
        assert!(load(&stream[..], [8; 16], &mut store, None).is_err(), "of another session");
        // In any order.
        load(&[head, third, second, first, end].concat()[..], NAME, &mut store, None).unwrap();
        assert_eq!(contents(&store), before);
    }
}
