// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form in which a worker hands over what it has recorded for a profile, and the daemon's reading of it.
//!
//! Each answer has a head, then names, then records. Names have numbers in the order in which they come. Nothing of it is
//! trusted: a worker that was taken over can tell what it likes of its own session.

use std::sync::Arc;

use vhost_cuda_profile::event::{Event, Kind};
use vhost_cuda_profile::names;
use virtio_cuda_protocol::cuda::Opcode;
use zerocopy::{FromBytes, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Payload of [`crate::link::TO_PROFILE`]: begins to record. All answers have the same form.
pub const START: u32 = 1;
/// The same: hands over what was recorded.
pub const READ: u32 = 2;
/// The same: ends to record, and frees all memory for it.
pub const STOP: u32 = 3;

/// The maximum length of a name in an answer, in bytes. A longer one is cut.
pub const MAX_NAME_BYTES: usize = 4096;
/// The maximum number of names of a recording. Limits the daemon's memory.
const MAX_NAMES: usize = 1 << 16;

/// [`Record::kind`]: a call; `name` is its opcode.
pub const CALL: u32 = 1;
/// [`Record::kind`]: a call of one of NVIDIA's libraries; `name` is the number of a name.
pub const LIBRARY_CALL: u32 = 2;
/// [`Record::kind`]: the part of a call in which it waited at a gate; `name` is [`SUSPENDED`] or [`TURN`].
pub const GATE: u32 = 3;
/// [`Record::kind`]: a move of the session's memory; `name` is [`OUT`] or [`BACK`].
pub const MOVE: u32 = 4;
/// [`Record::kind`]: a kernel; `name` is the number of a name.
pub const KERNEL: u32 = 5;
/// [`Record::kind`]: a copy of the GPU; `name` has CUPTI's numbers of its direction, and of the kinds of memory of source and
/// destination, a byte each.
pub const COPY: u32 = 6;
/// [`Record::kind`]: a fill by the GPU.
pub const FILL: u32 = 7;

/// [`Record::name`] of a [`GATE`]: the session's memory was moving, or in host memory.
pub const SUSPENDED: u32 = 0;
/// [`Record::name`] of a [`GATE`]: it was another virtual machine's turn.
pub const TURN: u32 = 1;
/// [`Record::name`] of a [`MOVE`]: to host memory.
pub const OUT: u32 = 0;
/// [`Record::name`] of a [`MOVE`]: back to the card.
pub const BACK: u32 = 1;

/// [`Record::path`]: through a lane. Without it, through a request queue.
pub const LANE: u32 = 1;
/// [`Record::path`]: no one waited for its answer.
pub const POSTED: u32 = 2;
/// [`Record::path`]: the worker read or wrote pages of the program in place.
pub const PAGES: u32 = 4;

/// The head of an answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Head {
    /// The number of names that follow: for each, its length in bytes (a `u32`) and the text.
    pub names: u32,
    /// The number of records that follow the names.
    pub records: u32,
    /// The number of records that wait for the next answer.
    pub left: u64,
    /// The number of records that were lost since the last answer.
    pub dropped: u64,
    /// The `CUresult` with which measuring the GPU's work was refused; 0: it is measured.
    pub no_gpu: u32,
    /// Zero.
    pub reserved: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Record {
    /// [`CALL`] to [`FILL`].
    pub kind: u32,
    /// The guest's thread, or the stream.
    pub row: u32,
    /// Begin, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begin: u64,
    /// End.
    pub end: u64,
    /// Bytes of bulk data, of a copy, or of a move.
    pub bytes: u64,
    /// The time for which a call has waited in its lane or in the worker's queue, in nanoseconds. In a lane it may have waited
    /// for longer.
    pub waited: u64,
    /// Depends on the kind.
    pub name: u32,
    /// The call's `CUresult`.
    pub result: u32,
    /// The GPU's ordinal.
    pub device: u32,
    /// [`LANE`], [`POSTED`] and [`PAGES`].
    pub path: u32,
}

/// Builds an answer of limited length.
#[derive(Debug)]
pub struct Answer {
    names: Vec<u8>,
    records: Vec<Record>,
    head: Head,
    room: usize,
}

impl Answer {
    /// Returns an empty answer of at most `room` bytes.
    pub fn new(room: usize, no_gpu: u32) -> Self {
        let head = Head { no_gpu, ..Head::default() };
        Self { names: Vec::new(), records: Vec::new(), head, room: room.saturating_sub(size_of::<Head>()) }
    }

    /// Adds a name. Returns false if there is no room for it.
    pub fn name(&mut self, name: &[u8]) -> bool {
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        let bytes = size_of::<u32>() + name.len();
        let Some(room) = self.room.checked_sub(bytes) else { return false };
        self.room = room;
        self.head.names += 1;
        self.names.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.names.extend_from_slice(name);
        true
    }

    /// Adds a record. Returns false if there is no room for it.
    pub fn record(&mut self, record: Record) -> bool {
        let Some(room) = self.room.checked_sub(size_of::<Record>()) else { return false };
        self.room = room;
        self.records.push(record);
        true
    }

    /// Returns the answer's bytes.
    pub fn finish(mut self, left: u64, dropped: u64) -> Vec<u8> {
        self.head = Head { records: self.records.len() as u32, left, dropped, ..self.head };
        let mut bytes = self.head.as_bytes().to_vec();
        bytes.extend_from_slice(&self.names);
        bytes.extend_from_slice(self.records.as_bytes());
        bytes
    }
}

/// The daemon's side of a recording.
#[derive(Debug, Default)]
pub struct Recording {
    names: Vec<Arc<str>>,
}

impl Recording {
    /// Reads an answer. Returns `None` for one that is malformed.
    pub fn read(&mut self, answer: &[u8]) -> Option<(Head, Vec<Event>)> {
        let (head, mut rest) = Head::read_from_prefix(answer).ok()?;
        for _ in 0..head.names {
            let (bytes, more) = u32::read_from_prefix(rest).ok()?;
            let (name, more) = more.split_at_checked(bytes as usize)?;
            if bytes as usize > MAX_NAME_BYTES || self.names.len() >= MAX_NAMES {
                return None;
            }
            self.names.push(names::of_kernel(name).into());
            rest = more;
        }
        let mut events = Vec::with_capacity(rest.len() / size_of::<Record>());
        for _ in 0..head.records {
            let (record, more) = Record::read_from_prefix(rest).ok()?;
            events.push(self.event(&record)?);
            rest = more;
        }
        rest.is_empty().then_some((head, events))
    }

    fn event(&self, record: &Record) -> Option<Event> {
        let named = || {
            let place = (record.name as usize).checked_sub(1);
            place.and_then(|place| self.names.get(place)).map_or("?", |name| name)
        };
        let (kind, name) = match record.kind {
            CALL => (Kind::Call, Opcode::from_u32(record.name).map_or("?", Opcode::name)),
            LIBRARY_CALL => (Kind::Call, named()),
            GATE if record.name == SUSPENDED => (Kind::Gate, "suspended"),
            GATE => (Kind::Gate, "turn of another machine"),
            MOVE if record.name == OUT => (Kind::Move, "to host memory"),
            MOVE => (Kind::Move, "back to the card"),
            KERNEL => (Kind::Kernel, named()),
            COPY => (Kind::Copy, names::of_direction(record.name.to_le_bytes()[0])),
            FILL => (Kind::Fill, "fill"),
            _ => return None,
        };
        let mut event = Event::new(kind, name, record.row, [record.begin, record.end]);
        event.device = record.device;
        event.bytes = record.bytes;
        event.waited = record.waited;
        event.result = record.result;
        event.path = match kind {
            Kind::Call => path(record.path).to_owned(),
            Kind::Copy => {
                let [_, from, to, _] = record.name.to_le_bytes();
                format!("{} to {}", names::of_memory(from), names::of_memory(to))
            }
            _ => String::new(),
        };
        Some(event)
    }
}

fn path(path: u32) -> &'static str {
    match path & (LANE | POSTED | PAGES) {
        0 => "request queue",
        PAGES => "request queue, pages in place",
        path if path & POSTED != 0 => "lane, posted",
        _ => "lane",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 10;

    fn record(kind: u32, name: u32) -> Record {
        Record { kind, name, row: 3, begin: 10, end: 30, ..Record::default() }
    }

    fn told(answer: &[u8]) -> Option<Vec<(Kind, String, String)>> {
        let (_, events) = Recording::default().read(answer)?;
        Some(events.into_iter().map(|event| (event.kind, event.name, event.path)).collect())
    }

    #[test]
    fn an_answer_is_read_as_it_was_built() {
        let mut answer = Answer::new(ROOM, 500);
        assert!(answer.name(b"_Z3addPf") && answer.name(b"cublasSgemm_v2"));
        let call = Record { path: LANE | POSTED, waited: 7, ..record(CALL, Opcode::cuLaunchKernel as u32) };
        let copy = record(COPY, u32::from_le_bytes([1, 2, 3, 0]));
        for record in
            [call, record(LIBRARY_CALL, 2), record(KERNEL, 1), copy, record(MOVE, BACK), record(KERNEL, 9)]
        {
            assert!(answer.record(record));
        }
        let bytes = answer.finish(4, 2);
        let (head, events) = Recording::default().read(&bytes).unwrap();
        assert_eq!((head.left, head.dropped, head.no_gpu), (4, 2, 500));
        assert_eq!((events[0].waited, events[0].row, events[0].duration()), (7, 3, 20));
        let expected = [
            (Kind::Call, "cuLaunchKernel", "lane, posted"),
            (Kind::Call, "cublasSgemm_v2", "request queue"),
            (Kind::Kernel, "add", ""),
            (Kind::Copy, "host to device", "pinned to device"),
            (Kind::Move, "back to the card", ""),
            (Kind::Kernel, "?", ""),
        ];
        assert_eq!(
            told(&bytes).unwrap(),
            expected.map(|(kind, name, path)| (kind, name.into(), path.into()))
        );
        for end in 0..bytes.len() {
            assert_eq!(told(&bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn answers_keep_to_their_room() {
        let mut answer = Answer::new(300, 0);
        assert!(!answer.name(&[b'x'; 400]));
        assert!(answer.name(&[b'x'; 100]));
        while answer.record(record(FILL, 0)) {}
        let bytes = answer.finish(0, 0);
        assert!(bytes.len() <= 300 && told(&bytes).is_some());
    }

    #[test]
    fn what_no_worker_sends_is_refused() {
        let mut answer = Answer::new(ROOM, 0);
        answer.record(record(99, 0));
        assert_eq!(told(&answer.finish(0, 0)), None);
        let long = Head { names: 1, ..Head::default() };
        let mut bytes = long.as_bytes().to_vec();
        bytes.extend_from_slice(&(MAX_NAME_BYTES as u32 + 1).to_ne_bytes());
        bytes.extend_from_slice(&[b'x'; MAX_NAME_BYTES + 1]);
        assert_eq!(told(&bytes), None);
        let many = Head { names: u32::MAX, records: u32::MAX, ..Head::default() };
        assert_eq!(told(many.as_bytes()), None);
    }
}
