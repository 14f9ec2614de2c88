// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools of host and managed memory. Both are pinned memory of the address window, so only this library manages them:
//! the worker knows only their chunks, like allocations of `cuMemHostAlloc`. The results of calls are those of an H200.

pub mod all;
pub mod api;
mod mark;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::ContextId;

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::{attach_pages, attach_window};
use crate::state::host_pools::mark::Mark;
use crate::state::host_pools::space::{StreamKey, UNIT};
use crate::state::host_pools::{CHUNK_BYTES, Chunk, HostPool, MAX_BYTES, MIN_BYTES, State};
use crate::state::memory::ranges::{HostKind, HostRange};

impl HostPool {
    /// Allocates `bytes` bytes for work of `stream`.
    pub fn allocate_for(self: &Arc<Self>, api: Api, bytes: u64, stream: StreamKey) -> Result<u64, CudaError> {
        if bytes > MAX_BYTES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let taken = bytes.next_multiple_of(UNIT);
        let mut state = self.lock();
        let start = match state.take_free(api, taken, stream) {
            Some(start) => start,
            None => match self.grow(api, &mut state, taken, stream.context) {
                Ok(()) => state.space.take(taken, stream).ok_or(CudaError::OUT_OF_MEMORY)?,
                Err(error) => state.take_from_others(api, taken, stream).ok_or(error)?,
            },
        };
        let range = state.range_of(api, start, bytes, stream.context, self)?;
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
    pub fn grow(&self, api: Api, state: &mut State, bytes: u64, context: u64) -> Result<(), CudaError> {
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
    pub fn free_in_order(&self, range: &HostRange, stream: StreamKey, mark: Mark) {
        let mut state = self.lock();
        state.used.sub(range.bytes);
        state.space.free_later(place_of(range), stream, Arc::new(mark));
    }

    /// Frees an allocation that is no longer in use.
    pub fn free_now(&self, api: Api, range: &HostRange) {
        let mut state = self.lock();
        state.used.sub(range.bytes);
        state.space.free(place_of(range));
        state.release_unused(api);
    }

    /// Releases memory above the threshold, or all of a destroyed pool. Returns whether the pool waits for streams.
    pub fn settle_pool(&self, api: Api) -> bool {
        let mut state = self.lock();
        state.release_unused(api);
        state.space.has_pending()
    }

    /// Releases free memory while more than `keep` bytes are reserved.
    pub fn trim_to(&self, api: Api, keep: u64) {
        let mut state = self.lock();
        state.space.free_reached(|mark| mark.is_passed(api));
        state.shrink(api.driver, keep);
    }

    /// Handles a destroyed context. Returns whether the GPU accessed any of the memory through it.
    pub fn detach_context(&self, driver: &Driver, context: u64) -> bool {
        let mut state = self.lock();
        // The context's streams have completed their work.
        state.space.free_reached(|mark| {
            let ends = mark.context == context;
            mark.ended.fetch_or(ends, Ordering::AcqRel);
            ends
        });
        let mut any = false;
        for chunk in state.chunks.values_mut().filter(|chunk| chunk.context == context) {
            driver.unpin(&std::mem::take(&mut chunk.attached.pinned));
            chunk.context = 0;
            any = true;
        }
        any
    }

    /// Makes memory accessible to the GPU through `context` that it accessed through destroyed contexts.
    pub fn attach_orphans(&self, api: Api, context: u64) -> Result<(), CudaError> {
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
    fn take_free(&mut self, api: Api, bytes: u64, stream: StreamKey) -> Option<u64> {
        let at_once = self.space.take(bytes, stream);
        at_once.or_else(|| {
            let more = self.space.free_reached(|mark| mark.is_passed(api));
            more.then(|| self.space.take(bytes, stream)).flatten()
        })
    }

    /// Takes bytes whose free other streams have not reached yet: `stream` waits for them.
    fn take_from_others(&mut self, api: Api, bytes: u64, stream: StreamKey) -> Option<u64> {
        let may = self.policies[2];
        may.then(|| self.space.take_from_others(bytes, stream, |mark| mark.hold_back(api, stream).is_ok()))?
    }

    /// Returns the entry of an allocation for the table of addresses.
    fn range_of(
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

    fn release_unused(&mut self, api: Api) {
        self.space.free_reached(|mark| mark.is_passed(api));
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
