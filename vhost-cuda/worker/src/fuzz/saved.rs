// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saved contents that come back: a file that somebody else may have written, or parts of one in any order. Whole sessions from another
//! worker: parts of one, changed.

use std::sync::{Arc, LazyLock};

use vhost_cuda_choices::Choices;
use vhost_cuda_common::files::{FIXED_LENGTH, add_seals, memory_file};
use vhost_cuda_common::parts::{self, Contents, kind};
use zerocopy::IntoBytes;

use crate::renewal::fixture::{Guest, end_suspended, stream_of};
use crate::renewal::read;
use crate::renewal::stopping::fill;
use crate::suspend::lent::Files;
use crate::suspend::pages::Pages;
use crate::suspend::room::{CHUNK, CHUNK_BYTES};
use crate::suspend::saving::load;
use crate::suspend::store::{Name, Store};

const AT: u64 = 0x7000_0000_0000;
const NAME: Name = [7; 16];
/// The chunks of the session that are away.
const CHUNKS: u64 = 3;
/// Places of chunks, in halves of one: those that are away, and then others.
const PLACES: [u64; 7] = [0, 4, 18, 2, 3, 6, 20];
/// The maximum number of parts of a stream.
const MAX_PARTS: usize = 6;

/// The parts of a session, with their kinds.
type Parts = Vec<(u16, Vec<u8>)>;

/// Those of a session that another worker has written, and of one that comes with its machine.
static SESSIONS: LazyLock<[Parts; 2]> = LazyLock::new(|| {
    let mut guest = Guest::with_all();
    guest.suspend();
    let sessions = [None, Some(1)].map(|stopped_at| {
        let stream = stream_of(&mut guest, stopped_at);
        let (mut from, mut contents, mut parts) = (&stream[..], Vec::new(), Vec::new());
        while let Ok(kind) = parts::read(&mut from, &mut contents) {
            parts.push((kind, contents.clone()));
        }
        parts
    });
    end_suspended(guest);
    sessions
});
/// The files with the contents, which have room for one chunk more.
static FILES: LazyLock<[Files; 2]> = LazyLock::new(|| {
    [1, 2].map(|count| {
        let mut files = Files::default();
        for _ in 0..count {
            let file = memory_file(c"contents").expect("a file in memory");
            file.set_len((CHUNKS + 1) / count * CHUNK_BYTES).expect("a sparse file");
            add_seals(&file, FIXED_LENGTH).expect("its length stays");
            files.add(file, false).expect("few files");
        }
        files
    })
});
/// The maximum number of changes to a session.
const MAX_CHANGES: usize = 8;

/// An input is a stream; a list of parts, a byte each; and a list of changes to a session.
pub fn run(data: &[u8]) {
    check(data);
    check(&stream(data));
    enter(data, false);
    let is_stopped = data.first().is_some_and(|byte| byte % 2 == 1);
    enter(&changed(data, &SESSIONS[usize::from(is_stopped)]), is_stopped);
}

/// Lets a session enter that may be wrong. What does enter has no more memory than it may have, and can be resumed, or not.
fn enter(stream: &[u8], is_stopped: bool) {
    let mut guest = Guest::new(true);
    let session = guest.session.state;
    if let Ok((entered, _)) = read(stream, session, CHUNKS * 4 * CHUNK_BYTES, None, is_stopped) {
        assert!(session.allocations().quota.memory().is_some_and(|(total, free)| free <= total));
        // Lanes of any threads may lie in the same pages, so these do not run.
        if fill(session, entered.areas).is_ok() {
            guest.try_to_resume();
        }
    }
    end_suspended(guest);
}

