// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Creation of streams, for the program and for this library.

use virtio_cuda_client::protocol::{ContextId, StreamId};
use virtio_cuda_client::touched::NON_BLOCKING_STREAM;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::handles::{Kind, new_handle};
use crate::state::streams::Stream;

/// `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: u32 = 1;

impl Api {
    /// Creates a stream with these properties. With `posted` the call does not wait.
    ///
    /// Errors: the device's, unless the call is posted.
    pub fn make_stream(&self, stream: Stream, priority: i32, posted: bool) -> Result<StreamId, CudaError> {
        let kind = if stream.flags & NON_BLOCKING == 0 { 0 } else { NON_BLOCKING_STREAM };
        let handle = new_handle(Kind::Stream) | kind;
        let mut call = self.call_in(ContextId(stream.context)).posted_if(posted);
        calls::cuStreamCreateWithPriority(&mut call, StreamId(handle), stream.flags, priority)?;
        self.driver.streams.add(handle, stream);
        Ok(StreamId(handle))
    }
}
