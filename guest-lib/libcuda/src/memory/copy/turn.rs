// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Waits of copies for the work before them.

use virtio_cuda_client::protocol::{EventId, MAX_READ_EARLY_BYTES, StreamId};
use virtio_cuda_client::touched::NON_BLOCKING_STREAM;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::handles::{DISABLE_TIMING, Kind, new_handle};
use crate::memory::copy::plan::Timing;
use crate::memory::place::Place;

impl Api {
    /// Waits for the default stream, if a copy of host memory has to follow the GPU's work.
    pub fn wait_for_stream(&self, stream: StreamId) -> Result<(), CudaError> {
        calls::cuStreamSynchronize(&mut self.in_context()?, stream)
    }

    /// Waits until a copy in the order of the stream would begin: for the stream's work, and for that of streams with
    /// which it synchronises implicitly.
    pub fn wait_for_turn(&self, stream: StreamId) -> Result<(), CudaError> {
        let event = EventId(new_handle(Kind::Event));
        self.with_capture_relaxed(|| {
            calls::cuEventCreate(&mut self.in_context()?.posted(), event, DISABLE_TIMING)?;
            let mut call = self.in_context()?.posted_if(self.may_post(stream.0));
            let turn = calls::cuEventRecordWithFlags(&mut call, event, stream, 0)
                .and_then(|()| calls::cuEventSynchronize(&mut self.in_context()?, event));
            let ended = calls::cuEventDestroy_v2(&mut self.in_context()?.unwatched(), event);
            turn.and(ended)
        })
    }

    /// Waits for the turn of a copy whose source the driver could read before the work that writes it is done.
    ///
    /// If nothing is queued in the stream of a short copy from pinned memory to the device, NVIDIA's driver reads the memory
    /// during the call, and does not wait for the streams with which that stream synchronises implicitly. So it is for
    /// programs that call `cuMemcpyAsync` for pinned memory, natively too. It is not so for calls that wait, and not for
    /// managed memory, which is pinned memory here.
    pub fn wait_for_source(&self, src: Place, bytes: u64, timing: Timing) -> Result<(), CudaError> {
        let Place::Pinned { host, .. } = src else { return Ok(()) };
        let stream = self.stream_of(timing);
        let is_managed = || self.driver.memory.ranges.host(host).is_some_and(|range| range.kind.is_managed());
        if bytes <= MAX_READ_EARLY_BYTES
            && stream.0 & NON_BLOCKING_STREAM == 0
            && self.driver.memory.shows_work()
            && (timing.waits() || is_managed())
            && !self.captures(stream)
        {
            return self.wait_for_turn(stream);
        }
        Ok(())
    }
}
