// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Runs copies of contiguous memory: checks the ends, plans the copy, executes the plan, and records the work.

use virtio_cuda_client::protocol::{Box3, DevicePtr, StreamId};
use virtio_cuda_client::{CudaError, idle};

use crate::entry::Api;
use crate::graph::copy_params::NodeEnd;
use crate::memory::copy::plan::{Facts, LinearCopy, Plan, Timing, plan};
use crate::memory::copy::transfer::Transfer;
use crate::memory::copy::{address, between, cached, pages, program, staged};
use crate::memory::moving::Uses;
use crate::memory::place::Place;
use crate::trace;

impl Facts for Api {
    fn may_post(&self, stream: StreamId) -> bool {
        Self::may_post(self, stream.0)
    }

    fn owns(&self, address: DevicePtr, bytes: usize) -> bool {
        Self::owns(self, address.0, bytes as u64)
    }

    fn shows_work(&self) -> bool {
        self.driver.memory.shows_work()
    }

    fn delays_copies(&self) -> bool {
        !idle::is_default_stream_idle()
    }

    fn is_broken(&self) -> bool {
        Self::is_broken(self)
    }

    fn can_keep(&self, transfer: Transfer) -> bool {
        // Registering pages during a capture in global mode is refused, and ends the capture.
        !self.driver.captures.any() && cached::can_keep(*self, transfer.host())
    }

    fn threads(&self) -> [usize; 2] {
        staged::threads()
    }

    fn is_mapped(&self, transfer: Transfer) -> bool {
        staged::is_mapped(transfer)
    }

    fn prefers_staged(&self, bytes: usize) -> bool {
        self.driver.memory.speeds.prefers_staged(bytes)
    }
}

impl Api {
    /// Returns the stream of a copy.
    pub fn stream_of(&self, timing: Timing) -> StreamId {
        match timing {
            Timing::Wait | Timing::Between(_) => self.default_stream(),
            Timing::Stream(stream) => stream,
        }
    }

    /// Copies `bytes` bytes.
    pub fn copy(&self, dst: Place, src: Place, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        self.context()?;
        if bytes == 0 {
            return Ok(());
        }
        dst.check(bytes as u64)?;
        src.check(bytes as u64)?;
        trace::copies_pageable(src.is_pageable(), dst.is_pageable());
        let (mut dst, mut src, mut bytes) = (dst, src, bytes);
        // The driver copies within one registration only.
        while let Some(first) = self.before_seam([dst, src], bytes)? {
            self.copy_part(dst, src, first, timing)?;
            (dst, src) = (dst.at(first as u64), src.at(first as u64));
            bytes -= first;
        }
        self.copy_part(dst, src, bytes, timing)
    }

    /// Returns the bytes before the first boundary between mappings of host memory at either end.
    fn before_seam(&self, ends: [Place; 2], bytes: usize) -> Result<Option<usize>, CudaError> {
        let mut first = None;
        for end in ends {
            if let Place::Pinned { host, .. } = end
                && let Some(here) = self.driver.memory.ranges.before_seam(host, bytes as u64)?
            {
                first = Some(first.map_or(here as usize, |first: usize| first.min(here as usize)));
            }
        }
        Ok(first)
    }

    /// Copies validated memory without such boundaries.
    fn copy_part(&self, dst: Place, src: Place, bytes: usize, timing: Timing) -> Result<(), CudaError> {
        if let (Timing::Stream(stream), true) = (timing, dst.device().and(src.device()).is_none())
            && self.captures(stream)
        {
            let size = Box3 { width: bytes as u64, height: 1, depth: 1 };
            return self.capture_copy(NodeEnd::row(dst, size), NodeEnd::row(src, size), size, stream);
        }
        let uses = [dst, src].map(|place| (place.device().unwrap_or(0), bytes as u64));
        let _sent = self.before_work(Uses::Memory(uses), self.stream_of(timing))?;
        match timing {
            Timing::Between(contexts) => between::run(*self, dst, src, bytes, contexts)?,
            _ => {
                // For the legacy default stream the device does so (`memcpy_wait`).
                if !timing.waits() || self.default_stream() != StreamId::default() {
                    self.wait_for_source(src, bytes as u64, timing)?;
                }
                self.copy_at_once(dst, src, bytes, timing)?;
            }
        }
        let moves = || dst.device().is_some_and(|device| self.driver.memory.moving.at(device).is_some());
        let to_host = dst.host().is_some();
        // A copy to host memory that waits is done.
        if to_host && !timing.waits() || moves() {
            self.work_queued()
        } else {
            self.device_work_queued()
        }
        match timing {
            Timing::Wait => self.end_synchronous(to_host),
            Timing::Between(contexts) => {
                if self.variables_are_stale() {
                    between::wait(*self, contexts)?;
                }
                self.synchronized();
                Ok(())
            }
            Timing::Stream(stream) => self.end_asynchronous(stream),
        }
    }

    /// Copies in one step. Managed memory has been sent before.
    pub fn copy_at_once(
        &self,
        dst: Place,
        src: Place,
        bytes: usize,
        timing: Timing,
    ) -> Result<(), CudaError> {
        let (stream, waits) = (self.stream_of(timing), timing.waits());
        let copy = LinearCopy { dst, src, bytes, stream, waits };
        let first = plan(&copy, None, self);
        if carry_out(*self, &copy, &first)? { Ok(()) } else { carry_out_next(*self, &copy, first) }
    }
}

/// Tries the plans that follow a refused one.
#[cold]
fn carry_out_next(api: Api, copy: &LinearCopy, mut refused: Plan) -> Result<(), CudaError> {
    loop {
        let next = plan(copy, Some(&refused), &api);
        if carry_out(api, copy, &next)? {
            return Ok(());
        }
        refused = next;
    }
}

/// Executes a plan. Returns false without an effect if another plan is needed.
#[inline(always)]
fn carry_out(api: Api, copy: &LinearCopy, plan: &Plan) -> Result<bool, CudaError> {
    match *plan {
        Plan::DeviceToDevice { dst, src, posted } => address::device_to_device(api, copy, dst, src, posted)?,
        Plan::Address { dst, src, posted } => address::run(api, copy, dst, src, posted)?,
        Plan::AddressAndWait { dst, src } => address::run_and_wait(api, copy, dst, src)?,
        Plan::Program { dst, src } => program::run(api, copy, dst, src)?,
        Plan::Inline { transfer, posted } => {
            api.check_pinned(copy.src, copy.bytes as u64)?;
            pages::run(api, copy, transfer, posted)?;
        }
        Plan::Cached(transfer) => return cached::run(api, copy, transfer),
        Plan::Staged { transfer, division } => return staged::run(api, copy, transfer, division),
        Plan::Pages(transfer) => {
            let speeds = &api.driver.memory.speeds;
            speeds.measure_pages(copy.bytes, || pages::run(api, copy, transfer, false))?;
        }
    }
    Ok(true)
}
