// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker threads of a grid, which take its blocks.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::native::native_state;
use super::outcome::Progress;
use super::sweep::Sweep;
use crate::checks::checks;
use crate::code::{Code, Entry, dynamic_start};
use crate::execute::state::{Block, Cluster, Grid, History, Machine, RangeCache};
use crate::launch::{Fault, FaultKind, Launch};
use crate::nested::Children;
use crate::vectors::has_wide_vectors;

/// The maximum number of blocks that one worker runs in turns if they seem to wait for each other.
const MAX_RESIDENT: usize = 64;
/// Turns of polling after which one more block becomes resident.
const PATIENCE: u32 = 256;
/// Bytes of the workspace of a cooperative launch, with the counter of the grid's barrier. `%envreg1` and `%envreg2` have
/// its address.
const WORKSPACE_BYTES: u64 = 256;
/// Bytes that the system keeps for itself in the shared memory of every block: cooperative_groups uses them.
const RESERVED_SHARED_BYTES: u32 = 1024;

/// Runs the launch; the checks of its shape are done.
pub(super) fn run<'l>(
    launch: &'l Launch<'l>,
    code: &'l Code,
    entry: &'l Entry,
    children: &'l Children<'l>,
) -> Result<(), Fault> {
    let mut params = launch.params.to_vec();
    params.resize(launch.kernel.param_bytes as usize, 0);
    let workspace = if launch.cooperative {
        launch.memory.allocate(WORKSPACE_BYTES, 1).map_err(|error| launch.failure(error.to_string()))?
    } else {
        0
    };
    if workspace != 0 {
        launch.memory.mark_initialised(workspace, WORKSPACE_BYTES);
    }
    let reserved_start = dynamic_start(launch.kernel.static_shared) + launch.dynamic_shared;
    let reserved_start =
        if code.uses_reserved_shared { reserved_start.next_multiple_of(16) } else { reserved_start };
    let grid = Grid {
        launch,
        code,
        entry,
        children,
        params,
        shared_bytes: reserved_start + if code.uses_reserved_shared { RESERVED_SHARED_BYTES } else { 0 },
        reserved_start,
        threads: launch.block.iter().product(),
        workspace,
        started: Instant::now(),
        cluster: launch.cluster.unwrap_or(launch.kernel.cluster.unwrap_or([1; 3])),
        blocks: launch.grid.iter().map(|n| u64::from(*n)).product(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
        history: History::default(),
    };
    let workers = launch.workers.max(1).min(usize::try_from(grid.blocks).unwrap_or(usize::MAX));
    std::thread::scope(|scope| {
        for _ in 1..workers {
            // If a thread cannot be started, the others do its work.
            let builder = std::thread::Builder::new().name("cuda-emulator".into());
            if builder.spawn_scoped(scope, || Machine::new(&grid).work(workers)).is_err() {
                break;
            }
        }
        Machine::new(&grid).work(workers);
    });
    if workspace != 0 {
        launch.memory.free(workspace);
    }
    if let Some(fault) = grid.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(fault);
    }
    if launch.cancel.load(Ordering::Relaxed) && grid.stop.load(Ordering::Relaxed) {
        return Err(Fault {
            kind: FaultKind::Cancelled,
            ..launch.failure(format!("kernel `{}` was cancelled", launch.kernel.name))
        });
    }
    Ok(())
}

