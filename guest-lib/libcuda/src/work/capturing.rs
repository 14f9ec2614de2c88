// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Finds out whether a stream captures work, and makes calls of this library in a way that ends no capture of the program.

use virtio_cuda_client::protocol::StreamId;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: i32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: i32 = 2;

impl Api {
    /// Returns whether work for the stream would be captured.
    pub fn captures(&self, stream: StreamId) -> bool {
        // If the device refuses the query, it also refuses the work, and returns the error then.
        let api = self.internal();
        let ask =
            || Ok::<_, CudaError>(calls::cuStreamIsCapturing(&mut api.in_context()?, stream)? == ACTIVE);
        self.driver.captures.any() && ask().unwrap_or(false)
    }

    /// Runs `body` with the calling thread's capture mode relaxed, if there are captures: calls that this library
    /// itself makes must not invalidate them.
    pub fn with_capture_relaxed<T>(
        &self,
        body: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        if !self.driver.captures.any() {
            return body();
        }
        let api = self.internal();
        let old = calls::cuThreadExchangeStreamCaptureMode(&mut api.call(), RELAXED)?;
        let result = body();
        calls::cuThreadExchangeStreamCaptureMode(&mut api.call(), old)?;
        result
    }
}
