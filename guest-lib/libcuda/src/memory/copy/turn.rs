// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Waits of copies for the work before them.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{MAX_READ_EARLY_BYTES, StreamId};
use virtio_cuda_client::touched::NON_BLOCKING_STREAM;

use crate::entry::Api;
use crate::memory::copy::plan::Timing;
use crate::memory::place::Place;

impl Api {
    /// Returns the stream of a copy.
    pub fn stream_of(&self, timing: Timing) -> StreamId {
        match timing {
            Timing::Wait | Timing::Between(_) => self.default_stream(),
            Timing::Stream(stream) => stream,
        }
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
