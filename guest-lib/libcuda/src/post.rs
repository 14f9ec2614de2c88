// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that may be sent without waiting for the answer.
//!
//! CUDA lets a call that only queues work return before the work is done; its own errors, though, it returns at
//! once. So a call is posted only when it cannot fail for a reason that the program can cause: its objects are
//! known here, its addresses lie in memory that is known here, a kernel was launched in that shape before. Every
//! other call waits, and answers what the device answers. What then still fails in the device (its memory runs
//! out, the context breaks) is told by the next call that waits, as CUDA's asynchronous errors are.

use std::sync::atomic::Ordering;

use virtio_cuda_client::protocol::StreamId;
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::memory::table::ranges::DeviceRange;

/// Handles up to this one are CUDA's own default streams.
const LAST_DEFAULT_STREAM: u64 = 2;
impl Api {
    /// Returns whether work for the stream that the program calls `stream` may be posted: it is known and of the current
    /// context, nothing captures, and no variable has to be carried to and fro around the work.
    pub fn may_post(&self, stream: u64) -> bool {
        let context = self.current();
        let known = stream <= LAST_DEFAULT_STREAM
            || self.driver.streams.get(stream).is_ok_and(|stream| stream.context == context);
        let plain = !self.driver.memory.shadows.any.load(Ordering::Acquire) && !self.driver.captures.any();
        known && context != 0 && plain
    }

    /// To be called at the end of a call that has queued a launch, a copy or a fill in `stream`. With
    /// `CUDA_LAUNCH_BLOCKING=1` it waits for the work, whose errors are then this call's.
    pub fn end_asynchronous(&self, stream: StreamId) -> Result<(), CudaError> {
        if self.driver.environment.launch_blocking && !self.captures(stream) {
            self.wait_for_stream(stream)?;
            self.synchronized();
        }
        Ok(())
    }

    /// Waits for the work of the context of `call`, unless a stream captures, which the wait would end. Returns whether it has
    /// waited.
    ///
    /// Errors: those of the work.
    pub fn wait_unless_capturing(&self, call: &mut Call<'_>) -> Result<bool, CudaError> {
        if self.driver.captures.any() {
            return Ok(false);
        }
        match calls::wait_unless_capturing(call) {
            // A capture has begun meanwhile.
            Err(CudaError::STREAM_CAPTURE_UNSUPPORTED) => Ok(false),
            waited => waited.map(|()| true),
        }
    }

    /// Returns whether nothing is there to be waited for.
    pub fn is_idle(&self) -> bool {
        self.driver.session.is_idle() && !self.driver.captures.any()
    }

    /// Returns whether `bytes` bytes from `address` on, as the GPU has them, are memory of the program's for certain.
    pub fn owns(&self, address: u64, bytes: u64) -> bool {
        let ranges = &self.driver.memory.ranges;
        let device = |range: DeviceRange| range.reachable && bytes <= range.bytes - (address - range.start);
        ranges.device(address).is_some_and(device)
            || ranges.host_of(address, bytes).is_some_and(|range| range.device_address == range.start)
    }
}
