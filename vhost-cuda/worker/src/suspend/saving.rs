// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contents of a suspended session that leave this process, and come back: in files ([`super::lent`]), with a stream that says where
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
use vhost_cuda_common::link::{
    ALREADY_SAVED, Frame, NEXT_SUSPENSION, TO_LOAD, TO_SAVE, TO_SAVED, ToWorker, pool_of,
};
use vhost_cuda_common::parts::{self, Contents, kind, malformed, read_rows};
use vhost_cuda_common::recipes::Description;
use zerocopy::{FromBytes, IntoBytes};

use super::held::Way;
use super::lent::Files;
use super::room::{CHUNK, CHUNK_BYTES};
use super::steps::Steps;
use super::store::{Name, Store};
use super::suspended::Suspended;
use crate::state::SessionState;

/// Keeps the next file, or a socket, for the contents of the next request.
pub fn lend(session: &SessionState, frame: &mut Frame) {
    let ToWorker { id, flags, .. } = frame.header;
    let mut lent = session.suspension.lent.lock();
    let before = lent.take().filter(|(of, _)| *of == id).and_then(|(_, way)| way.memory());
    let Some(file) = frame.file.take() else { return };
    let is_socket = file.metadata().is_ok_and(|about| about.file_type().is_socket());
    let way = if is_socket {
        Some(Way::Card(OwnedFd::from(file).into()))
    } else {
        let mut files = before.unwrap_or_default();
        let added = files.add(file, flags & ALREADY_SAVED != 0);
        added.inspect_err(|error| debug!("{error}")).is_ok().then_some(Way::Memory(files))
    };
    *lent = way.map(|way| (id, way));
}

/// Returns the way for the contents of this request, if there is one.
pub fn lent(session: &SessionState, frame: &Frame) -> Option<Way> {
    let lent = session.suspension.lent.lock().take();
    lent.filter(|(id, _)| *id == frame.header.id).map(|(_, way)| way)
}

/// Returns the files for the contents of the next suspension, if there are such.
pub fn offered(session: &SessionState) -> Option<Files> {
    let mut lent = session.suspension.lent.lock();
    lent.take_if(|(id, _)| *id == NEXT_SUSPENSION).and_then(|(_, way)| way.memory())
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
    let files = lent(session, frame).and_then(Way::memory);
    let mut suspended = session.suspension.suspended.lock();
    let now = suspended.as_mut().ok_or("it is not suspended")?;
    match (frame.header.kind, frame.file.take()) {
        (TO_SAVE, Some(pipe)) => {
            is_all_stored(session, now)?;
            let files = files.ok_or(NO_FILE)?;
            save(now, pipe, &files).map_err(|error| format!("the contents cannot be written: {error}"))
        }
        (TO_SAVED, None) => {
            is_all_stored(session, now)?;
            let name = now.written.take().ok_or("its contents were not written")?;
            let bytes = now.store.stored_bytes();
            now.store.leave();
            now.saved = Some(name);
            Ok(bytes)
        }
        (TO_LOAD, Some(pipe)) => {
            let name = now.saved.ok_or("its contents are in host memory")?;
            let most = pool_of(&frame.payload).ok_or("a frame of the wrong size")?;
            if now.store.away() as u64 * CHUNK_BYTES > most {
                return Err("there is not enough host memory for its contents".to_owned());
            }
            load(pipe, name, &mut now.store, Some(&files.ok_or(NO_FILE)?))
                .map_err(|error| format!("the contents cannot be read: {error}"))?;
            // The files have them still, as long as these are not known to be wrong.
            (now.saved, now.written) = (None, Some(name));
            Ok(now.store.stored_bytes())
        }
        _ => Err("a frame without its file".to_owned()),
    }
}

/// Errors: not all memory is in the store.
fn is_all_stored(session: &SessionState, now: &Suspended) -> Result<(), String> {
    let is_all = session.placed.lock().movable().all(|part| part.stored);
    match is_all && now.created.iter().all(|(_, part)| part.stored) {
        true => Ok(()),
        false => Err("a part of its memory is on the card".to_owned()),
    }
}

