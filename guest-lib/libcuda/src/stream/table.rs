// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The streams and events that the program made, and what about them never changes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use virtio_cuda_client::CudaError;

use crate::stream::reached::Reached;

/// A stream that the program made.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The context that it belongs to.
    pub context: u64,
    /// Its flags.
    pub flags: u32,
}

/// Events whose completion is remembered: those that only this process records, and only by calls.
#[derive(Debug, Default)]
pub struct Events(RwLock<HashMap<u64, Arc<Reached>>>);

impl Events {
    /// Notes an event that now exists.
    pub fn add(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::default());
    }

    /// Forgets an event.
    pub fn remove(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Work was queued that may record any of them.
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
    /// Notes a stream that now exists.
    pub fn add(&self, handle: u64, stream: Stream) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, stream);
    }

    /// Forgets a stream.
    pub fn remove(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Forgets the streams of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|_, stream| stream.context != context);
    }

    /// A stream that the program made.
    pub fn get(&self, handle: u64) -> Result<Stream, CudaError> {
        let streams = self.0.read().unwrap_or_else(PoisonError::into_inner);
        streams.get(&handle).copied().ok_or(CudaError::INVALID_HANDLE)
    }
}
