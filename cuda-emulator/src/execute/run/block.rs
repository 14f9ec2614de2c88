// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks start, and their warps get turns.

use super::outcome::{Progress, Stop};
use crate::code::{LANES, Line, frame};
use crate::execute::state::{Block, Grid, Machine, Shadow, Warp, shared_spare};

impl Block {
    /// An empty block of the grid's shape. [`Self::start`] gives it an index.
    pub(super) fn new(grid: &Grid<'_>) -> Block {
        let shape = grid.launch.block;
        let warps = grid.threads.div_ceil(LANES as u32);
        let shared_bytes = grid.shared_bytes;
        Block {
            index: [0; 3],
            shared: vec![Line([0; 64]); shared_spare(shared_bytes) as usize / 64 + 1],
            shared_bytes,
            warps: (0..warps).map(|index| Warp::new(index, shape)).collect(),
            barriers: Default::default(),
            barrier_waiters: 0,
            live: 0,
            cluster: None,
            cluster_phase: 0,
            shadow: Shadow::new(shared_bytes),
        }
    }

    /// Becomes block `index` of the grid, at its first instruction.
    pub(super) fn start(&mut self, grid: &Grid<'_>, index: [u32; 3]) {
        self.shared.fill(Line([0; 64]));
        self.start_warps(grid, index);
    }

    /// As [`Self::start`], without touching shared memory.
    pub(super) fn start_warps(&mut self, grid: &Grid<'_>, index: [u32; 3]) {
        self.index = index;
        self.live = grid.threads;
        if let Some(shadow) = &mut self.shadow {
            shadow.reset();
        }
        if self.barrier_waiters > 0 {
            self.barriers = Default::default();
            self.barrier_waiters = 0;
        }
        self.cluster = None;
        let function = &grid.code.functions[grid.entry.function];
        let mut left = grid.threads;
        for warp in &mut self.warps {
            let count = left.min(LANES as u32);
            left -= count;
            warp.alive = if count == 32 { u32::MAX } else { (1 << count) - 1 };
            warp.at_barrier = 0;
            warp.at_sync = 0;
            warp.at_cluster = 0;
            warp.polled = false;
            warp.resume = None;
            warp.together = None;
            warp.fresh = true;
            warp.ensure_registers(function.frame_bytes as usize);
            warp.ensure_local(function.local_bytes, u32::MAX);
            if !std::mem::replace(&mut warp.prepared, true) {
                // The stack of the kernel itself: it starts at 0 and ends where its variables end.
                warp.fill_register(frame::LOCAL_BASE as usize, 0);
                warp.fill_register(frame::LOCAL_TOP as usize, function.local_bytes);
            }
        }
    }
}

impl Machine<'_> {
    /// Gives every warp of the block a turn.
    pub(super) fn run_block(&mut self) -> Progress {
        self.block.release_from_cluster();
        self.run_warps(0, false, false)
    }

    /// Gives the warps from `first` on a turn. `ran` and `polled` describe the turns of the warps before it.
    pub(super) fn run_warps(&mut self, first: usize, mut ran: bool, mut polled: bool) -> Progress {
        for index in first..self.block.warps.len() {
            self.current = index;
            let warp = self.warp();
            if warp.alive & !warp.at_barrier == 0 {
                continue;
            }
            ran = true;
            if self.run_warp() == Stop::Fault {
                return Progress::Fault;
            }
            polled |= self.warp().polled;
        }
        if self.block.live == 0 {
            return Progress::Done;
        }
        if self.block.waits_for_cluster(ran) {
            return Progress::Turn { polled };
        }
        if !ran {
            self.deadlock();
            return Progress::Fault;
        }
        Progress::Turn { polled }
    }
}
