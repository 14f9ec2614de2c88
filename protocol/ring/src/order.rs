// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The order between records of different lanes: which records of other lanes a record has to come after.
//!
//! Only a posted record has to be waited for, because a thread whose record is answered continues after it anyway.
//! For every object that records can share there is a *mark*, which holds the position of the last posted record that
//! used the object. For every lane there are its last positions in a few *groups*, for records that follow all posted
//! ones of a group.
//!
//! A record depends only on records that were published after they had been put into their lanes. So dependencies are
//! not circular. A posted record keeps its marks locked until it is in its lane. So records that use the same object
//! depend on each other in sequence, and the last one represents all.

use std::sync::OnceLock;

use crate::memory::{LaneMemory, Watcher};
use crate::sync::{AtomicU64, Ordering, spin_loop, yield_now};

/// Maximum number of lanes.
#[cfg(not(loom))]
pub const MAX_LANES: usize = 64;
/// Few enough for a model.
#[cfg(loom)]
pub const MAX_LANES: usize = 3;
/// Marks that one record can lock.
const MAX_LOCKED: usize = 4;
/// The number of checks of a locked mark before the thread yields the processor.
const LOOKS: u32 = 64;

/// Bit of a mark: it is locked.
const LOCKED: u64 = 1;
/// Positions are multiples of the unit of records.
const UNIT: u64 = crate::layout::HEAD_BYTES as u64;
const LANE_SHIFT: u32 = 56;

/// The end of a record: its lane, and the bytes of all records of that lane up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The lane.
    pub lane: u32,
    /// Bytes, over all threads that have had the lane.
    pub bytes: u64,
}

impl Position {
    fn pack(self) -> u64 {
        u64::from(self.lane + 1) << LANE_SHIFT | (self.bytes / UNIT) << 1
    }

    fn unpack(word: u64) -> Option<Self> {
        let lane = u32::try_from(word >> LANE_SHIFT).ok()?.checked_sub(1)?;
        Some(Self { lane, bytes: ((word & ((1 << LANE_SHIFT) - 1)) >> 1) * UNIT })
    }
}

/// A word in its own cache lines, so that threads that use different objects do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Mark(AtomicU64);

/// The state of a lane.
#[derive(Debug)]
#[repr(align(128))]
struct End {
    watcher: OnceLock<Watcher>,
    /// Bytes of those that had the lane before.
    begins: AtomicU64,
    /// Bytes up to the last posted record of each group.
    groups: Box<[AtomicU64]>,
}

/// The marks and lanes of a process.
#[derive(Debug)]
pub struct Order {
    marks: Box<[Mark]>,
    ends: Box<[End]>,
    used: AtomicU64,
}

impl Order {
    /// Without lanes, with so many marks, and groups per lane.
    pub fn new(marks: usize, groups: usize) -> Self {
        let end = || End {
            watcher: OnceLock::new(),
            begins: AtomicU64::new(0),
            groups: (0..groups).map(|_| AtomicU64::new(0)).collect(),
        };
        Self {
            marks: (0..marks).map(|_| Mark::default()).collect(),
            ends: (0..MAX_LANES).map(|_| end()).collect(),
            used: AtomicU64::new(0),
        }
    }

    /// Adds a lane, which keeps its number permanently. Returns `None` if there are too many.
    pub fn add(&self, memory: &LaneMemory) -> Option<u32> {
        let number = self.ends.iter().position(|end| end.watcher.set(memory.watcher()).is_ok())?;
        self.used.fetch_max(number as u64 + 1, Ordering::AcqRel);
        Some(number as u32)
    }

    /// Restarts a lane that a thread has got, which the other side has set up again after `begins` bytes. All earlier
    /// records are done.
    pub fn restart(&self, lane: u32, begins: u64) {
        self.ends[lane as usize].begins.store(begins, Ordering::Release);
    }

    /// Bytes of those that had a lane before.
    pub fn begins(&self, lane: u32) -> u64 {
        self.ends[lane as usize].begins.load(Ordering::Acquire)
    }

