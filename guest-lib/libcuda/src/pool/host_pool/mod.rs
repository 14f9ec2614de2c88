// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools of host and managed memory. Both are pinned memory of the address window, so only this library manages them:
//! the worker knows only their chunks, like allocations of `cuMemHostAlloc`. The results of calls are those of an H200.

pub mod api;
mod mark;
mod space;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ContextId;
use virtio_cuda_client::transport::UserMemory;

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::{attach_pages, attach_window};
use crate::pool::host_pool::mark::Mark;
use crate::pool::host_pool::space::{Space, StreamKey, UNIT};
use crate::pool::host_pool::table::is_managed;
use crate::state::memory::pinned::Attached;
use crate::state::memory::ranges::{HostKind, HostRange};

pub use table::{Home, HostPools};

/// Pools grow by multiples of this many bytes; their maximum size is rounded up to one …
const CHUNK_BYTES: u64 = 32 << 20;
/// … or by multiples of this if there is less memory.
const MIN_BYTES: u64 = 2 << 20;
/// Maximum bytes of a pool; more than any process has.
const MAX_BYTES: u64 = 1 << 46;

/// A pool of host or managed memory.
#[derive(Debug)]
pub struct HostPool {
    /// The program's handle.
    pub handle: u64,
    /// The kind of its memory, and the location that it reports.
    pub home: Home,
    /// Set for the first pool of its home, which is never destroyed.
    is_default: bool,
    /// Maximum number of bytes to reserve.
    max_bytes: u64,
    state: Mutex<State>,
}

/// Pages that the GPU can access.
#[derive(Debug)]
struct Chunk {
    pages: UserMemory,
    attached: Attached,
    /// The context through which the GPU accesses them; 0 if that was destroyed and there is no other.
    context: u64,
}

/// The mutable state of a pool.
#[derive(Debug)]
struct State {
    space: Space<Mark>,
    /// The chunks by first address.
    chunks: BTreeMap<u64, Chunk>,
    reserved: Level,
    used: Level,
    /// Bytes that remain reserved after a synchronisation.
    threshold: u64,
    /// `CU_MEMPOOL_ATTR_REUSE_*`, in their order: follow events, opportunistic, internal dependencies.
    policies: [bool; 3],
    /// Devices to which the program has granted access.
    devices: BTreeSet<i32>,
    /// True if calls report that the host has access.
    host: bool,
    /// Set after the program destroyed the pool.
    destroyed: bool,
}

/// A number of bytes, and its high watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    now: u64,
    high: u64,
}

