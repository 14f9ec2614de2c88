// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The executor's side of a lane.

use crate::layout::{HEAD_BYTES, Kind, MAX_REPLY_BYTES, RECORDS_BYTES, SHORT_REPLY_BYTES, record_bytes};
use crate::memory::{Access, LaneMemory};
use crate::sync::Ordering;

/// Bytes of the next record that are prefetched. A short record has no more.
const PREFETCHED: usize = 128;

/// The lane holds what no producer puts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lane is corrupt: its {what} is {value:#x}")]
pub struct Corrupt {
    /// The invalid item.
    pub what: &'static str,
    /// The value of the item.
    pub value: u64,
}

/// A record that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// [`Kind::Wait`] or [`Kind::Post`].
    pub kind: Kind,
    /// Its number, which its reply gets.
    pub number: u64,
}

/// The side that takes records out. Each lane has one.
///
/// It neither reads outside the lane nor panics for any data that the other side writes. Positions are stored here,
/// data from the lane is checked, and contents are copied before they are parsed.
#[derive(Debug)]
pub struct Consumer {
    memory: LaneMemory,
    /// Bytes consumed.
    head: u64,
    /// The producer's progress as seen and checked last: while there is more, its cache line is left alone.
    tail: u64,
    /// Bytes of the record that was taken out last and is not released yet.
    taken: u64,
}

impl Consumer {
    /// Sets an idle lane up, whatever is in it. The consumer counts as asleep until it first looks.
    pub fn set_up(memory: LaneMemory) -> Self {
        let header = memory.header();
        header.tail.0.store(0, Ordering::Relaxed);
        header.head.0.store(0, Ordering::Relaxed);
        header.reply.0.number.store(0, Ordering::Relaxed);
        header.deferred.0.store(0, Ordering::Relaxed);
        header.verdict.0.store(0, Ordering::Relaxed);
        header.sleeping.0.store(0, Ordering::Release);
        Self { memory, head: 0, tail: 0, taken: 0 }
    }

    /// Goes on in a lane that another consumer has left at position `consumed`, where a record begins. The lane counts as awake: records that came
    /// meanwhile are found by the next look. Nothing that the other side may have changed counts but its progress, which is
    /// checked as ever.
    ///
    /// Errors: no record can begin at this position, or the numbers would not suffice for the records to come.
    pub fn resume(memory: LaneMemory, consumed: u64) -> Result<Self, Corrupt> {
        if !Self::is_position(consumed) {
            return Err(Corrupt { what: "position", value: consumed });
        }
        let consumer = Self { memory, head: consumed, tail: consumed, taken: 0 };
        consumer.memory.header().head.0.store(consumed, Ordering::Release);
        consumer.wake();
        Ok(consumer)
    }

    /// Returns whether a record can begin at a position, with enough numbers behind it for all that may come.
    pub fn is_position(consumed: u64) -> bool {
        consumed.is_multiple_of(HEAD_BYTES as u64) && consumed <= u64::MAX / 2
    }

    /// Leaves the record that was taken out last in the lane: [`Self::next`] takes it out again.
    pub fn put_back(&mut self) {
        self.taken = 0;
    }

    /// Takes the next record out, whose contents replace those of `contents`. `None`: there is no record now.
    pub fn next(&mut self, contents: &mut Vec<u8>) -> Result<Option<Record>, Corrupt> {
        loop {
            if self.tail == self.head && !self.look()? {
                return Ok(None);
            }
            let there = self.tail - self.head;
            let at = (self.head % RECORDS_BYTES as u64) as usize;
            let [word, number] = self.memory.read_head(at);
            let (bytes, kind) = (word as u32 as usize, (word >> 32) as u32);
            // Multiples of HEAD_BYTES all, so that there is a whole head wherever there is anything.
            let limit = (there as usize).min(RECORDS_BYTES - at);
            if bytes > limit - HEAD_BYTES {
                return Err(Corrupt { what: "record's length", value: bytes as u64 });
            }
            match Kind::from_u32(kind) {
                None => return Err(Corrupt { what: "record's kind", value: u64::from(kind) }),
                Some(Kind::Skip) => {
                    self.taken = record_bytes(bytes) as u64;
                    self.release();
                }
                Some(kind) => {
                    contents.clear();
                    self.memory.read(at + HEAD_BYTES, bytes, contents);
                    self.taken = record_bytes(bytes) as u64;
                    return Ok(Some(Record { kind, number }));
                }
            }
        }
    }

