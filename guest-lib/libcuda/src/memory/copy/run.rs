// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Runs copies of contiguous memory: checks the ends, plans the copy, executes the plan, and records the work.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{Box3, StreamId};

use crate::entry::Api;
use crate::memory::copy::between;
use crate::memory::copy::plan::Timing;
use crate::memory::nodes::copy::NodeEnd;
use crate::memory::place::Place;
use crate::state::moving::Uses;
use crate::trace;

impl Api {
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
}
