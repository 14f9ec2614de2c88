// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saved contents that come back: a file that somebody else may have written, or parts of one in any order.

use std::sync::Arc;

use vhost_cuda_common::parts::{self, Contents, kind};
use zerocopy::IntoBytes;

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

/// An input is a stream; and a list of parts, a byte each.
pub fn run(data: &[u8]) {
    check(data);
    check(&stream(data));
}

fn check(stream: &[u8]) {
    let mut store = Store::new(&Arc::new(Pages::default()));
    let digests = [[1; 2], [0; 2], [2; 2], [3; 2]];
    let parts = [(AT, 3 * CHUNK_BYTES), (AT + 9 * CHUNK_BYTES, CHUNK_BYTES)];
    assert_eq!(store.prepare(&parts, &digests, [0; 2]).map_or(0, |pieces| pieces.len() as u64), CHUNKS);
    store.leave();
    let bytes = CHUNKS * CHUNK_BYTES;
    match load(stream, NAME, &mut store) {
        Ok(()) => assert_eq!((store.stored_bytes(), store.away()), (bytes, 0)),
        Err(_) => assert_eq!((store.stored_bytes(), store.away() as u64), (0, CHUNKS)),
    }
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
            8 => (u16::from(choice), Vec::new()),
            other => (kind::CHUNK, chunk(PLACES[usize::from(other) - 9] * CHUNK_BYTES / 2, CHUNK)),
        };
        // Contents that are too long are not written.
        let _ = parts::write(&mut stream, of_kind, &[&contents]);
    }
    stream
}
