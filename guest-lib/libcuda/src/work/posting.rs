// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Calls that may be sent without waiting for the reply.
//!
//! CUDA lets a call that only queues work return before the work is done, but its own errors are returned at once. A
//! call is therefore posted only if the program cannot cause it to fail: its objects are known here, its addresses lie
//! in memory that is known here, and a kernel was launched in the same shape before. Every other call waits, and
//! returns the device's result. If a posted call fails nevertheless (the device's memory runs out, the context breaks),
//! the next call that waits returns the error, like CUDA's asynchronous errors.

use std::sync::atomic::Ordering;

use virtio_cuda_client::protocol::{ContextId, StreamId};
use virtio_cuda_client::{Call, CudaError, calls, order};

use crate::entry::Api;
use crate::state::contexts::current;
use crate::state::memory::ranges::DeviceRange;
use crate::state::streams::Event;

/// Handles up to this one are CUDA's default streams.
const LAST_DEFAULT_STREAM: u64 = 2;

impl Api {
    /// Returns whether work for the program's stream `stream` may be posted. The stream must be known and belong to the
    /// current context, no stream may capture, and no variable may need to be copied before or after the work.
    pub fn may_post(&self, stream: u64) -> bool {
        !self.driver.captures.any() && self.may_post_captured(stream)
    }

    /// Like [`Self::may_post`], for work that a capture of the calling thread accepts.
    pub fn may_post_captured(&self, stream: u64) -> bool {
        let context = self.current();
        let known = stream <= LAST_DEFAULT_STREAM
            || self.driver.streams.get(stream).is_ok_and(|stream| stream.context == context);
        known && context != 0 && !self.has_shadows()
    }

    /// Like [`Self::may_post`], for a call on graphs.
    pub fn may_post_graph(&self) -> bool {
        self.may_post_in(self.current())
    }

    /// Like [`Self::may_post`], for work on an event.
    pub fn may_post_event(&self, event: &Event) -> bool {
        let context = self.current();
        event.context == context && self.may_post_in(context)
    }

    fn may_post_in(&self, context: u64) -> bool {
        context != 0 && !self.has_shadows() && !self.driver.captures.any()
    }

    /// Returns whether variables may need to be copied before or after work.
    fn has_shadows(&self) -> bool {
        self.driver.memory.shadows.any.load(Ordering::Acquire)
    }

    /// Waits for the work of the context of `call`, unless a stream captures, because the wait would end the capture.
    /// Returns whether it has waited.
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

    /// Returns whether there is no work to wait for, and no error to report.
    pub fn is_idle(&self) -> bool {
        order::is_idle(self.driver.session) && !self.driver.captures.any() && !self.is_broken()
    }

    /// As [`Self::is_idle`], for one stream of the program, which belongs to `context`.
    pub fn is_stream_idle(&self, context: u64, stream: StreamId) -> bool {
        let session = self.driver.session;
        (order::is_idle(session) || order::is_stream_idle(session, ContextId(context), stream))
            && !self.driver.captures.any()
            && !self.is_broken()
    }

    /// Returns whether calls in the current context may have to fail.
    pub fn is_broken(&self) -> bool {
        self.driver.contexts.may_fail(current())
    }

    /// Returns whether `bytes` bytes from the GPU's `address` on certainly belong to the program.
    pub fn owns(&self, address: u64, bytes: u64) -> bool {
        let ranges = &self.driver.memory.ranges;
        let device = |range: DeviceRange| range.reachable && bytes <= range.bytes - (address - range.start);
        ranges.device(address).is_some_and(device)
            || ranges.host_of(address, bytes).is_some_and(|range| range.device_address == range.start)
    }
}