    /// Looks whether the producer has put something in.
    fn look(&mut self) -> Result<bool, Corrupt> {
        // Acquire: the records before it are complete.
        let tail = self.memory.header().tail.0.load(Ordering::Acquire);
        let there = tail.wrapping_sub(self.head);
        if there > RECORDS_BYTES as u64 || !there.is_multiple_of(HEAD_BYTES as u64) {
            return Err(Corrupt { what: "tail", value: tail });
        }
        // No overflow: `head` is a sum of lengths of records, and so is the tail that passed the check.
        self.tail = self.head + there;
        Ok(there > 0)
    }

    /// Returns whether [`Self::next`] has something to check: a single load, for polling. Also prefetches the next
    /// record: it is written before the producer's progress is published.
    pub fn has_more(&self) -> bool {
        self.memory.prefetch((self.head % RECORDS_BYTES as u64) as usize, PREFETCHED, Access::Read);
        self.tail != self.head || self.memory.header().tail.0.load(Ordering::Relaxed) != self.head
    }

    /// Returns the space of the last record to the producer, and reports the record as done.
    pub fn release(&mut self) {
        self.head += std::mem::take(&mut self.taken);
        // Release: all reads of the record come before.
        self.memory.header().head.0.store(self.head, Ordering::Release);
    }

    /// Bytes consumed.
    pub fn consumed(&self) -> u64 {
        self.head
    }

    /// Bytes consumed once the record that was taken out last is released.
    pub fn taken(&self) -> u64 {
        self.head + self.taken
    }

    /// Bytes that the producer has published now, or [`Self::consumed`] if it says something impossible.
    pub fn published(&self) -> u64 {
        let there = self.memory.header().tail.0.load(Ordering::Relaxed).wrapping_sub(self.head);
        self.head + if there > RECORDS_BYTES as u64 { 0 } else { there }
    }

    /// Publishes the reply to record `number`. Never more than [`MAX_REPLY_BYTES`].
    pub fn reply(&self, number: u64, bytes: &[u8]) {
        assert!(bytes.len() <= MAX_REPLY_BYTES);
        let reply = &self.memory.header().reply.0;
        if bytes.len() <= SHORT_REPLY_BYTES {
            let mut words = [[0; 8]; SHORT_REPLY_BYTES / 8];
            words.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
            for (place, word) in reply.short.iter().zip(words) {
                place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
        } else {
            self.memory.write_reply(bytes);
        }
        reply.bytes.store(bytes.len() as u32, Ordering::Relaxed);
        reply.number.store(number, Ordering::Release);
    }

    /// Publishes whether an error of a record without reply has not been reported yet.
    pub fn set_deferred_error(&self, there: bool) {
        self.memory.header().deferred.0.store(u32::from(there), Ordering::Relaxed);
    }

    /// Announces that the consumer goes to sleep. Returns `false` if there are records, and then it must not sleep.
    /// After `true` a producer that adds a record wakes it.
    #[must_use]
    pub fn sleep(&self) -> bool {
        let header = self.memory.header();
        // See `Producer::push`.
        header.sleeping.0.swap(1, Ordering::AcqRel);
        if header.tail.0.load(Ordering::Relaxed) == self.head {
            return true;
        }
        self.wake();
        false
    }

    /// The consumer is awake again, for whatever reason.
    pub fn wake(&self) {
        // A swap, not a store: it sees the record of a producer that found the consumer awake. A store would hide
        // that producer's swap from the next `sleep`, which could then miss the record (on machines weaker than x86;
        // `tests/model.rs` finds it).
        self.memory.header().sleeping.0.swap(0, Ordering::AcqRel);
    }
}
