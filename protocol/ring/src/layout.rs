// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The layout of a lane. Integers are little-endian, like the machine: both ends run on the same one.

use crate::sync::{AtomicU32, AtomicU64};

/// Bytes before the records: one page.
pub const RECORDS_OFFSET: usize = 4096;
/// Bytes of the ring of records; a power of two.
#[cfg(not(loom))]
pub const RECORDS_BYTES: usize = 256 << 10;
/// Small enough to be filled and wrapped in a model.
#[cfg(loom)]
pub const RECORDS_BYTES: usize = 64;
/// The start of the room for replies.
pub const REPLY_OFFSET: usize = RECORDS_OFFSET + RECORDS_BYTES;
/// Bytes of the room for replies.
pub const MAX_REPLY_BYTES: usize = 68 << 10;
/// Maximum length of a reply beside its number; a multiple of 8.
pub const SHORT_REPLY_BYTES: usize = 48;
/// Bytes of a lane: whole pages.
pub const LANE_BYTES: usize = REPLY_OFFSET + MAX_REPLY_BYTES;
/// The maximum contents of a record in bytes. With its head a record takes at most half of the ring, so that one
/// always fits into the empty ring, independent of the position of the ring's end.
pub const MAX_RECORD_BYTES: usize = RECORDS_BYTES / 2 - HEAD_BYTES;
/// Bytes of a record's head, and the unit that records are rounded up to.
pub const HEAD_BYTES: usize = 16;

/// A word in its own cache line (and the one that is fetched with it), so that the two sides do not disturb each
/// other.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Line<T>(pub T);

/// The latest reply, in one cache line: the waiting thread gets it with its number.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Reply {
    /// Number of the record that the reply answers.
    pub number: AtomicU64,
    /// Bytes of the reply; valid, as are those themselves, once `number` is seen.
    pub bytes: AtomicU32,
    /// The reply, if it is no longer than [`SHORT_REPLY_BYTES`]; else it is in the room for replies.
    pub short: [AtomicU64; SHORT_REPLY_BYTES / 8],
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Reply>() == 64);

/// The first page of a lane.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    /// Written by the producer: bytes of records it has put in, ever. It only grows.
    pub tail: Line<AtomicU64>,
    /// Written by the consumer: bytes of records it is done with, ever.
    pub head: Line<AtomicU64>,
    /// 1 if the consumer sleeps. The thread that sets it to 0 must wake the consumer.
    pub sleeping: Line<AtomicU32>,
    /// Written by the consumer.
    pub reply: Line<Reply>,
    /// Written by the consumer: not 0 while an error of a record without reply has not been reported.
    pub deferred: Line<AtomicU32>,
    /// Written by the consumer's process before it ends on its own: the result of all calls from then on, or 0.
    pub verdict: Line<AtomicU32>,
}
#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() == 6 * 128 && size_of::<Header>() <= RECORDS_OFFSET);
const _: () = assert!(RECORDS_BYTES.is_power_of_two());
#[cfg(not(loom))]
const _: () = assert!(LANE_BYTES.is_multiple_of(4096));

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The thread waits for the reply.
    Wait = 1,
    /// The producer does not wait; a later reply reports an error.
    Post = 2,
    /// No record: the rest of the ring up to its end is not used.
    Skip = 3,
}

impl Kind {
    /// The kind of that number, if there is one.
    pub fn from_u32(number: u32) -> Option<Self> {
        [Self::Wait, Self::Post, Self::Skip].into_iter().find(|&kind| kind as u32 == number)
    }
}

/// Bytes that a record of `bytes` takes in the ring.
pub const fn record_bytes(bytes: usize) -> usize {
    (HEAD_BYTES + bytes).next_multiple_of(HEAD_BYTES)
}
