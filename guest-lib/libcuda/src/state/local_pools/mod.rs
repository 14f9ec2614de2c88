// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools that only this library manages ([`crate::pool::local_pool`]).

pub mod mark;
pub mod space;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::transport::UserMemory;

use crate::state::local_pools::mark::Mark;
use crate::state::local_pools::space::Space;
use crate::state::local_pools::table::Home;
use crate::state::memory::pinned::Attached;

/// Pools grow by multiples of this many bytes; their maximum size is rounded up to one …
pub const CHUNK_BYTES: u64 = 32 << 20;
/// … or by multiples of this if there is less memory.
pub const MIN_BYTES: u64 = 2 << 20;
/// Maximum bytes of a pool; more than any device or process has.
pub const MAX_BYTES: u64 = 1 << 46;

/// A pool of memory of the device or the host, or of managed memory.
#[derive(Debug)]
pub struct LocalPool {
    /// The program's handle.
    pub handle: u64,
    /// The kind of its memory, and the location that it reports.
    pub home: Home,
    /// Set for the first pool of its home, which is never destroyed.
    pub is_default: bool,
    /// Maximum number of bytes to reserve.
    pub max_bytes: u64,
    pub state: Mutex<State>,
}

/// Memory that a pool divides.
#[derive(Debug)]
pub struct Chunk {
    pub bytes: u64,
    /// The context through which the GPU accesses it, and with which device memory ends; 0 if that was destroyed and there is no
    /// other.
    pub context: u64,
    /// The pages of host memory. `None`: an allocation of `cuMemAlloc`.
    pub host: Option<Pages>,
}

/// Pages that the GPU can access.
#[derive(Debug)]
pub struct Pages {
    pub pages: UserMemory,
    pub attached: Attached,
}

/// The addresses of the chunks that have the same context, or of all chunks of host memory.
#[derive(Debug, Default)]
pub struct Room {
    pub space: Space<Mark>,
    /// Bytes that are allocated.
    pub used: u64,
    /// Allocations that were freed at once while a capture kept this library from waiting for their work.
    pub unwaited: Vec<Range<u64>>,
}

/// The mutable state of a pool.
#[derive(Debug)]
pub struct State {
    /// Rooms by context; that of host memory is 0.
    pub rooms: BTreeMap<u64, Room>,
    /// The chunks by first address.
    pub chunks: BTreeMap<u64, Chunk>,
    pub reserved: Level,
    pub used: Level,
    /// Bytes that remain reserved after a synchronisation.
    pub threshold: u64,
    /// `CU_MEMPOOL_ATTR_REUSE_*`, in their order: follow events, opportunistic, internal dependencies.
    pub policies: [bool; 3],
    /// Devices to which the program has granted access.
    pub devices: BTreeSet<i32>,
    /// True if calls report that the host has access.
    pub host: bool,
    /// Set after the program destroyed the pool.
    pub destroyed: bool,
}

/// A number of bytes, and its high watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub now: u64,
    pub high: u64,
}

impl Level {
    pub fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    pub fn sub(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

impl LocalPool {
    pub fn new(handle: u64, home: Home, max_bytes: u64, is_default: bool) -> Self {
        let devices = if home.is_device_memory() { BTreeSet::from([home.id]) } else { BTreeSet::new() };
        let state = State {
            rooms: BTreeMap::new(),
            chunks: BTreeMap::new(),
            reserved: Level::default(),
            used: Level::default(),
            threshold: 0,
            policies: [true; 3],
            devices,
            host: home.is_host_memory(),
            destroyed: false,
        };
        Self { handle, home, is_default, max_bytes, state: Mutex::new(state) }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether its memory is managed.
    pub fn is_managed(&self) -> bool {
        self.home.is_managed()
    }

    /// Returns the key of the room for work of a context.
    pub fn room_of(&self, context: u64) -> u64 {
        if self.home.is_device_memory() { context } else { 0 }
    }

    /// Returns whether a device may use its memory. All devices may use managed memory.
    pub fn is_reached_by(&self, device: i32) -> bool {
        self.is_managed() || self.lock().devices.contains(&device)
    }

    pub fn is_destroyed(&self) -> bool {
        self.lock().destroyed
    }

    pub fn set_destroyed(&self) {
        self.lock().destroyed = true;
    }

    /// Returns whether the program has destroyed the pool and all its memory is free.
    pub fn has_ended(&self) -> bool {
        let state = self.lock();
        state.destroyed && state.chunks.is_empty()
    }
}

impl State {
    /// Returns whether any free waits for a stream, or for a wait.
    pub fn has_pending(&self) -> bool {
        self.rooms.values().any(|room| room.space.has_pending() || !room.unwaited.is_empty())
    }
}
