// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pinned memory of this library, through which ordinary buffers are copied.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use virtio_cuda_client::protocol::{DevicePtr, EventId, StreamId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};

use crate::api::PER_THREAD;
use crate::driver::Driver;
use crate::entry::Api;
use crate::handles::mint;
use crate::memory::attach::{Attached, attach};

/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 1 | 2;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// How large a staging is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// For copies that are over soon.
    Small,
    /// For those that several threads share.
    Large,
    /// For long ones to the device: pieces are filled while the worker still wakes up.
    Long,
}

impl Size {
    /// Bytes of a slot.
    pub fn slot_bytes(self) -> usize {
        match self {
            Self::Small => 128 << 10,
            Self::Large | Self::Long => 512 << 10,
        }
    }

    /// Slots: while some are filled, others are on the link.
    pub fn slots(self) -> usize {
        match self {
            Self::Small => 8,
            Self::Large => 16,
            Self::Long => 48,
        }
    }

    /// Slots that are waited for together, as that is a way to the device and back: as few as leave the others under way.
    fn group(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Large => 2,
            Self::Long => 8,
        }
    }

    /// Stagings of the size that a context has at most: as many threads copy through them at once.
    fn most(self) -> usize {
        match self {
            Self::Small | Self::Large => 4,
            Self::Long => 2,
        }
    }
}

/// A stream, told from those of other threads that have the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    stream: StreamId,
    thread: Option<ThreadId>,
}

impl Queue {
    /// The one that this thread means by a stream.
    pub fn new(stream: StreamId) -> Self {
        Self { stream, thread: (stream.0 == PER_THREAD).then(|| thread::current().id()) }
    }
}

/// Pinned memory in slots, with an event for each group of them. Only copies of one queue are under way in it, so that
/// nobody waits for what other queues do, and the GPU is done with them in the order in which they were started.
#[derive(Debug)]
pub struct Staging {
    context: u64,
    size: Size,
    /// Where the program has it; inside the address window.
    host: u64,
    attached: Attached,
    /// By group: an event, and how many copies were started before it was recorded last. It is recorded after a copy that
    /// fills the group, or ends in it.
    events: Vec<(EventId, u64)>,
    /// By slot: the number of the copy that uses it, from 1.
    uses: Vec<u64>,
    /// Copies that were started, and those that the GPU is known to be done with.
    started: u64,
    done: u64,
    /// The queue of the copies that are under way, and the slot of the last one.
    last: Option<(Queue, usize)>,
}

impl Staging {
    fn new(api: Api, size: Size) -> Result<Self, CudaError> {
        let context = api.context()?.0;
        let bytes = (size.slot_bytes() * size.slots()) as u64;
        let driver = api.driver;
        let host = driver.memory.window.take(bytes)?;
        let pages = UserMemory { address: host as usize, bytes: bytes as usize };
        let transport = driver.session.transport();
        let mapped = transport.map(pages).map_err(|error| error.result());
        let attached = mapped
            .and_then(|()| attach(api, pages, host, PORTABLE_MAPPED).inspect_err(|_| transport.unmap(pages)));
        let attached = attached.inspect_err(|_| driver.memory.window.give_back(host, bytes))?;
        let (events, uses) = (Vec::new(), vec![0; size.slots()]);
        let mut staging =
            Self { context, size, host, attached, events, uses, started: 0, done: 0, last: None };
        for _ in 0..size.slots() / size.group() {
            let event = EventId(mint());
            calls::cuEventCreate(&mut api.in_context()?.posted(), event, DISABLE_TIMING)?;
            staging.events.push((event, 0));
        }
        log::debug!("Staging of {bytes} bytes at {host:#x}");
        Ok(staging)
    }

    fn pages(&self) -> UserMemory {
        UserMemory { address: self.host as usize, bytes: self.size.slot_bytes() * self.size.slots() }
    }

    /// The first byte of a slot, for this process.
    pub fn host(&self, slot: usize) -> *mut u8 {
        (self.host as usize + slot * self.size.slot_bytes()) as *mut u8
    }

    /// The first byte of a slot, for the GPU.
    pub fn device(&self, slot: usize) -> DevicePtr {
        DevicePtr(self.attached.device_address + (slot * self.size.slot_bytes()) as u64)
    }

    /// Whether the GPU may still use the slot.
    pub fn is_pending(&self, slot: usize) -> bool {
        self.uses[slot] > self.done
    }

    /// Whether [`Self::settle`] may be called for the slot.
    pub fn can_settle(&self, slot: usize) -> bool {
        !self.is_pending(slot) || self.event_after(slot).is_some()
    }

    /// The first event that was recorded after the slot's copy, and what it covers.
    fn event_after(&self, slot: usize) -> Option<(EventId, u64)> {
        let after = self.events.iter().filter(|(_, covers)| *covers >= self.uses[slot]);
        after.min_by_key(|(_, covers)| *covers).copied()
    }