fn save(now: &mut Suspended, mut pipe: File, files: &Files) -> io::Result<u64> {
    if now.saved.is_some() {
        return Err(malformed("they are saved already"));
    }
    now.written = None;
    let mut name = Name::default();
    getrandom::fill(&mut name).map_err(|_| io::ErrorKind::Other)?;
    let bytes = write_places(&mut pipe, name, &mut now.store, files)?;
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

/// Moves all contents to files, and writes their places. Returns their bytes.
///
/// Errors: those of `to`, and of [`Store::move_to`].
pub fn write_places(mut to: impl Write, name: Name, store: &mut Store, files: &Files) -> io::Result<u64> {
    let mut steps = Steps::begin();
    let places = store.move_to(files)?;
    steps.end("contents are in files");
    let head = Contents { name, chunks: places.len() as u64 };
    parts::write(&mut to, kind::CONTENTS, &[head.as_bytes()])?;
    parts::write_rows(&mut to, kind::PLACES, &places)?;
    parts::write(&mut to, kind::END, &[])?;
    Ok(head.chunks * CHUNK_BYTES)
}

/// Reads the contents of that name, all of which are away. With `files` they are there, and the stream has their places.
///
/// Errors: those of `from`; `InvalidData` for other contents, or not exactly those. All are away still.
pub fn load(from: impl Read, name: Name, store: &mut Store, files: Option<&Files>) -> io::Result<()> {
    let loaded = try_to_load(from, name, store, files);
    if loaded.is_err() {
        store.leave();
    }
    loaded
}

fn try_to_load(mut from: impl Read, name: Name, store: &mut Store, files: Option<&Files>) -> io::Result<()> {
    let mut part = Vec::new();
    if parts::read(&mut from, &mut part)? != kind::CONTENTS {
        return Err(malformed("it has no contents"));
    }
    load_after(&part, from, name, store, files)
}

/// As [`load`], after the part `head` that begins the contents. After an error some may not be away any more.
pub fn load_after(
    head: &[u8],
    mut from: impl Read,
    name: Name,
    store: &mut Store,
    files: Option<&Files>,
) -> io::Result<()> {
    let chunks = store.away() as u64;
    if Contents::read_from_bytes(head).ok() != Some(Contents { name, chunks }) {
        return Err(malformed("it has other contents than those that were saved last"));
    }
    let mut part = Vec::new();
    if let Some(files) = files {
        let mut places = Vec::new();
        loop {
            match parts::read(&mut from, &mut part)? {
                kind::PLACES => read_rows(&part, &mut places, store.away())?,
                kind::END if part.is_empty() => return store.take_from(files, &places),
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
    use vhost_cuda_common::parts::{FILES, Place};

    use super::*;
    use crate::suspend::lent::Offer;
    use crate::suspend::pages::Pages;
    use crate::suspend::room::Area;

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

    fn lent(all: &[&File], is_saved: bool) -> Files {
        let mut files = Files::default();
        all.iter().for_each(|file| files.add(file.try_clone().unwrap(), is_saved).unwrap());
        files
    }

    #[test]
    fn contents_leave_and_come_back_in_files() {
        let first_bytes = |file: &File| {
            let chunks = 0..file.metadata().unwrap().len() / CHUNK_BYTES;
            let mut byte = [0];
            chunks
                .map(|place| file.read_exact_at(&mut byte, place * CHUNK_BYTES).map(|()| byte[0]).unwrap())
                .collect()
        };
        let growing = || memory_file(c"contents").unwrap();
        for (all, expected) in [
            (vec![file(4)], vec![vec![1, 2, 3, 0]]),
            (vec![file(2), growing()], vec![vec![1, 3], vec![2]]),
            ((0..4).map(|_| growing()).collect(), vec![vec![1], vec![2], vec![3], vec![]]),
        ] {
            let all: Vec<&File> = all.iter().collect();
            let (mut store, files) = (stored(), lent(&all, false));
            let before = contents(&store);
            let mut stream = Vec::new();
            assert_eq!(write_places(&mut stream, NAME, &mut store, &files).unwrap(), 3 * CHUNK_BYTES);
            assert_eq!(contents(&store), before, "they stay until they are safe");
            let found: Vec<Vec<u8>> = all.iter().map(|file| first_bytes(file)).collect();
            assert_eq!(found, expected);
            let blocks: u64 = all.iter().map(|file| file.metadata().unwrap().blocks() * 512).sum();
            assert_eq!(blocks, 3 * CHUNK_BYTES);
            store.leave();
            assert_eq!((store.stored_bytes(), store.away()), (0, 3));
            // To another process, and to this one.
            let mut other = stored();
            other.leave();
            for store in [&mut other, &mut store] {
                load(&stream[..], NAME, store, Some(&lent(&all, false))).unwrap();
                assert_eq!((contents(store), store.away()), (before.clone(), 0));
            }
            drop(other);
            assert_eq!(contents(&store), before, "one that ends takes nothing from the others");
        }
        let mut too_many = lent(&[], false);
        let added = (0..=FILES).map(|_| too_many.add(growing(), false).is_ok()).filter(|is_ok| *is_ok);
        assert_eq!(added.count(), FILES);
    }

    #[test]
    fn contents_of_a_suspension_stay_in_the_files_that_were_offered() {
        let files = || [memory_file(c"contents").unwrap(), memory_file(c"contents").unwrap()];
        let all = files();
        let all: Vec<&File> = all.iter().collect();
        let (mut store, full) = (Store::new(&Arc::new(Pages::default())), file(0));
        let parts = [(AT, 3 * CHUNK_BYTES), (AT + 64 * CHUNK_BYTES, CHUNK_BYTES)];
        store.offer = Some(Offer::new(lent(&all, false)));
        let pieces = store.prepare(&parts, &[[1; 2], [2; 2], [3; 2], [4; 2]], [0; 2]).unwrap();
        let offer = store.offer.as_ref().unwrap();
        let mut is_taken = [2, 0, 3]
            .into_iter()
            .map(|index| offer.take(pieces[index].address, &vec![index as u8 + 1; CHUNK]));
        assert!(is_taken.all(|is_taken| is_taken));
        // SAFETY: a room of the store for this chunk.
        unsafe { pieces[1].room.unwrap().store(&vec![2; CHUNK]) };
        store.settle().unwrap();
        let expected: Vec<_> =
            (1..=4).zip(&pieces).map(|(byte, piece)| (piece.address, byte, byte)).collect();
        assert_eq!(contents(&store), expected);
        let rooms: Vec<_> = store.stored().map(|(_, room)| room).collect();
        assert_eq!(rooms.iter().map(|room| room.is_saved()).collect::<Vec<_>>(), [true, false, true, true]);
        // Only the other one moves there, and all to other files.
        let other = files();
        for (round, files) in [lent(&all, false), lent(&other.each_ref(), false)].iter().enumerate() {
            let mut stream = Vec::new();
            assert_eq!(write_places(&mut stream, NAME, &mut store, files).unwrap(), 4 * CHUNK_BYTES);
            let now: Vec<_> = store.stored().map(|(_, room)| room).collect();
            let same = now.iter().zip(&rooms).filter(|(now, before)| now == before).count();
            assert_eq!((same, contents(&store)), (if round == 0 { 3 } else { 0 }, expected.clone()));
            let mut there = Store::new(&Arc::new(Pages::default()));
            there.prepare(&parts, &[[1; 2]; 4], [0; 2]).unwrap();
            there.leave();
            load(&stream[..], NAME, &mut there, Some(files)).unwrap();
            assert_eq!(contents(&there), expected);
        }
        let offer = Offer::new(lent(&[&full], false));
        assert!(!offer.take(AT, &vec![1; CHUNK]) && offer.places().is_empty(), "a file that is full");
        assert!(!Offer::new(Files::default()).take(AT, &vec![1; CHUNK]));
    }

    #[test]
    fn stores_with_one_saved_file_leave_it_as_it_is() {
        let writable = memory_file(c"saved").unwrap();
        for (place, byte) in [(0, 1), (1, 2), (2, 3)] {
            writable.write_all_at(&vec![byte; CHUNK], place * CHUNK_BYTES).unwrap();
        }
        let file = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd())).unwrap();
        assert!(Area::of_file(&file, false).is_err(), "it can only be read");
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
            load(&stream[..], NAME, store, Some(&lent(&[&file], true))).unwrap();
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
        writable.set_len(CHUNK_BYTES + 1).unwrap();
        assert!(Area::of_file(&file, true).is_err());
        writable.set_len(0).unwrap();
        assert_eq!(Area::of_file(&file, true).unwrap().room_bytes(), 0);
    }

    #[test]
    fn a_file_that_is_too_short_takes_nothing() {
        let mut store = stored();
        let before = contents(&store);
        for files in [lent(&[&file(2)], false), lent(&[&file(1), &file(1)], false), lent(&[], false)] {
            assert!(write_places(&mut Vec::new(), NAME, &mut store, &files).is_err());
            assert_eq!(contents(&store), before);
        }
        // One that cannot be written.
        let file = File::open("/dev/null").unwrap();
        assert!(write_places(&mut Vec::new(), NAME, &mut store, &lent(&[&file], false)).is_err());
        assert_eq!(contents(&store), before);
    }

    #[test]
    fn wrong_places_change_nothing() {
        let (mut store, file) = (stored(), file(4));
        let files = lent(&[&file], false);
        let mut stream = Vec::new();
        write_places(&mut stream, NAME, &mut store, &files).unwrap();
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
            assert!(load(&stream(&wrong)[..], NAME, &mut store, Some(&files)).is_err(), "{why}");
            assert_eq!((store.stored_bytes(), store.away()), (0, 3), "{why}");
        }
        assert!(load(&stream(&right)[..], NAME, &mut store, None).is_err(), "there is no file");
        let mut chunks = Vec::new();
        write(&mut chunks, NAME, &stored()).unwrap();
        assert!(load(&chunks[..], NAME, &mut store, Some(&files)).is_err(), "chunks beside a file");
        // In any order. They are not checked before the session is resumed.
        load(&stream(&right)[..], NAME, &mut store, Some(&files)).unwrap();
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
