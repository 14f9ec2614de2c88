// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of managed memory that this library itself starts, between the program's side and the GPU's. They use a
//! stream that waits for no other work, and that ends no capture of any thread.

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::StreamId;

use crate::entry::Api;
use crate::state::contexts::{pop, push};
use crate::state::streams::Stream;
use crate::work::make::NON_BLOCKING;

impl Api {
    /// Runs `body` with the copy stream of a context, which is current meanwhile.
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