    /// Starts a copy from or to slots side by side, in the order of `queue`, for which the staging was taken. `last`: no
    /// more follow soon.
    pub fn start(
        &mut self,
        api: Api,
        (slots, last): (Range<usize>, bool),
        (to, from, bytes): (DevicePtr, DevicePtr, usize),
        queue: Queue,
    ) -> Result<(), CudaError> {
        let stream = queue.stream;
        calls::cuMemcpyAsync(&mut api.in_context()?.posted(), to, from, bytes as u64, stream)?;
        self.started += 1;
        let Some(slot) = slots.clone().last() else { return Ok(()) };
        self.uses[slots.clone()].fill(self.started);
        self.last = Some((queue, slot));
        let group = self.size.group();
        if last || (slot + 1) / group > slots.start / group {
            let (event, covers) = &mut self.events[slot / group];
            calls::cuEventRecordWithFlags(&mut api.in_context()?.posted(), *event, stream, 0)?;
            *covers = self.started;
        }
        Ok(())
    }

    /// Waits until the GPU is done with the slot, and so with what was started before.
    ///
    /// Errors: also those of the copies that were started, and of what the device did before.
    pub fn settle(&mut self, api: Api, slot: usize) -> Result<(), CudaError> {
        if self.is_pending(slot) {
            let (event, covers) = self.event_after(slot).ok_or(CudaError::NOT_READY)?;
            calls::cuEventSynchronize(&mut api.in_context()?, event)?;
            self.settled(covers);
        }
        Ok(())
    }

    /// The GPU is done with the copies up to that number.
    fn settled(&mut self, number: u64) {
        self.done = self.done.max(number);
        if self.done == self.started {
            self.last = None;
        }
    }

    /// Whether a copy in `queue` waits for none in another queue.
    fn serves(&self, queue: Queue) -> bool {
        self.last.is_none_or(|(other, _)| other == queue)
    }

    /// Whether the GPU is done with all slots.
    fn is_done(&mut self, api: Api) -> bool {
        let Some((_, slot)) = self.last else { return true };
        let Some((event, covers)) = self.event_after(slot) else { return false };
        let done = covers == self.started
            && api.in_context().and_then(|mut call| calls::cuEventQuery(&mut call, event)).is_ok();
        if done {
            self.settled(covers);
        }
        done
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Some(driver) = Driver::get() else { return };
        for (event, _) in self.events.drain(..) {
            // It ended with its context, or the session is lost.
            let _ = calls::cuEventDestroy_v2(&mut driver.session.call(), event);
        }
        // The worker ends the registration after the GPU's work on the pages.
        driver.unpin(&self.attached.pinned);
        driver.session.transport().unmap(self.pages());
        driver.memory.window.give_back(self.host, self.pages().bytes as u64);
    }
}

/// The stagings of a process that are not in use, and how many there are.
#[derive(Debug, Default)]
pub struct Stagings(Mutex<HashMap<(u64, Size), Pool>>);

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Staging>,
    made: usize,
    /// There was no memory for one.
    refused: bool,
}

impl Stagings {
    fn pools(&self) -> MutexGuard<'_, HashMap<(u64, Size), Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A staging of the current context for a copy in `queue`. `None`: all are in use, also by copies of other queues
    /// that are under way, or there is no memory for one.
    pub fn take(&self, api: Api, size: Size, queue: Queue) -> Option<Staging> {
        let key = (api.context().ok()?.0, size);
        let mut others = {
            let mut pools = self.pools();
            let idle = &mut pools.entry(key).or_default().idle;
            if let Some(at) = idle.iter().rposition(|staging| staging.serves(queue)) {
                return Some(idle.swap_remove(at));
            }
            mem::take(idle)
        };
        let done = others.iter_mut().position(|staging| staging.is_done(api));
        let done = done.map(|at| others.swap_remove(at));
        others.into_iter().for_each(|staging| self.give_back(staging));
        if done.is_some() {
            return done;
        }
        let mut pools = self.pools();
        let pool = pools.entry(key).or_default();
        if pool.refused || pool.made >= size.most() {
            return None;
        }
        pool.made += 1;
        drop(pools);
        let made = Staging::new(api, size);
        if let Err(error) = &made {
            log::debug!("No staging: {error}");
            let mut pools = self.pools();
            let pool = pools.entry(key).or_default();
            pool.made = pool.made.saturating_sub(1);
            pool.refused = true;
        }
        made.ok()
    }

    /// Gives a staging back.
    pub fn give_back(&self, staging: Staging) {
        let mut pools = self.pools();
        match pools.get_mut(&(staging.context, staging.size)) {
            Some(pool) => pool.idle.push(staging),
            // The context is gone. Unpinned without the lock.
            None => drop(pools),
        }
    }

    /// Gives a staging up, after an error: what is under way in it is not known.
    pub fn give_up(&self, api: Api, staging: Staging) {
        if let Ok(mut call) = api.in_context() {
            // Whatever it says, nothing is under way afterwards, or the context is broken.
            let _ = calls::cuCtxSynchronize(&mut call);
        }
        if let Some(pool) = self.pools().get_mut(&(staging.context, staging.size)) {
            pool.made = pool.made.saturating_sub(1);
        }
        drop(staging);
    }

    /// Forgets what a context that is gone had.
    pub fn forget_context(&self, context: u64) {
        let mut pools = self.pools();
        let gone: Vec<Pool> = [Size::Small, Size::Large, Size::Long]
            .iter()
            .filter_map(|&size| pools.remove(&(context, size)))
            .collect();
        drop(pools);
        drop(gone);
    }
}
