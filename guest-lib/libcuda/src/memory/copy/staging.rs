// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Pinned memory of this library, through which pageable buffers are copied.

use std::mem;
use std::ops::Range;

use virtio_cuda_client::protocol::{DevicePtr, EventId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::handles::{DISABLE_TIMING, Kind, new_handle};
use crate::memory::attach::attach;
use crate::state::memory::staging::{Queue, Size, Staging, Stagings};

/// `CU_MEMHOSTREGISTER_PORTABLE`, `CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// A copy by the GPU.
pub struct Piece {
    /// Destination.
    pub dst: DevicePtr,
    /// Source.
    pub src: DevicePtr,
    /// Length in bytes.
    pub bytes: usize,
}

impl Staging {
    fn new(api: Api, size: Size) -> Result<Self, CudaError> {
        // If there is no buffer, the copy is done in another way.
        let api = api.internal();
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
            let event = EventId(new_handle(Kind::Event));
            calls::cuEventCreate(&mut api.in_context()?, event, DISABLE_TIMING)?;
            staging.events.push((event, 0));
        }
        log::debug!("Staging of {bytes} bytes at {host:#x}");
        Ok(staging)
    }

    /// Starts a copy of the program from or to adjacent slots, in the order of the `queue` for which the staging buffer was taken.
    /// `last` is set if no copies follow soon.
    pub fn start(
        &mut self,
        api: Api,
        slots: Range<usize>,
        last: bool,
        piece: Piece,
        queue: Queue,
    ) -> Result<(), CudaError> {
        let Piece { dst, src, bytes } = piece;
        let stream = queue.stream;
        calls::cuMemcpyAsync(&mut api.in_context()?.posted(), dst, src, bytes as u64, stream)?;
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

    /// Waits until the GPU is done with the slot, and with all copies that were started before.
    ///
    /// Errors: also those of the copies that were started, and of earlier work of the device.
    pub fn settle(&mut self, api: Api, slot: usize) -> Result<(), CudaError> {
        if self.is_pending(slot) {
            let (event, covers) = self.event_after(slot).ok_or(CudaError::NOT_READY)?;
            calls::cuEventSynchronize(&mut api.in_context()?, event)?;
            self.settled(covers);
        }
        Ok(())
    }

    /// Returns whether the GPU is done with all slots.
    fn is_done(&mut self, api: Api) -> bool {
        let Some((_, slot)) = self.last else { return true };
        let Some((event, covers)) = self.event_after(slot) else { return false };
        let done = covers == self.started
            && api.internal().in_context().and_then(|mut call| calls::cuEventQuery(&mut call, event)).is_ok();
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
            // The event ended with its context, or the session is lost.
            let _ = calls::cuEventDestroy_v2(&mut Call::internal(driver.session), event);
        }
        // The worker ends the registration after the GPU's work on the pages.
        driver.unpin(&self.attached.pinned);
        driver.session.transport().unmap(self.pages());
        driver.memory.window.give_back(self.host, self.pages().bytes as u64);
    }
}

impl Stagings {
    /// Takes a staging buffer of the current context for a copy in `queue`. `None`: all are in use, including those
    /// with outstanding copies of other queues, or there is no memory for a new one.
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

    /// Gives a staging buffer up after an error: the state of its outstanding copies is unknown.
    pub fn give_up(&self, api: Api, staging: Staging) {
        // Unless the wait is refused, no copy is outstanding afterwards, or the context is broken.
        let waited = api.internal().in_context().and_then(|mut call| api.wait_unless_capturing(&mut call));
        let mut pools = self.pools();
        if let Some(pool) = pools.get_mut(&(staging.context, staging.size)) {
            if waited == Ok(false) {
                pool.given_up.push(staging);
                return;
            }
            pool.made = pool.made.saturating_sub(1);
        }
        // Buffers are unpinned without the lock.
        drop(pools);
        drop(staging);
    }
}
