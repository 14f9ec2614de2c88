// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The calls that marks make.

use std::sync::atomic::AtomicBool;

use virtio_cuda_client::protocol::{ContextId, EventId, StreamId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::handles::{DISABLE_TIMING, Kind, new_handle};
use crate::state::local_pools::mark::Mark;
use crate::state::local_pools::space::StreamKey;

impl Mark {
    /// Marks the current position of `stream`.
    pub fn record(api: Api, stream: StreamKey) -> Result<Self, CudaError> {
        let event = EventId(new_handle(Kind::Event));
        let post = stream.context == api.current() && api.may_post(stream.stream);
        let begin = || {
            let call = api.call_in(ContextId(stream.context));
            if post { call.posted() } else { call }
        };
        api.with_capture_relaxed(|| {
            calls::cuEventCreate(&mut begin(), event, DISABLE_TIMING)?;
            let (session, ended) = (api.driver.session, AtomicBool::new(false));
            let mark = Self { session, event, context: stream.context, ended };
            calls::cuEventRecordWithFlags(&mut begin(), event, StreamId(stream.stream), 0)?;
            Ok(mark)
        })
    }

    /// Returns whether the stream has reached the mark.
    pub fn is_passed(&self, api: Api) -> bool {
        if api.driver.contexts.is_destroyed(self.context) {
            return true;
        }
        let call = &mut api.internal().call_in(ContextId(self.context));
        api.with_capture_relaxed(|| calls::cuEventQuery(call, self.event)).is_ok()
    }

    /// Makes later work of `stream` wait until the marked stream has reached the mark.
    pub fn hold_back(&self, api: Api, stream: StreamKey) -> Result<(), CudaError> {
        if api.driver.contexts.is_destroyed(self.context) {
            return Ok(());
        }
        let call = &mut api.internal().call_in(ContextId(stream.context));
        calls::cuStreamWaitEvent(call, StreamId(stream.stream), self.event, 0)
    }
}
