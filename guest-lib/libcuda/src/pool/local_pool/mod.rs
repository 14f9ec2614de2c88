// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pools of device, host and managed memory that only this library manages. The worker knows only their chunks: allocations of
//! `cuMemAlloc`, which leave the card when the session is suspended, or pinned memory of the address window. The results of calls
//! are those of an H200.

pub mod all;
pub mod api;
mod mark;
mod readers;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_cuda_client::protocol::{ContextId, DevicePtr, StreamId};
use virtio_cuda_client::{CudaError, calls};

use crate::api::PER_THREAD;
use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::attach::{attach_pages, attach_window};
use crate::state::local_pools::mark::Mark;
use crate::state::local_pools::space::{StreamKey, UNIT};
use crate::state::local_pools::{CHUNK_BYTES, Chunk, LocalPool, MAX_BYTES, MIN_BYTES, Pages, State};
use crate::state::memory::ranges::{HostKind, HostRange};

impl LocalPool {
    /// Allocates `bytes` bytes for work of `stream`, in a context of the pool's device.
    pub fn allocate_for(
        self: &Arc<Self>,
        api: Api,
        bytes: u64,
        context: u64,
        stream: StreamKey,
    ) -> Result<u64, CudaError> {
        if bytes > MAX_BYTES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let taken = bytes.next_multiple_of(UNIT);
        let room = self.room_of(context);
        let mut state = self.lock();
        let start = match state.take_free(api, room, taken, stream) {
            Some(start) => start,
            None => match self.grow(api, &mut state, taken, context) {
                Ok(()) => state.take(room, taken, stream).ok_or(CudaError::OUT_OF_MEMORY)?,
                Err(error) => state.take_from_others(api, room, taken, stream).ok_or(error)?,
            },
        };
        self.enter(api, &state, start, bytes, context)?;
        state.used.add(bytes);
        state.rooms.entry(room).or_default().used += bytes;
        Ok(start)
    }

    /// Adds an allocation to the table of addresses. The pool allocates each byte once, so ranges cannot overlap.
    fn enter(
        self: &Arc<Self>,
        api: Api,
        state: &State,
        start: u64,
        bytes: u64,
        context: u64,
    ) -> Result<(), CudaError> {
        let (_, chunk) = state.chunks.range(..=start).next_back().ok_or(CudaError::UNKNOWN)?;
        let Some(Pages { pages, .. }) = chunk.host else {
            return api.track_pooled_in(context, start, bytes, self.handle);
        };
        let memory = &api.driver.memory;
        let (device, id) = (api.driver.contexts.device_of(context)?, memory.ranges.next_id());
        memory.ranges.add_host(HostRange {
            start,
            bytes,
            device_address: start,
            kind: if self.is_managed() { HostKind::ManagedPooled } else { HostKind::Pooled },
            flags: 0,
            // The memory belongs to no context.
            context: 0,
            device,
            id,
            pages,
            window: pages.address as u64,
            pinned: Vec::new(),
            owner: 0,
            pool: Some(self.clone()),
            moving: None,
        });
        if self.is_managed() {
            memory.advice.forget(start, bytes);
        }
        Ok(())
    }

