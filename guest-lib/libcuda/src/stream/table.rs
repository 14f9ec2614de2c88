// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's streams and events, and their constant properties.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use virtio_cuda_client::CudaError;

use crate::stream::reached::Reached;

/// A stream that the program created.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The context of the stream.
    pub context: u64,
    /// Flags of the stream.
    pub flags: u32,
}

/// Events whose completion is cached: those that only this process records, and only by calls.
#[derive(Debug, Default)]
pub struct Events(RwLock<HashMap<u64, Arc<Reached>>>);

impl Events {
    /// Adds a new event.
    pub fn add(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::default());
    }

    /// Removes an event.
    pub fn remove(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Invalidates all events: work was queued that may record any of them.
    pub fn all_recorded(&self) {
        for event in self.0.read().unwrap_or_else(PoisonError::into_inner).values() {
            event.recorded();
        }
    }

    /// Returns the state of an event.
    pub fn get(&self, handle: u64) -> Option<Arc<Reached>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }
}

/// The program's streams, and its events (which have no flags here), by handle.
#[derive(Debug, Default)]
pub struct Streams(RwLock<HashMap<u64, Stream>>);

impl Streams {
    /// Adds a new stream.
    pub fn add(&self, handle: u64, stream: Stream) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, stream);
    }

    /// Removes a stream.
    pub fn remove(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Removes the streams of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|_, stream| stream.context != context);
    }

    /// Returns a stream that the program created.
    pub fn get(&self, handle: u64) -> Result<Stream, CudaError> {
        let streams = self.0.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&handle).copied().ok_or(CudaError::INVALID_HANDLE)
    }
}
