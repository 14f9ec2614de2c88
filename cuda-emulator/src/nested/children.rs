// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launches of one grid, and its threads' state of the device runtime.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::RuntimeError;
use super::family::{Family, Task};
use crate::launch::{Fault, Launch};

/// Grids below a grid that the host launches.
pub(crate) const MAX_DEPTH: u32 = 24;
/// Handles of streams and events that kernels make: far from every handle of the host's and from every address.
const NAMES: u64 = 0x0d15_0000_0000_0000;
/// cudaStreamLegacy, cudaStreamPerThread
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// cudaStreamTailLaunch, cudaStreamFireAndForget
const TAIL: u64 = 3;
const FIRE_AND_FORGET: u64 = 4;

/// The counter of a pending launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// As one of cudaLimitDevRuntimePendingLaunchCount.
    Counted,
    /// Nowhere: it runs as soon as it is launched.
    AtOnce,
}

/// A parameter buffer that waits for its launch.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) slot: Slot,
    /// Its size, bytes.
    pub(crate) bytes: u64,
    /// The arguments of cudaGetParameterBufferV2: function, grid, block and dynamic shared memory.
    pub(crate) shape: Option<(usize, [u32; 3], [u32; 3], u32)>,
}

/// See the module's description.
pub(crate) struct Children<'f> {
    family: &'f Family,
    /// The grid's depth below the host's.
    depth: u32,
    waiting: Mutex<VecDeque<Task>>,
    tail: Mutex<VecDeque<Task>>,
    /// Held by the thread that runs what waits: one at a time, so that the order is kept.
    runner: Mutex<()>,
    prepared: Mutex<HashMap<u64, Prepared>>,
    /// The number of streams and events that were made.
    names: AtomicU64,
    /// The last errors of threads, by block, for blocks that run.
    errors: Mutex<HashMap<[u32; 3], HashMap<u32, u32>>>,
    has_errors: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'f> Children<'f> {
    pub(super) fn new(family: &'f Family, depth: u32) -> Children<'f> {
        Children {
            family,
            depth,
            waiting: Mutex::default(),
            tail: Mutex::default(),
            runner: Mutex::default(),
            prepared: Mutex::default(),
            names: AtomicU64::new(0),
            errors: Mutex::default(),
            has_errors: AtomicBool::new(false),
        }
    }

    pub(crate) fn family(&self) -> &'f Family {
        self.family
    }

    /// Makes a parameter buffer; its launch has a slot from now on.
    pub(crate) fn prepare(
        &self,
        launch: &Launch<'_>,
        bytes: u64,
        shape: Option<(usize, [u32; 3], [u32; 3], u32)>,
    ) -> Result<Result<u64, RuntimeError>, Fault> {
        if self.depth >= MAX_DEPTH {
            return Ok(Err(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED));
        }
        if bytes > super::parameters::MOST {
            return Ok(Err(RuntimeError::INVALID_VALUE));
        }
        let slot = self.slot(launch)?;
        let mut prepared = lock(&self.prepared);
        let full = slot == Slot::AtOnce && prepared.len() >= launch.device.pending_launches();
        let buffer = if full { None } else { self.family.buffer(launch.memory, bytes) };
        let Some(buffer) = buffer else {
            drop(prepared);
            self.family.leave(slot);
            return Ok(Err(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED));
        };
        prepared.insert(buffer, Prepared { slot, bytes, shape });
        Ok(Ok(buffer))
    }

    /// A slot for one more launch. When there is none, what this grid has launched so far runs now.
    pub(crate) fn slot(&self, launch: &Launch<'_>) -> Result<Slot, Fault> {
        if self.family.enter() {
            return Ok(Slot::Counted);
        }
        let running = lock(&self.runner);
        self.run_waiting(launch)?;
        drop(running);
        Ok(if self.family.enter() { Slot::Counted } else { Slot::AtOnce })
    }

    /// Takes a prepared buffer for its launch.
    pub(crate) fn take_prepared(&self, buffer: u64) -> Option<Prepared> {
        lock(&self.prepared).remove(&buffer)
    }

    /// Ends a prepared buffer without a launch.
    pub(crate) fn discard(&self, buffer: u64, prepared: &Prepared) {
        self.family.give_back(buffer, prepared.bytes);
        self.family.leave(prepared.slot);
    }

    /// Launches into a stream; gives the slot back if that fails.
    pub(crate) fn submit(
        &self,
        launch: &Launch<'_>,
        task: Task,
        slot: Slot,
        stream: u64,
    ) -> Result<Result<(), RuntimeError>, Fault> {
        let refused = if !self.is_stream(stream) {
            Some(RuntimeError::INVALID_RESOURCE_HANDLE)
        } else if self.depth >= MAX_DEPTH {
            Some(RuntimeError::LAUNCH_MAX_DEPTH_EXCEEDED)
        } else if stream == TAIL && slot == Slot::AtOnce {
            Some(RuntimeError::LAUNCH_PENDING_COUNT_EXCEEDED)
        } else {
            None
        };
        if let Some(error) = refused {
            self.family.leave(slot);
            return Ok(Err(error));
        }
        match (stream, slot) {
            (TAIL, _) => lock(&self.tail).push_back(task),
            (_, Slot::Counted) => lock(&self.waiting).push_back(task),
            (_, Slot::AtOnce) => {
                let _running = lock(&self.runner);
                self.run_waiting(launch)?;
                self.family.run(launch, task, self.depth + 1)?;
            }
        }
        Ok(Ok(()))
    }

    /// Runs what the grid has launched, but for the tail; the caller holds `runner`, or the grid has ended.
    pub(super) fn run_waiting(&self, launch: &Launch<'_>) -> Result<(), Fault> {
        loop {
            let Some(task) = lock(&self.waiting).pop_front() else { return Ok(()) };
            self.family.leave(Slot::Counted);
            self.family.run(launch, task, self.depth + 1)?;
        }
    }

    /// Returns the tasks that come when all else is complete, once the grid has ended. Buffers that were never launched
    /// are freed.
    pub(super) fn finish(&self) -> VecDeque<Task> {
        for (buffer, prepared) in std::mem::take(&mut *lock(&self.prepared)) {
            self.discard(buffer, &prepared);
        }
        std::mem::take(&mut *lock(&self.tail))
    }

    /// A new stream or event.
    pub(crate) fn new_name(&self) -> u64 {
        NAMES + self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether it is a stream or event that a thread of this grid has made; not, whether it was destroyed since.
    pub(crate) fn is_name(&self, handle: u64) -> bool {
        handle.checked_sub(NAMES).is_some_and(|number| number < self.names.load(Ordering::Relaxed))
    }

    /// Returns whether work can be put there.
    pub(crate) fn is_stream(&self, stream: u64) -> bool {
        matches!(stream, 0 | LEGACY | PER_THREAD | TAIL | FIRE_AND_FORGET) || self.is_name(stream)
    }

    /// Notes a thread's last error.
    pub(crate) fn set_error(&self, block: [u32; 3], thread: u32, error: RuntimeError) {
        lock(&self.errors).entry(block).or_default().insert(thread, error.0);
        self.has_errors.store(true, Ordering::Relaxed);
    }

    /// A thread's last error, 0 when there is none; `clear` forgets it.
    pub(crate) fn error(&self, block: [u32; 3], thread: u32, clear: bool) -> u32 {
        if !self.has_errors.load(Ordering::Relaxed) {
            return 0;
        }
        let mut errors = lock(&self.errors);
        let Some(of_block) = errors.get_mut(&block) else { return 0 };
        let found = if clear { of_block.remove(&thread) } else { of_block.get(&thread).copied() };
        found.unwrap_or(0)
    }

    /// A block has ended.
    #[inline]
    pub(crate) fn forget_block(&self, block: [u32; 3]) {
        if self.has_errors.load(Ordering::Relaxed) {
            lock(&self.errors).remove(&block);
        }
    }
}
