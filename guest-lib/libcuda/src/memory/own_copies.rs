// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies that this library makes on its own account: of managed memory, between the program's side and the GPU's. They go
//! through a stream that waits for no other work, and ends no capture of any thread.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::StreamId;

use crate::context::table::{pop, push};
use crate::entry::Api;
use crate::stream::make::NON_BLOCKING;
use crate::stream::table::Stream;

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
            let own = Stream { context, flags: NON_BLOCKING };
            body(streams.of(context, || self.make_stream(own, 0, false))?)
        });
        pop();
        copied
    }
}
