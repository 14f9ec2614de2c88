// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A grid: the state that all workers of a launch share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use super::history::History;
use crate::code::{Code, Entry};
use crate::launch::{Fault, Launch};
use crate::nested::Children;

/// See the module's description.
pub(crate) struct Grid<'l> {
    pub(crate) launch: &'l Launch<'l>,
    pub(crate) code: &'l Code,
    pub(crate) entry: &'l Entry,
    /// The launches by the grid itself.
    pub(crate) children: &'l Children<'l>,
    /// The parameter buffer, padded with zeros.
    pub(crate) params: Vec<u8>,
    /// The size of a block's static and dynamic shared memory, followed by the reserved one.
    pub(crate) shared_bytes: u32,
    /// The start of the reserved shared memory, which has no bytes when the program does not ask for it.
    pub(crate) reserved_start: u32,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Device address of the workspace of a cooperative launch, else 0.
    pub(crate) workspace: u64,
    pub(crate) started: Instant,
    /// Blocks of a cluster in each dimension; 1 without clusters.
    pub(crate) cluster: [u32; 3],
    pub(in crate::execute) blocks: u64,
    /// The next cluster (or block, without clusters) that was not taken yet.
    pub(in crate::execute) next: AtomicU64,
    pub(in crate::execute) stop: AtomicBool,
    pub(in crate::execute) fault: Mutex<Option<Fault>>,
    /// The record of accesses to global memory, when they are checked.
    pub(in crate::execute) history: History,
}

impl Grid<'_> {
    /// Block `rank` of cluster `number`.
    pub(in crate::execute) fn block_index(&self, number: u64, rank: u32) -> [u32; 3] {
        if self.cluster == [1; 3] && number < u64::from(self.launch.grid[0]) {
            return [number as u32, 0, 0];
        }
        let [cx, cy, _] = self.cluster;
        let inner = [rank % cx, rank / cx % cy, rank / (cx * cy)];
        let clusters: [u64; 3] =
            std::array::from_fn(|axis| u64::from(self.launch.grid[axis] / self.cluster[axis]));
        let [x, y, _] = clusters;
        let outer = [number % x, number / x % y, number / (x * y)];
        std::array::from_fn(|axis| outer[axis] as u32 * self.cluster[axis] + inner[axis])
    }
}
