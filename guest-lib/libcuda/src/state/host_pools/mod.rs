// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools of host and managed memory, which only this library manages ([`crate::pool::host_pool`]).

pub mod mark;
pub mod space;
pub mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::transport::UserMemory;

use crate::state::host_pools::mark::Mark;
use crate::state::host_pools::space::Space;
use crate::state::host_pools::table::{Home, is_managed};
use crate::state::memory::pinned::Attached;

/// Pools grow by multiples of this many bytes; their maximum size is rounded up to one …
pub const CHUNK_BYTES: u64 = 32 << 20;
/// … or by multiples of this if there is less memory.
pub const MIN_BYTES: u64 = 2 << 20;
/// Maximum bytes of a pool; more than any process has.
pub const MAX_BYTES: u64 = 1 << 46;

/// A pool of host or managed memory.
#[derive(Debug)]
pub struct HostPool {
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

/// Pages that the GPU can access.
#[derive(Debug)]
pub struct Chunk {
    pub pages: UserMemory,
    pub attached: Attached,
    /// The context through which the GPU accesses them; 0 if that was destroyed and there is no other.
    pub context: u64,
}

/// The mutable state of a pool.
#[derive(Debug)]
pub struct State {
    pub space: Space<Mark>,
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

impl HostPool {
    pub fn new(handle: u64, home: Home, max_bytes: u64, is_default: bool) -> Self {
        let state = State {
            space: Space::default(),
            chunks: BTreeMap::new(),
            reserved: Level::default(),
            used: Level::default(),
            threshold: 0,
            policies: [true; 3],
            devices: BTreeSet::new(),
            host: !is_managed(home.kind),
            destroyed: false,
        };
        Self { handle, home, is_default, max_bytes, state: Mutex::new(state) }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether its memory is managed.
    pub fn is_managed(&self) -> bool {
        is_managed(self.home.kind)
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