impl<'l> Machine<'l> {
    fn new(grid: &'l Grid<'l>) -> Machine<'l> {
        let mut machine = Machine {
            frame: std::ptr::null_mut(),
            constants: grid.code.constants.as_ptr().cast(),
            mask: 0,
            active: 0,
            pc: 0,
            base: 0,
            merge_pc: u32::MAX,
            force: false,
            budget: 0,
            current: 0,
            block: Box::new(Block::new(grid)),
            grid,
            ranges: RangeCache::new(grid.code.slots as usize),
            wide: has_wide_vectors(),
            checks: checks().any(),
            fault: None,
            native: None,
        };
        machine.native = native_state(&machine);
        machine
    }

    /// Takes blocks until none is left.
    fn work(&mut self, workers: usize) {
        // All blocks of a cooperative launch must be resident; of others, one per worker until they wait for each other.
        let share = usize::try_from(self.grid.blocks.div_ceil(workers as u64)).unwrap_or(usize::MAX);
        let cooperative = self.grid.launch.cooperative;
        let (mut wanted, limit) = if cooperative { (share, usize::MAX) } else { (1, MAX_RESIDENT) };
        let mut waits = 0;
        let mut resident: Vec<Box<Block>> = Vec::new();
        let mut spare: Vec<Box<Block>> = Vec::new();
        // Done, but others of their clusters may still read their shared memory.
        let mut retired: Vec<Box<Block>> = Vec::new();
        let size = self.grid.cluster.iter().product::<u32>();
        let mut sweep = Sweep::new(self.grid.blocks, workers as u64, !cooperative && size == 1);
        loop {
            if resident.is_empty() && wanted == 1 {
                let mut block = spare.pop().unwrap_or_else(|| Box::new(Block::new(self.grid)));
                match self.sweep(&mut sweep, &mut block) {
                    Some(Progress::Turn { .. }) => resident.push(block),
                    Some(Progress::Fault) => {
                        self.report();
                        return;
                    }
                    Some(Progress::Done) | None => spare.push(block),
                }
            }
            while resident.len() < wanted {
                if sweep.mine.is_empty() {
                    sweep.mine = self.take(1);
                }
                let Some(number) = sweep.mine.next() else { break };
                let cluster = (size > 1).then(|| Rc::new(Cluster::default()));
                for rank in 0..size {
                    let mut block = spare.pop().unwrap_or_else(|| Box::new(Block::new(self.grid)));
                    block.start(self.grid, self.grid.block_index(number, rank));
                    if let Some(cluster) = &cluster {
                        block.join(cluster, self.grid.threads);
                    }
                    resident.push(block);
                }
            }
            if resident.is_empty() {
                return;
            }
            let mut index = 0;
            while index < resident.len() {
                if self.must_stop() {
                    return;
                }
                std::mem::swap(&mut self.block, &mut resident[index]);
                let progress = self.run_block();
                std::mem::swap(&mut self.block, &mut resident[index]);
                if progress == Progress::Done {
                    self.grid.children.forget_block(resident[index].index);
                }
                match progress {
                    Progress::Done if size == 1 => spare.push(resident.swap_remove(index)),
                    Progress::Done => {
                        retired.push(resident.swap_remove(index));
                        let over = |block: &Block| {
                            block.cluster.as_ref().is_none_or(|cluster| cluster.live.get() == 0)
                        };
                        spare.extend(retired.extract_if(.., |block| over(block)));
                    }
                    Progress::Turn { polled } => {
                        waits += u32::from(polled);
                        if waits >= PATIENCE {
                            waits = 0;
                            wanted = wanted.max((wanted + 1).min(limit));
                        }
                        index += 1;
                    }
                    Progress::Fault => {
                        self.report();
                        return;
                    }
                }
            }
        }
    }

    /// Takes up to `count` clusters that were not taken yet.
    pub(super) fn take(&self, count: u64) -> Range<u64> {
        let size = u64::from(self.grid.cluster.iter().product::<u32>());
        let all = self.grid.blocks / size;
        let first = self.grid.next.fetch_add(count, Ordering::Relaxed).min(all);
        first..first.saturating_add(count).min(all)
    }

    pub(super) fn must_stop(&self) -> bool {
        if self.grid.launch.cancel.load(Ordering::Relaxed) {
            self.grid.stop.store(true, Ordering::Relaxed);
        }
        self.grid.stop.load(Ordering::Relaxed)
    }

    /// Stops all workers; the first fault counts.
    fn report(&mut self) {
        let mut first = self.grid.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = self.fault.take().map(|fault| *fault);
        }
        self.grid.stop.store(true, Ordering::Relaxed);
    }
}
