// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Splits of communicators. The ranks exchange their colours and keys in the shared memory of the old communicator,
//! and the first rank of each colour publishes the id of the new one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::communicator::Communicator;
use super::identity::{self, ID_BYTES, Id};
use super::segment::{ID_WORDS, Segment, Split};
use super::{INVALID_ARGUMENT, INVALID_USAGE, Status, peers};

/// `NCCL_SPLIT_NOCOLOR`
pub const NO_COLOR: i32 = -1;

const _: () = assert!(ID_WORDS * size_of::<u64>() == ID_BYTES);

/// The place of a communicator that is made by a group, perhaps later.
pub type Late = Arc<OnceLock<Arc<Communicator>>>;

/// A split that this rank has begun.
pub struct Begun {
    old: Arc<Communicator>,
    number: u64,
    color: i32,
    /// The rank of the old communicator that is the first of the new one, this rank's number there, and how many there are.
    first: usize,
    rank: usize,
    ranks: usize,
    new: Late,
}

fn part(segment: &Segment, rank: usize, number: u64) -> &Split {
    &segment.slot(rank).splits[(number % 2) as usize]
}

/// Publishes this rank's colour and key to the others.
///
/// Errors: the last split was not gathered. A second one would take the place of the one before it, which others may not have
/// read.
pub fn begin(old: &Arc<Communicator>, color: i32, key: i32, new: Late) -> Result<Begun, Status> {
    if color < NO_COLOR {
        return Err(INVALID_ARGUMENT);
    }
    let last = old.gathered.load(Ordering::Acquire);
    let number = last + 1;
    let begun = old.splits.compare_exchange(last, number, Ordering::AcqRel, Ordering::Relaxed);
    begun.map_err(|_| INVALID_USAGE)?;
    let own = part(old.segment(), old.rank, number);
    own.color.store(color, Ordering::Relaxed);
    own.key.store(key, Ordering::Relaxed);
    own.number.store(number, Ordering::Release);
    old.segment().ring_all(old.ranks);
    Ok(Begun { old: old.clone(), number, color, first: 0, rank: 0, ranks: 0, new })
}

impl Begun {
    /// Waits until all ranks have published theirs. The first rank of a colour creates the new communicator's id.
    pub fn gather(&mut self) -> Result<(), Status> {
        let result = self.try_gather();
        self.old.gathered.store(self.number, Ordering::Release);
        result
    }

    fn try_gather(&mut self) -> Result<(), Status> {
        let (old, number) = (&self.old, self.number);
        let known = |rank| part(old.segment(), rank, number).number.load(Ordering::Acquire);
        peers::wait_until(old.segment(), old.rank, old.ranks, |rank| known(rank) >= number)?;
        if self.color == NO_COLOR {
            return Ok(());
        }
        let mut members: Vec<(i32, usize)> = (0..old.ranks)
            .filter_map(|rank| {
                let part = part(old.segment(), rank, number);
                let is_one = rank == old.rank || part.color.load(Ordering::Relaxed) == self.color;
                is_one.then(|| (part.key.load(Ordering::Relaxed), rank))
            })
            .collect();
        // One that has given splits up may be ahead.
        if (0..old.ranks).any(|rank| known(rank) != number) {
            return Err(INVALID_USAGE);
        }
        members.sort_unstable();
        self.first = members[0].1;
        self.ranks = members.len();
        self.rank = members.iter().position(|(_, rank)| *rank == old.rank).ok_or(INVALID_ARGUMENT)?;
        if self.rank == 0 {
            let id = identity::create()?;
            let own = part(old.segment(), old.rank, number);
            for (word, bytes) in own.id.iter().zip(id.as_chunks::<8>().0) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
            own.announced.store(number, Ordering::Release);
            old.segment().ring_all(old.ranks);
        }
        Ok(())
    }

    /// Waits for the id and joins. `None`: this rank has no part in a new communicator.
    pub fn join(&self) -> Result<Option<Arc<Communicator>>, Status> {
        if self.color == NO_COLOR {
            return Ok(None);
        }
        let (old, part) = (&self.old, part(self.old.segment(), self.first, self.number));
        let is_there = |rank| rank != self.first || part.announced.load(Ordering::Acquire) == self.number;
        peers::wait_until(old.segment(), old.rank, old.ranks, is_there)?;
        let mut id: Id = [0; ID_BYTES];
        for (word, bytes) in part.id.iter().zip(id.as_chunks_mut::<8>().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        let new = Communicator::join(&id, self.rank, self.ranks, old.place)?;
        // No other thread sets it.
        let _ = self.new.set(new.clone());
        Ok(Some(new))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // A group that ends before it gathers gives the split up.
        self.old.gathered.fetch_max(self.number, Ordering::AcqRel);
    }
}