/// Changes the parts of a session, as the input chooses, and writes them with right digests.
fn changed(data: &[u8], session: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let (mut parts, mut choices) = (session.to_vec(), Choices::of(data));
    for _ in 0..MAX_CHANGES {
        if !choices.more() || parts.is_empty() {
            break;
        }
        let at = usize::from(choices.byte()) % parts.len();
        match choices.byte() % 8 {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[at].clone()),
            2 => {
                let other = usize::from(choices.byte()) % parts.len();
                parts.swap(at, other);
            }
            3 => {
                let bytes = choices.number() as usize % (parts[at].1.len() + 1);
                parts[at].1.truncate(bytes);
            }
            4 => parts[at].0 = u16::from(choices.byte()) % 40,
            // A row once more, or a number in one.
            5 => {
                let bytes = usize::from(choices.byte()).min(parts[at].1.len());
                let row = parts[at].1[..bytes].to_vec();
                parts[at].1.extend(row);
            }
            _ => {
                let contents = &mut parts[at].1;
                let place = (choices.number() as usize % (contents.len() / 8 + 1)) * 8;
                let number = choices.number();
                if let Some(word) = contents.get_mut(place..place + 8) {
                    word.copy_from_slice(&number.to_le_bytes());
                }
            }
        }
    }
    let mut stream = Vec::new();
    for (kind, contents) in &parts {
        // Contents that are too long are not written.
        let _ = parts::write(&mut stream, *kind, &[&contents[..]]);
    }
    stream
}

fn check(stream: &[u8]) {
    let mut store = Store::new(&Arc::new(Pages::default()));
    let digests = [[1; 2], [0; 2], [2; 2], [3; 2]];
    let parts = [(AT, 3 * CHUNK_BYTES), (AT + 9 * CHUNK_BYTES, CHUNK_BYTES)];
    assert_eq!(store.prepare(&parts, &digests, [0; 2]).map_or(0, |pieces| pieces.len() as u64), CHUNKS);
    store.leave();
    let bytes = CHUNKS * CHUNK_BYTES;
    for files in [None, Some(&FILES[0]), Some(&FILES[1])] {
        match load(stream, NAME, &mut store, files) {
            Ok(()) => assert_eq!((store.stored_bytes(), store.away()), (bytes, 0)),
            Err(_) => assert_eq!((store.stored_bytes(), store.away() as u64), (0, CHUNKS)),
        }
        store.leave();
    }
}

/// Rows for all chunks: the two lowest bits choose the address of the first one, and the others places of two.
fn places(choice: u64) -> Vec<u8> {
    let row = |place: u64, at: u64| [AT + place * CHUNK_BYTES / 2, at * CHUNK_BYTES / 2];
    let first = PLACES[choice as usize % 4];
    let rows = [row(first, choice >> 2 & 7), row(4, 2), row(18, (choice >> 5) * 4)];
    rows.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Writes the parts with right digests. The first one is the right head, or that which the first byte chooses.
fn stream(choices: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (index, &choice) in choices.iter().take(MAX_PARTS).enumerate() {
        let head = |name, chunks| Contents { name, chunks }.as_bytes().to_vec();
        let chunk =
            |place: u64, bytes: usize| [&(AT + place).to_le_bytes()[..], &vec![choice; bytes]].concat();
        let (of_kind, contents) = match choice % 16 {
            _ if index == 0 && choice < 0xf0 => (kind::CONTENTS, head(NAME, CHUNKS)),
            0 => (kind::CONTENTS, head(NAME, u64::from(choice))),
            1 => (kind::CONTENTS, head([choice; 16], CHUNKS)),
            2 | 3 => (kind::END, Vec::new()),
            4 => (kind::END, vec![choice]),
            5 => (kind::CHUNK, chunk(u64::from(choice), CHUNK)),
            6 => (kind::CHUNK, chunk(0, CHUNK - 1)),
            7 => (kind::CHUNK, vec![choice; usize::from(choice) % 16]),
            8 if choice < 0x80 => (u16::from(choice), Vec::new()),
            // Rows, of which two may be wrong.
            8 => (kind::PLACES, places(u64::from(choice & 0x7f))),
            other => (kind::CHUNK, chunk(PLACES[usize::from(other) - 9] * CHUNK_BYTES / 2, CHUNK)),
        };
        // Contents that are too long are not written.
        let _ = parts::write(&mut stream, of_kind, &[&contents]);
    }
    stream
}
