// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The launches of one grid, and its threads' state of the device runtime.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::RuntimeError;
use super::family::{Family, Slot, Task};

/// The maximum depth of grids below a grid that the host launches.
pub(crate) const MAX_DEPTH: u32 = 24;
/// The first handle of the streams and events that kernels create. No handle of the host and no address is near it.
const NAMES: u64 = 0x0d15_0000_0000_0000;
/// cudaStreamLegacy, cudaStreamPerThread
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// cudaStreamTailLaunch, cudaStreamFireAndForget
pub(crate) const TAIL: u64 = 3;
const FIRE_AND_FORGET: u64 = 4;

/// A launch of a kernel: the function's index, its grid, its blocks and bytes of their dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    pub(crate) function: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// A parameter buffer that waits for its launch.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) slot: Slot,
    /// Its size, bytes.
    pub(crate) bytes: u64,
    /// The arguments of cudaGetParameterBufferV2.
    pub(crate) shape: Option<LaunchShape>,
}

/// See the module's description.
pub(crate) struct Children<'f> {
    pub(crate) family: &'f Family,
    /// The grid's depth below the host's.
    pub(crate) depth: u32,
    pub(crate) waiting: Mutex<VecDeque<Task>>,
    pub(crate) tail: Mutex<VecDeque<Task>>,
    /// Held by the thread that runs the waiting tasks. One thread at a time does, which keeps their order.
    pub(crate) runner: Mutex<()>,
    pub(crate) prepared: Mutex<HashMap<u64, Prepared>>,
    /// The number of streams and events that were made.
    names: AtomicU64,
    /// The last errors of threads, by block, for blocks that run.
    errors: Mutex<HashMap<[u32; 3], HashMap<u32, u32>>>,
    has_errors: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'f> Children<'f> {
    pub(crate) fn new(family: &'f Family, depth: u32) -> Children<'f> {
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

    /// Takes a prepared buffer for its launch.
    pub(crate) fn take_prepared(&self, buffer: u64) -> Option<Prepared> {
        lock(&self.prepared).remove(&buffer)
    }

    /// Ends a prepared buffer without a launch.
    pub(crate) fn discard(&self, buffer: u64, prepared: &Prepared) {
        self.family.give_back(buffer, prepared.bytes);
        self.family.leave(prepared.slot);
    }

    /// Called after the grid has ended. Returns the tasks that run after everything else, and frees the buffers that were
    /// never launched.
    pub(crate) fn finish(&self) -> VecDeque<Task> {
        for (buffer, prepared) in std::mem::take(&mut *lock(&self.prepared)) {
            self.discard(buffer, &prepared);
        }
        std::mem::take(&mut *lock(&self.tail))
    }

    /// A new stream or event.
    pub(crate) fn new_name(&self) -> u64 {
        NAMES + self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether a thread of this grid has created the stream or event. It may have been destroyed since.
    pub(crate) fn is_name(&self, handle: u64) -> bool {
        handle.checked_sub(NAMES).is_some_and(|number| number < self.names.load(Ordering::Relaxed))
    }

    /// Returns whether the stream exists.
    pub(crate) fn is_stream(&self, stream: u64) -> bool {
        matches!(stream, 0 | LEGACY | PER_THREAD | TAIL | FIRE_AND_FORGET) || self.is_name(stream)
    }

    /// Notes a thread's last error.
    pub(crate) fn set_error(&self, block: [u32; 3], thread: u32, error: RuntimeError) {
        lock(&self.errors).entry(block).or_default().insert(thread, error.0);
        self.has_errors.store(true, Ordering::Relaxed);
    }

    /// A thread's last error, or 0. `clear` resets it.
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
