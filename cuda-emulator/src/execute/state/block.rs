// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block: its warps, its shared memory and its barriers.

use std::rc::Rc;

use super::cluster::Cluster;
use super::history::Shadow;
use super::warp::Warp;
use crate::code::Line;

/// Barriers of a block.
pub(in crate::execute) const BARRIERS: usize = 16;
/// Threads of a warpgroup.
pub(in crate::execute) const WARPGROUP: usize = 128;
/// The maximum number of warpgroups of a block, each with a barrier of its own after those that programs name.
const WARPGROUPS: usize = 1024 / WARPGROUP;

/// Returns the offset of the unused line after `bytes` bytes of shared memory.
pub(in crate::execute) fn shared_spare(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(64)
}

/// One resident block.
#[derive(Debug)]
pub(crate) struct Block {
    /// blockIdx
    pub(crate) index: [u32; 3],
    /// Shared memory, and one line more (see [`shared_spare`]).
    pub(in crate::execute) shared: Vec<Line>,
    /// Valid bytes of `shared`.
    pub(in crate::execute) shared_bytes: u32,
    pub(in crate::execute) warps: Vec<Warp>,
    pub(in crate::execute) barriers: [Barrier; BARRIERS + WARPGROUPS],
    /// Arrivals at barriers that are not complete.
    pub(in crate::execute) barrier_waiters: u32,
    /// Threads that have not exited.
    pub(crate) live: u32,
    /// The cluster it belongs to, if clusters have more than one block, and the phase of its barrier that was seen last.
    pub(in crate::execute) cluster: Option<Rc<Cluster>>,
    pub(in crate::execute) cluster_phase: u32,
    /// The record of accesses to its shared memory, when they are checked.
    pub(in crate::execute) shadow: Option<Box<Shadow>>,
}

/// A barrier of a block.
#[derive(Debug, Default)]
pub(in crate::execute) struct Barrier {
    /// Threads that have arrived.
    pub(in crate::execute) arrived: u32,
    /// The number of threads that must arrive; 0 for all that live.
    pub(in crate::execute) expected: u32,
    /// Warps and their lanes that wait.
    pub(in crate::execute) waiting: Vec<(usize, u32)>,
    /// Instructions that arrived.
    pub(in crate::execute) calls: u32,
    /// For bar.red: the lanes whose predicate holds, and the number of votes.
    pub(in crate::execute) votes: u32,
    pub(in crate::execute) voters: u32,
}

impl Block {
    /// A barrier of some kind is complete.
    pub(in crate::execute) fn synchronise(&mut self) {
        if let Some(shadow) = &mut self.shadow {
            shadow.next_epoch();
        }
    }
}