    fn is_done(&self, position: Position) -> bool {
        let end = &self.ends[position.lane as usize];
        // In this order: a lane is set up again before it begins further on.
        let begins = end.begins.load(Ordering::Acquire);
        end.watcher.get().is_none_or(|watcher| begins.saturating_add(watcher.consumed()) >= position.bytes)
    }

    /// Returns the CUDA result of all calls since the device has ended the session. `None`: it has not.
    pub fn verdict(&self) -> Option<u32> {
        let watchers = self.ends.iter().filter_map(|end| end.watcher.get());
        watchers.map(Watcher::verdict).find(|&verdict| verdict != 0)
    }

    /// Begins a record of lane `own`, if the thread has one. `posted` are the marks of the objects that it uses, if
    /// no thread waits for it: other records of the same marks begin before or after it.
    pub fn begin(&self, own: Option<u32>, posted: &[usize]) -> Turn<'_> {
        let mut turn = Turn {
            order: self,
            own,
            locked: [0; MAX_LOCKED],
            before: [0; MAX_LOCKED],
            count: 0,
            after: Vec::new(),
        };
        let places = &mut turn.locked[..posted.len()];
        places.copy_from_slice(posted);
        // In one order, so that no two threads wait for each other.
        places.sort_unstable();
        for index in 0..posted.len() {
            let mark = turn.locked[index];
            if index == 0 || turn.locked[turn.count - 1] != mark {
                turn.locked[turn.count] = mark;
                turn.before[turn.count] = self.marks[mark].lock();
                turn.count += 1;
            }
        }
        for index in 0..turn.count {
            turn.add(turn.before[index]);
        }
        turn
    }
}

impl Mark {
    /// Locks the mark, and returns its position.
    fn lock(&self) -> u64 {
        let mut looks = 0;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let free = word & LOCKED == 0;
            if free
                && self.0.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return word;
            }
            looks += 1;
            if looks % LOOKS == 0 || cfg!(loom) { yield_now() } else { spin_loop() }
        }
    }
}

/// A record that is about to be put into its lane.
#[derive(Debug)]
pub struct Turn<'a> {
    order: &'a Order,
    own: Option<u32>,
    locked: [usize; MAX_LOCKED],
    before: [u64; MAX_LOCKED],
    count: usize,
    after: Vec<Position>,
}

impl Turn<'_> {
    /// The record comes after the last posted one of `mark`.
    pub fn after(&mut self, mark: usize) {
        // Acquire: the record was put into its lane before.
        self.add(self.order.marks[mark].0.load(Ordering::Acquire) & !LOCKED);
    }

    /// The record comes after the posted ones of `group` of all lanes.
    pub fn after_group(&mut self, group: usize) {
        let used = self.order.used.load(Ordering::Acquire) as usize;
        for (lane, end) in self.order.ends.iter().enumerate().take(used) {
            let bytes = end.groups[group].load(Ordering::Acquire);
            if bytes > 0 {
                self.add(Position { lane: lane as u32, bytes }.pack());
            }
        }
    }

    fn add(&mut self, word: u64) {
        let Some(position) = Position::unpack(word) else { return };
        // Records of one lane are in order.
        if Some(position.lane) == self.own || self.order.is_done(position) {
            return;
        }
        match self.after.iter_mut().find(|known| known.lane == position.lane) {
            Some(known) => known.bytes = known.bytes.max(position.bytes),
            None => self.after.push(position),
        }
    }

    /// The records of other lanes that this one comes after, one per lane.
    pub fn dependencies(&self) -> &[Position] {
        &self.after
    }

    /// The posted record lies in lane `own` and ends at `bytes`. It belongs to `groups`.
    pub fn publish(mut self, bytes: u64, groups: &[usize]) {
        let Some(own) = self.own else { return };
        // Only this thread writes to its lane's. Release: the record comes before it.
        for &group in groups {
            self.order.ends[own as usize].groups[group].store(bytes, Ordering::Release);
        }
        self.before.fill(Position { lane: own, bytes }.pack());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for index in 0..self.count {
            // Release: as in `publish`.
            self.order.marks[self.locked[index]].0.store(self.before[index], Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "order_test.rs"]
mod tests;