    /// Reserves a chunk for `bytes` bytes. Idle chunks are released for it if needed.
    fn grow(&self, api: Api, state: &mut State, bytes: u64, context: u64) -> Result<(), CudaError> {
        let usual = bytes.next_multiple_of(CHUNK_BYTES);
        if usual > self.max_bytes.saturating_sub(state.reserved.now) {
            state.free_reached(api);
            state.shrink(api, 0);
        }
        if usual > self.max_bytes.saturating_sub(state.reserved.now) {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        let least = bytes.next_multiple_of(MIN_BYTES);
        let (start, chunk) = if self.home.is_device_memory() {
            let readers = self.readers(api, state);
            let make = |bytes: u64| {
                let address = calls::cuMemAlloc_v2(&mut api.call_in(ContextId(context)), bytes)?.0;
                readers.set(api, address, context).map_err(|error| {
                    log::debug!("Memory of a pool has not the access of the pool: {error}");
                    api.release(address, context);
                    CudaError::OUT_OF_MEMORY
                })?;
                Ok((address, Chunk { bytes, context, host: None }))
            };
            api.with_capture_relaxed(|| {
                make(usual)
                    .or_else(|error| if api.release_unused(state) { make(usual) } else { Err(error) })
                    .or_else(|error| if least < usual { make(least) } else { Err(error) })
            })?
        } else {
            let attach = |bytes| attach_pages(api, ContextId(context), bytes, true);
            let (pages, attached) = api.with_capture_relaxed(|| attach(usual).or_else(|_| attach(least)))?;
            let chunk = Chunk { bytes: pages.bytes as u64, context, host: Some(Pages { pages, attached }) };
            (pages.address as u64, chunk)
        };
        log::debug!("Pool {:#x} has {} bytes more at {start:#x}", self.handle, chunk.bytes);
        state.rooms.entry(self.room_of(context)).or_default().space.add_chunk(start..start + chunk.bytes);
        state.reserved.add(chunk.bytes);
        state.chunks.insert(start, chunk);
        Ok(())
    }

    /// Frees an allocation that belongs to `context`, as the free with this number. `stream` uses it until it reaches `mark`, or one
    /// that is recorded later.
    pub fn free_in_order(
        &self,
        place: Range<u64>,
        context: u64,
        stream: StreamKey,
        number: u64,
        mark: Option<Mark>,
    ) {
        let mut state = self.lock();
        state.used.sub(place.end - place.start);
        let Some(room) = state.rooms.get_mut(&self.room_of(context)) else { return };
        room.used = room.used.saturating_sub(place.end - place.start);
        room.space.free_later(whole(place), stream, number, mark.map(Arc::new));
    }

    /// Frees an allocation that belongs to `context`, and is no longer in use, or not once a wait for the work of the context has
    /// ended.
    pub fn free_now(&self, api: Api, place: Range<u64>, context: u64, is_unused: bool) {
        let mut state = self.lock();
        state.used.sub(place.end - place.start);
        let Some(room) = state.rooms.get_mut(&self.room_of(context)) else { return };
        room.used = room.used.saturating_sub(place.end - place.start);
        if is_unused {
            room.space.free(whole(place));
        } else {
            room.unwaited.push(whole(place));
        }
        state.release_unused(api);
    }

    /// Releases memory above the threshold, or all of a destroyed pool. Returns whether the pool waits for streams.
    pub fn settle_pool(&self, api: Api) -> bool {
        let mut state = self.lock();
        state.release_unused(api);
        state.has_pending()
    }

    /// Releases free memory while more than `keep` bytes are reserved.
    pub fn trim_to(&self, api: Api, keep: u64) {
        let mut state = self.lock();
        state.free_reached(api);
        state.shrink(api, keep);
    }

    /// Handles a destroyed context, with which device memory has ended. Returns whether the GPU accessed any host memory through it.
    pub fn detach_context(&self, driver: &Driver, context: u64) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        // The context's streams have completed their work.
        for room in state.rooms.values_mut() {
            room.space.free_of(context, |mark| mark.ended.store(true, Ordering::Release));
        }
        if self.home.is_device_memory() {
            let ended = state.chunks.extract_if(.., |_, chunk| chunk.context == context);
            ended.for_each(|(_, chunk)| state.reserved.sub(chunk.bytes));
            if let Some(room) = state.rooms.remove(&context) {
                state.used.sub(room.used);
            }
            return false;
        }
        let mut any = false;
        for chunk in state.chunks.values_mut().filter(|chunk| chunk.context == context) {
            if let Some(host) = &mut chunk.host {
                driver.unpin(&std::mem::take(&mut host.attached.pinned));
            }
            chunk.context = 0;
            any = true;
        }
        any
    }

    /// Makes memory accessible to the GPU through `context` that it accessed through destroyed contexts.
    pub fn attach_orphans(&self, api: Api, context: u64) -> Result<(), CudaError> {
        let mut state = self.lock();
        for (&start, chunk) in state.chunks.iter_mut().filter(|(_, chunk)| chunk.context == 0) {
            let Some(host) = &mut chunk.host else { continue };
            let attached = attach_window(api, ContextId(context), host.pages)?;
            if attached.device_address != start {
                api.driver.unpin(&attached.pinned);
                return Err(CudaError::OUT_OF_MEMORY);
            }
            (host.attached, chunk.context) = (attached, context);
        }
        Ok(())
    }
}

/// Returns all addresses of an allocation.
fn whole(place: Range<u64>) -> Range<u64> {
    place.start..place.start + (place.end - place.start).next_multiple_of(UNIT)
}

impl State {
    /// Takes bytes that are free, or that `stream` has freed itself.
    fn take(&mut self, room: u64, bytes: u64, stream: StreamKey) -> Option<u64> {
        self.rooms.get_mut(&room)?.space.take(bytes, stream)
    }

