// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies that this library makes on its own account: of managed memory, between the program's side and the GPU's. They go
//! through a stream that waits for no other work, and ends no capture of any thread.

use virtio_cuda_client::protocol::{ContextId, StreamId};
use virtio_cuda_client::touched::NON_BLOCKING_STREAM;
use virtio_cuda_client::{CudaError, calls};

use crate::context::table::{pop, push};
use crate::entry::Api;
use crate::handles::mint;
use crate::stream::table::Stream;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

impl Api {
    /// Runs `body` with the stream of a context for such copies. The context is the current one meanwhile.
    ///
    /// Errors: those of `body`, and of the creation of the stream.
    pub fn with_copy_stream(
        &self,
        context: u64,
        body: impl FnOnce(StreamId) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        push(context);
        let copied = self.with_capture_relaxed(|| {
            let streams = &self.driver.memory.copy_streams;
            body(streams.of(context, || self.make_copy_stream(context))?)
        });
        pop();
        copied
    }

    fn make_copy_stream(&self, context: u64) -> Result<StreamId, CudaError> {
        let stream = StreamId(mint() | NON_BLOCKING_STREAM);
        let mut call = self.driver.session.call().context(ContextId(context));
        calls::cuStreamCreateWithPriority(&mut call, stream, NON_BLOCKING, 0)?;
        self.driver.streams.add(stream.0, Stream { context, flags: NON_BLOCKING });
        Ok(stream)
    }
}
