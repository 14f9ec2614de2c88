// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Waits for the work of a stream.

use virtio_cuda_client::protocol::{EventId, StreamId};
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::handles::{DISABLE_TIMING, Kind, new_handle};

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
}
