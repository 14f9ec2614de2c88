// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The streams for copies that this library itself starts ([`crate::memory::own_copies`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::StreamId;

/// One stream per context that needed it.
#[derive(Debug, Default)]
pub struct CopyStreams(Mutex<HashMap<u64, StreamId>>);

impl CopyStreams {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, StreamId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stream of a context. `make` creates it if there is none.
    ///
    /// Errors: those of `make`.
    pub fn of(
        &self,
        context: u64,
        make: impl FnOnce() -> Result<StreamId, CudaError>,
    ) -> Result<StreamId, CudaError> {
        let mut streams = self.lock();
        if let Some(stream) = streams.get(&context) {
            return Ok(*stream);
        }
        let stream = make()?;
        streams.insert(context, stream);
        Ok(stream)
    }

    /// Removes the stream of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.lock().remove(&context);
    }
}