impl Level {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    fn sub(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

impl HostPool {
    fn new(handle: u64, home: Home, max_bytes: u64, is_default: bool) -> Self {
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

    fn lock(&self) -> MutexGuard<'_, State> {
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

    fn is_destroyed(&self) -> bool {
        self.lock().destroyed
    }

    fn set_destroyed(&self) {
        self.lock().destroyed = true;
    }

    /// Returns whether the program has destroyed the pool and all its memory is free.
    fn has_ended(&self) -> bool {
        let state = self.lock();
        state.destroyed && state.chunks.is_empty()
    }

    /// Allocates `bytes` bytes for work of `stream`.
    fn allocate(self: &Arc<Self>, api: Api, bytes: u64, stream: StreamKey) -> Result<u64, CudaError> {
        if bytes > MAX_BYTES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let taken = bytes.next_multiple_of(UNIT);
        let mut state = self.lock();
        let start = match state.take(api, taken, stream) {
            Some(start) => start,
            None => match self.grow(api, &mut state, taken, stream.context) {
                Ok(()) => state.space.take(taken, stream).ok_or(CudaError::OUT_OF_MEMORY)?,
                Err(error) => state.take_from_others(api, taken, stream).ok_or(error)?,
            },
        };
        let range = state.range(api, start, bytes, stream.context, self)?;
        state.used.add(bytes);
        drop(state);
        let memory = &api.driver.memory;
        // The pool allocates each byte once, so the ranges cannot overlap.
        memory.ranges.add_host(range);
        if self.is_managed() {
            memory.advice.forget(start, bytes);
        }
        Ok(start)
    }

    /// Reserves a chunk for `bytes` bytes. Idle chunks are released for it if needed.
    fn grow(&self, api: Api, state: &mut State, bytes: u64, context: u64) -> Result<(), CudaError> {
        let usual = bytes.next_multiple_of(CHUNK_BYTES);
        if usual > self.max_bytes.saturating_sub(state.reserved.now) {
            state.shrink(api.driver, 0);
        }
        if usual > self.max_bytes.saturating_sub(state.reserved.now) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let least = bytes.next_multiple_of(MIN_BYTES);
        let attach = |bytes| attach_pages(api, ContextId(context), bytes, true);
        let (pages, attached) = api.with_capture_relaxed(|| attach(usual).or_else(|_| attach(least)))?;
        let (start, bytes) = (pages.address as u64, pages.bytes as u64);
        log::debug!("Pool {:#x} has {bytes} bytes more at {start:#x}", self.handle);
        state.chunks.insert(start, Chunk { pages, attached, context });
        state.space.add_chunk(start..start + bytes);
        state.reserved.add(bytes);
        Ok(())
    }

    /// Frees an allocation that `stream` uses until it reaches `mark`.
    fn free_in_order(&self, range: &HostRange, stream: StreamKey, mark: Mark) {
        let mut state = self.lock();
        state.used.sub(range.bytes);
        state.space.free_later(place_of(range), stream, Arc::new(mark));
    }

    /// Frees an allocation that is no longer in use.
    pub fn free_now(&self, api: Api, range: &HostRange) {
        let mut state = self.lock();
        state.used.sub(range.bytes);
        state.space.free(place_of(range));
        state.settle(api);
    }

    /// Releases memory above the threshold, or all of a destroyed pool. Returns whether the pool waits for streams.
    fn settle(&self, api: Api) -> bool {
        let mut state = self.lock();
        state.settle(api);
        state.space.has_pending()
    }

    /// Releases free memory while more than `keep` bytes are reserved.
    fn trim(&self, api: Api, keep: u64) {
        let mut state = self.lock();
        state.space.free_reached(|mark| mark.is_reached(api));
        state.shrink(api.driver, keep);
    }

    /// Handles a destroyed context. Returns whether the GPU accessed any of the memory through it.
    fn forget_context(&self, driver: &Driver, context: u64) -> bool {
        let mut state = self.lock();
        // The context's streams have completed their work.
        state.space.free_reached(|mark| mark.context == context);
        let mut any = false;
        for chunk in state.chunks.values_mut().filter(|chunk| chunk.context == context) {
            driver.unpin(&std::mem::take(&mut chunk.attached.pinned));
            chunk.context = 0;
            any = true;
        }
        any
    }

    /// Makes memory accessible to the GPU through `context` that it accessed through destroyed contexts.
    fn adopt(&self, api: Api, context: u64) -> Result<(), CudaError> {
        let mut state = self.lock();
        for (&start, chunk) in state.chunks.iter_mut().filter(|(_, chunk)| chunk.context == 0) {
            let attached = attach_window(api, ContextId(context), chunk.pages)?;
            if attached.device_address != start {
                api.driver.unpin(&attached.pinned);
                return Err(CudaError::OUT_OF_MEMORY);
            }
            (chunk.attached, chunk.context) = (attached, context);
        }
        Ok(())
    }
}

/// Returns the addresses of an allocation.
fn place_of(range: &HostRange) -> Range<u64> {
    range.start..range.start + range.bytes.next_multiple_of(UNIT)
}

impl State {
    /// Takes free bytes. If needed, checks first how far streams have progressed.
    fn take(&mut self, api: Api, bytes: u64, stream: StreamKey) -> Option<u64> {
        let at_once = self.space.take(bytes, stream);
        at_once.or_else(|| {
            let more = self.space.free_reached(|mark| mark.is_reached(api));
            more.then(|| self.space.take(bytes, stream)).flatten()
        })
    }

    /// Takes bytes whose free other streams have not reached yet: `stream` waits for them.
    fn take_from_others(&mut self, api: Api, bytes: u64, stream: StreamKey) -> Option<u64> {
        let may = self.policies[2];
        may.then(|| self.space.take_from_others(bytes, stream, |mark| mark.hold_back(api, stream).is_ok()))?
    }

    /// Returns the entry of an allocation for the table of addresses.
    fn range(
        &self,
        api: Api,
        start: u64,
        bytes: u64,
        context: u64,
        pool: &Arc<HostPool>,
    ) -> Result<HostRange, CudaError> {
        let (_, chunk) = self.chunks.range(..=start).next_back().ok_or(CudaError::UNKNOWN)?;
        Ok(HostRange {
            start,
            bytes,
            device_address: start,
            kind: if pool.is_managed() { HostKind::ManagedPooled } else { HostKind::Pooled },
            flags: 0,
            // The memory belongs to no context.
            context: 0,
            device: api.driver.contexts.device_of(context)?,
            id: api.driver.memory.ranges.next_id(),
            pages: chunk.pages,
            window: chunk.pages.address as u64,
            pinned: Vec::new(),
            owner: 0,
            pool: Some(pool.clone()),
            moving: None,
        })
    }

    fn settle(&mut self, api: Api) {
        self.space.free_reached(|mark| mark.is_reached(api));
        let keep = if self.destroyed { 0 } else { self.threshold };
        self.shrink(api.driver, keep);
    }

    /// Releases idle chunks to the system while more than `keep` bytes are reserved.
    fn shrink(&mut self, driver: &Driver, keep: u64) {
        while self.reserved.now > keep {
            let Some(start) = self.space.remove_idle() else { return };
            if let Some(chunk) = self.chunks.remove(&start) {
                self.reserved.sub(chunk.pages.bytes as u64);
                driver.detach_pages(chunk.pages, &chunk.attached.pinned);
            }
        }
    }
}
