// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cluster: blocks that see each other's shared memory.

use std::cell::{Cell, RefCell};

/// The state that the blocks of a cluster share.
#[derive(Debug, Default)]
pub(in crate::execute) struct Cluster {
    /// The shared memory of each block, by rank.
    pub(in crate::execute) shared: RefCell<Vec<u64>>,
    /// Threads that have not exited.
    pub(in crate::execute) live: Cell<u32>,
    /// Threads that have arrived at the barrier.
    pub(in crate::execute) arrived: Cell<u32>,
    /// The number of times that the barrier was complete.
    pub(in crate::execute) phase: Cell<u32>,
    /// Turns of blocks in which nothing ran.
    pub(in crate::execute) idle: Cell<u32>,
}

impl Cluster {
    /// Ends the phase if all threads have arrived.
    pub(in crate::execute) fn check(&self) {
        if self.arrived.get() > 0 && self.arrived.get() >= self.live.get() {
            self.arrived.set(0);
            self.phase.set(self.phase.get().wrapping_add(1));
        }
    }

    /// Threads have exited.
    pub(in crate::execute) fn leave(&self, count: u32) {
        self.live.set(self.live.get().saturating_sub(count));
        self.check();
    }
}
