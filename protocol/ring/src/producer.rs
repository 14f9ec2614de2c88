// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The guest thread's side of a lane.

use crate::layout::{
    HEAD_BYTES, Kind, MAX_RECORD_BYTES, MAX_REPLY_BYTES, RECORDS_BYTES, SHORT_REPLY_BYTES, record_bytes,
};
use crate::memory::{Access, LaneMemory};
use crate::sync::Ordering;

/// Bytes that are prefetched for the next record. Most records are no longer.
const PREFETCHED: usize = 256;

/// The side that puts records in. Each lane has one.
#[derive(Debug)]
pub struct Producer {
    memory: LaneMemory,
    /// The value of [`crate::layout::Header::tail`].
    tail: u64,
    /// The consumer's progress as seen last.
    head: u64,
}

impl Producer {
    /// The producer of a lane that the consumer has set up ([`crate::Consumer::set_up`]).
    pub fn new(memory: LaneMemory) -> Self {
        Self { memory, tail: 0, head: 0 }
    }

    /// Bytes of the ring that a record of `bytes` takes: the record, and the bytes that are skipped before it.
    fn needed(&self, bytes: usize) -> usize {
        let (at, record) = (self.position(), record_bytes(bytes));
        if at + record <= RECORDS_BYTES { record } else { RECORDS_BYTES - at + record }
    }

    fn position(&self) -> usize {
        (self.tail % RECORDS_BYTES as u64) as usize
    }

    /// The total that the consumer must have consumed so that a record of `bytes` fits; `None`: it fits now. Never with
    /// more than [`MAX_RECORD_BYTES`].
    pub fn must_wait(&mut self, bytes: usize) -> Option<u64> {
        let needed = (self.tail + self.needed(bytes) as u64).saturating_sub(RECORDS_BYTES as u64);
        if self.head < needed {
            // Acquire: the consumer has read the bytes that are overwritten next.
            self.head = self.memory.header().head.0.load(Ordering::Acquire);
        }
        (self.head < needed).then_some(needed)
    }

    /// The total to wait for when a record does not fit. It is somewhat more than the record needs, so that the two
    /// sides do not meet at every record of a full ring. The consumer reaches it without further records.
    pub fn worth_waiting_for(&self, needed: u64) -> u64 {
        (needed + RECORDS_BYTES as u64 / 8).min(self.tail)
    }

    /// Bytes of all records that were put in.
    pub fn produced(&self) -> u64 {
        self.tail
    }

    /// Returns the number of bytes that the consumer had consumed at the last check.
    pub fn consumed(&self) -> u64 {
        self.head
    }

    /// Returns whether the consumer has consumed `bytes` in total.
    pub fn has_consumed(&mut self, bytes: u64) -> bool {
        self.head = self.memory.header().head.0.load(Ordering::Acquire);
        self.head >= bytes
    }

    /// Returns whether the consumer has consumed everything.
    pub fn is_drained(&mut self) -> bool {
        self.head = self.memory.header().head.0.load(Ordering::Acquire);
        self.head == self.tail
    }

    /// Puts a record in, for which [`Self::must_wait`] has found room. `true`: the consumer sleeps, and the
    /// caller has to wake it.
    #[must_use]
    pub fn push(&mut self, kind: Kind, number: u64, parts: &[&[u8]]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= MAX_RECORD_BYTES);
        let mut at = self.position();
        if at + record_bytes(bytes) > RECORDS_BYTES {
            self.memory.write(at, &head(Kind::Skip, RECORDS_BYTES - at - HEAD_BYTES, 0));
            self.tail += (RECORDS_BYTES - at) as u64;
            at = 0;
        }
        self.memory.write(at, &head(kind, bytes, number));
        let mut place = at + HEAD_BYTES;
        for part in parts {
            self.memory.write(place, part);
            place += part.len();
        }
        self.tail += record_bytes(bytes) as u64;
        let header = self.memory.header();
        // Release: the record comes before it.
        header.tail.0.store(self.tail, Ordering::Release);
        // The consumer swaps and then reads the tail, and this side does the opposite. The later swap sees the other
        // side's earlier write: the sleep, or the record.
        let sleeps = header.sleeping.0.swap(0, Ordering::AcqRel) == 1;
        self.prefetch();
        sleeps
    }

    /// Prefetches the place of the next record, unless the consumer may still be reading there. The consumer's processor has
    /// had these cache lines since the previous round of the ring.
    fn prefetch(&self) {
        if self.tail + PREFETCHED as u64 <= self.head + RECORDS_BYTES as u64 {
            self.memory.prefetch(self.position(), PREFETCHED, Access::Write);
        }
    }

    /// Returns the length of the reply to record `number`, if it has arrived, with as much of it copied as fits into
    /// `room`.
    pub fn reply(&self, number: u64, room: &mut [u8]) -> Option<usize> {
        let reply = &self.memory.header().reply.0;
        if reply.number.load(Ordering::Acquire) != number {
            return None;
        }
        let bytes = (reply.bytes.load(Ordering::Relaxed) as usize).min(MAX_REPLY_BYTES);
        let copied = bytes.min(room.len());
        let room = &mut room[..copied];
        if bytes <= SHORT_REPLY_BYTES {
            let words = reply.short.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            room.copy_from_slice(&words.as_flattened()[..copied]);
        } else {
            self.memory.read_reply(room);
        }
        Some(bytes)
    }

    /// Returns whether a record without reply has failed, and no reply has reported it yet.
    pub fn has_deferred_error(&self) -> bool {
        self.memory.header().deferred.0.load(Ordering::Relaxed) != 0
    }
}

/// The head of a record.
fn head(kind: Kind, bytes: usize, number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(kind as u32).to_ne_bytes());
    head[8..].copy_from_slice(&number.to_ne_bytes());
    head
}