    /// Takes free bytes. If needed and allowed, checks first how far streams have progressed.
    fn take_free(&mut self, api: Api, room: u64, bytes: u64, stream: StreamKey) -> Option<u64> {
        let at_once = self.take(room, bytes, stream);
        at_once.or_else(|| {
            let more = self.policies[1] && self.free_reached(api);
            more.then(|| self.take(room, bytes, stream)).flatten()
        })
    }

    /// Takes bytes whose free other streams have not reached yet: `stream` waits for them.
    fn take_from_others(&mut self, api: Api, room: u64, bytes: u64, stream: StreamKey) -> Option<u64> {
        if !self.policies[2] {
            return None;
        }
        if !api.driver.captures.any() {
            self.mark_frees(api, |_| true);
        }
        let space = &mut self.rooms.get_mut(&room)?.space;
        space.take_from_others(bytes, |mark| mark.hold_back(api, stream).is_ok())
    }

    /// Brings a mark behind all frees of these streams. No stream may capture: the mark would become a part of the graph.
    fn mark_frees(&mut self, api: Api, wanted: impl Fn(StreamKey) -> bool) {
        for room in self.rooms.values_mut() {
            for stream in room.space.unmarked().into_iter().filter(|stream| wanted(*stream)) {
                match Mark::record(api, stream) {
                    Ok(mark) => room.space.mark(stream, &Arc::new(mark)),
                    Err(error) => log::debug!("Marking stream {:#x}: {error}", stream.stream),
                }
            }
        }
    }

    /// Frees what streams have reached. Returns whether that was anything.
    fn free_reached(&mut self, api: Api) -> bool {
        if !self.has_pending() {
            return false;
        }
        if api.is_idle() {
            for room in self.rooms.values_mut() {
                room.space.free_where(|_, _| true);
                std::mem::take(&mut room.unwaited).into_iter().for_each(|place| room.space.free(place));
            }
            return true;
        }
        if api.driver.captures.any() {
            return false;
        }
        self.mark_frees(api, |_| true);
        let mut any = false;
        for room in self.rooms.values_mut() {
            any |= room.space.free_reached(|mark| mark.is_passed(api));
            if !room.unwaited.is_empty() && api.internal().wait_for_contexts(|_| true) == Ok(true) {
                std::mem::take(&mut room.unwaited).into_iter().for_each(|place| room.space.free(place));
                any = true;
            }
        }
        any
    }

    fn release_unused(&mut self, api: Api) {
        let keep = if self.destroyed { 0 } else { self.threshold };
        if self.reserved.now > keep || !self.policies[1] {
            self.free_reached(api);
            self.shrink(api, keep);
        }
    }

    /// Releases idle chunks while more than `keep` bytes are reserved. Returns whether there were any.
    pub fn shrink(&mut self, api: Api, keep: u64) -> bool {
        let is_device_memory = self.chunks.values().any(|chunk| chunk.host.is_none());
        if is_device_memory && api.driver.captures.any() {
            // The free would end a capture, or become a part of the graph.
            return false;
        }
        let mut any = false;
        while self.reserved.now > keep {
            let Some(start) = self.rooms.values_mut().find_map(|room| room.space.remove_idle()) else {
                break;
            };
            if let Some(chunk) = self.chunks.remove(&start) {
                self.reserved.sub(chunk.bytes);
                any = true;
                match chunk.host {
                    Some(Pages { pages, attached }) => api.driver.detach_pages(pages, &attached.pinned),
                    None => api.release(start, chunk.context),
                }
            }
        }
        any
    }
}

impl Api {
    /// Gives an allocation of `cuMemAlloc` back that no work uses.
    fn release(self, address: u64, context: u64) {
        let (memory, call) = (DevicePtr(address), &mut self.internal().call_in(ContextId(context)));
        // The driver's other free would wait for work that has nothing to do with it.
        let released = self.with_capture_relaxed(|| {
            if self.is_idle() {
                calls::cuMemFree_v2(call, memory)
            } else {
                calls::cuMemFreeAsync(call, memory, StreamId(PER_THREAD))
            }
        });
        if let Err(error) = released {
            log::debug!("Memory of a pool at {address:#x} stays: {error}");
        }
    }

    /// Gives memory back that nobody uses, also that of the pool of `state`, which is locked. Returns whether there was any.
    fn release_unused(self, state: &mut State) -> bool {
        state.free_reached(self);
        let own = state.shrink(self, 0);
        self.give_back_ready(true) || own
    }
}
