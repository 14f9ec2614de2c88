// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks whose warps run in translated code from the first instruction to the last: one call for each warp, and nothing in
//! between. The first warp that leaves the translated code ends the sweep: its block becomes an ordinary one.

use std::ops::Range;

use super::outcome::{Progress, Stop};
use super::schedule::TURN;
use crate::code::Line;
use crate::execute::state::{Block, Machine};
use crate::native::{Place, place_at};

/// The maximum number of blocks that a worker takes at once.
const MAX_BATCH: u64 = 64;
/// The minimum number of batches per worker: the worker with the last batch must not keep all others waiting for long.
const SHARES: u64 = 8;
/// A launch stops sweeping when the sweeps that ended early outnumber the others by this.
const MAX_FAILURES: u32 = 4;

/// The sweeps of a worker.
pub(super) struct Sweep {
    /// Blocks that have been taken and not begun.
    pub(super) mine: Range<u64>,
    batch: u64,
    limit: u64,
    failures: u32,
}

impl Sweep {
    /// Creates the sweep of one of `workers` that share `blocks`. `possible` is true when they are independent.
    pub(super) fn new(blocks: u64, workers: u64, possible: bool) -> Sweep {
        let limit = (blocks / workers.max(1) / SHARES).clamp(1, MAX_BATCH);
        Sweep { mine: 0..0, batch: 1, limit, failures: if possible { 0 } else { MAX_FAILURES } }
    }
}

impl Machine<'_> {
    /// Returns the place at which the kernel starts in translated code, if all its warps can be swept.
    fn start_place(&self) -> Option<&'_ Place> {
        let state = self.native.as_ref()?;
        let function = &self.grid.code.functions[self.grid.entry.function];
        let place = place_at(state.tables[0]?, function.entry_pc)?;
        place.is_start().then_some(place)
    }

    /// Takes blocks and runs them for as long as they can be swept, in `spare`. A block that could not becomes `spare` with
    /// what became of it.
    pub(super) fn sweep(&mut self, sweep: &mut Sweep, spare: &mut Box<Block>) -> Option<Progress> {
        while sweep.failures < MAX_FAILURES && self.start_place().is_some() && !self.must_stop() {
            if sweep.mine.is_empty() {
                sweep.mine = self.take(sweep.batch);
                if sweep.mine.is_empty() {
                    return None;
                }
            }
            std::mem::swap(&mut self.block, spare);
            let left = self.sweep_blocks(&mut sweep.mine);
            std::mem::swap(&mut self.block, spare);
            if left.is_some() {
                sweep.failures += 1;
                sweep.batch = 1;
                return left;
            }
            sweep.batch = (sweep.batch * 2).min(sweep.limit);
            sweep.failures = sweep.failures.saturating_sub(1);
        }
        None
    }

    /// Runs the blocks in `numbers`, which lose those that have been begun.
    fn sweep_blocks(&mut self, numbers: &mut Range<u64>) -> Option<Progress> {
        self.prepare_view();
        let grid = self.grid;
        self.block.start_warps(grid, grid.block_index(numbers.start, 0));
        for number in numbers.by_ref() {
            let index = grid.block_index(number, 0);
            self.block.index = index;
            self.block.live = grid.threads;
            self.block.shared.fill(Line([0; 64]));
            for current in 0..self.block.warps.len() {
                if let Some(progress) = self.sweep_warp(current) {
                    if progress == Progress::Done {
                        grid.children.forget_block(index);
                    }
                    return Some(progress);
                }
            }
            grid.children.forget_block(index);
        }
        self.block.warps.iter_mut().for_each(|warp| warp.alive = 0);
        self.block.live = 0;
        None
    }

    /// Runs a warp of the block; if it leaves translated code, the rest of the block's turn, too.
    #[inline(always)]
    fn sweep_warp(&mut self, current: usize) -> Option<Progress> {
        let entry = self.grid.code.functions[self.grid.entry.function].entry_pc;
        self.current = current;
        self.budget = TURN;
        self.force = false;
        self.base = 0;
        self.merge_pc = u32::MAX;
        let index = self.block.index;
        let shared = self.block.shared.as_mut_ptr();
        let warp = &mut self.block.warps[current];
        self.active = warp.alive;
        self.mask = warp.alive;
        self.frame = warp.frame_at(0);
        let state = self.native.as_mut()?;
        let place = place_at(state.tables[0]?, entry)?;
        let view = &mut *state.view;
        view.frame = self.frame;
        view.polled = &raw mut warp.polled;
        view.shared = shared.cast();
        view.thread = warp.tid.as_ptr().cast();
        view.active = self.active;
        view.merge_pc = u32::MAX;
        view.block = index;
        let view: *mut _ = view;
        // SAFETY: all fields are set for the kernel's function, `wide` is why there is a state; the place is a start
        // (`start_place`, which is asked before). `view` lies in a box of its own, so that the state can be borrowed
        // meanwhile.
        let left = unsafe { place.run_start(view) }?;
        let before: u32 = self.block.warps[..current].iter().map(|warp| warp.alive.count_ones()).sum();
        for (index, warp) in self.block.warps.iter_mut().enumerate() {
            warp.fresh = index > current;
            if index < current {
                warp.alive = 0;
            }
            if index != current {
                warp.polled = false;
            }
        }
        self.block.live -= before;
        let resume = self.follow(place, &left);
        if self.go(resume) == Stop::Fault {
            return Some(Progress::Fault);
        }
        let polled = self.warp().polled;
        Some(self.run_warps(current + 1, true, polled))
    }
}
