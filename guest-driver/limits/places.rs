// SPDX-License-Identifier: GPL-2.0-only

//! Divides the descriptors of a ring among sessions. Each session has reserved ones, so that calls which the device
//! never answers block their own session only.

use crate::transport::MAX_REQUEST_QUEUES;
use core::cmp::min;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Descriptors of each ring that are reserved per session. All reserved ones are at most half of the ring's.
const RESERVED: u32 = 4;

/// The number of descriptors that the calls of one session occupy in each ring. Changed under that ring's lock.
pub(crate) struct Places([Atomic<u32>; MAX_REQUEST_QUEUES as usize]);

/// The descriptors of one ring that calls may use.
pub(crate) struct Division {
    /// Descriptors that are reserved per session.
    reserved: u32,
    /// Descriptors that all sessions share.
    common: u32,
    /// Descriptors of `common` that are in use.
    borrowed: u32,
}

impl Places {
    /// Returns a counter without descriptors.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let none = [const { Atomic::new(0) }; MAX_REQUEST_QUEUES as usize];
        Ok(Arc::new(Self(none), GFP_KERNEL)?)
    }

    fn of(&self, ring: usize) -> Option<&Atomic<u32>> {
        self.0.get(ring)
    }
}

impl Division {
    /// Divides `places` descriptors among at most `sessions` sessions. With more sessions than half of the descriptors,
    /// none are reserved.
    pub(crate) fn new(places: u32, sessions: u32) -> Self {
        let reserved = min(RESERVED, (places / 2).checked_div(sessions).unwrap_or(0));
        Self {
            reserved,
            common: places - reserved * sessions,
            borrowed: 0,
        }
    }

    /// Returns whether the owner of `taken` may take another descriptor of ring number `ring`.
    pub(crate) fn has_room(&self, ring: usize, taken: &Places) -> bool {
        let taken = taken.of(ring).map_or(u32::MAX, |taken| taken.load(Relaxed));
        taken < self.reserved || self.borrowed < self.common
    }

    /// Takes a descriptor for the owner of `taken`.
    pub(crate) fn take(&mut self, ring: usize, taken: &Places) {
        if let Some(taken) = taken.of(ring) {
            let before = taken.load(Relaxed);
            taken.store(before + 1, Relaxed);
            if before >= self.reserved {
                self.borrowed += 1;
            }
        }
    }

    /// Returns a descriptor of [`Self::take`].
    pub(crate) fn give_back(&mut self, ring: usize, taken: &Places) {
        if let Some(taken) = taken.of(ring) {
            let before = taken.load(Relaxed);
            taken.store(before.saturating_sub(1), Relaxed);
            if before > self.reserved {
                self.borrowed = self.borrowed.saturating_sub(1);
            }
        }
    }
}

#[kunit_tests(virtio_cuda_places)]
mod tests {
    use super::*;

    /// Takes descriptors until none is left. Returns their number.
    fn fill(division: &mut Division, places: &Places) -> u32 {
        let mut count = 0;
        while count < 1000 && division.has_room(0, places) {
            division.take(0, places);
            count += 1;
        }
        count
    }

    #[test]
    fn every_session_has_its_own_places() -> Result {
        let mut division = Division::new(48, 6);
        let greedy = Places::new()?;
        assert_eq!(fill(&mut division, &greedy), 4 + 24);
        let mut others = KVec::new();
        for _ in 1..6 {
            let other = Places::new()?;
            assert_eq!(fill(&mut division, &other), 4);
            others.push(other, GFP_KERNEL)?;
        }
        // All 48 are in use. A session returns those above its reserved ones to all sessions.
        division.give_back(0, &greedy);
        assert_eq!(fill(&mut division, &others[0]), 1);
        assert!(!division.has_room(0, &greedy));
        // A session keeps its reserved ones.
        division.give_back(0, &others[1]);
        assert!(!division.has_room(0, &greedy) && division.has_room(0, &others[1]));
        Ok(())
    }

    #[test]
    fn everything_comes_back() -> Result {
        let mut division = Division::new(48, 6);
        let places = Places::new()?;
        for _ in 0..3 {
            let taken = fill(&mut division, &places);
            assert_eq!(taken, 28);
            for _ in 0..taken {
                division.give_back(0, &places);
            }
        }
        assert_eq!(division.borrowed, 0);
        Ok(())
    }

    #[test]
    fn rings_are_counted_apart() -> Result {
        let mut divisions = [Division::new(48, 6), Division::new(48, 6)];
        let places = Places::new()?;
        divisions[0].take(0, &places);
        divisions[1].take(1, &places);
        divisions[1].take(1, &places);
        assert_eq!(fill(&mut divisions[0], &places), 27);
        Ok(())
    }

    #[test]
    fn a_small_ring_has_nothing_to_reserve() -> Result {
        let mut division = Division::new(12, 64);
        assert_eq!(fill(&mut division, &*Places::new()?), 12);
        Ok(())
    }
}
