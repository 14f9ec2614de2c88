// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that the worker itself records before and after work. They are in the stream of the work, so that streams do not
//! wait for each other because of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use log::debug;
use parking_lot::Mutex;
use virtio_cuda_protocol::cuda::StreamId;

use crate::gpu::{CAPTURE_RELAXED, CUcontext, CUevent, CUstream, CuResult, CudaError, Driver, while_current};
use crate::objects::Object;

/// The maximum number of events that a context keeps for the next pieces of work.
const MAX_SPARE: usize = 1024;
/// The maximum number of remembered contexts.
const MAX_CONTEXTS: usize = 64;
/// The per-thread default stream.
const STREAM_PER_THREAD: usize = 2;

/// The place of a call's work.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In this stream.
    Stream(StreamId),
    /// In a stream that the call itself finds (`ThreadState::library_stream`).
    Unknown,
}

/// A stream: the driver's handle, and for the per-thread default stream the thread.
pub type Stream = (usize, u64);

/// Returns the key of a stream.
pub fn key(stream: CUstream) -> Stream {
    thread_local!(static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    });
    let raw = stream as usize;
    (raw, if raw == STREAM_PER_THREAD { THREAD.with(|thread| *thread) } else { 0 })
}

/// Lets the calling thread look at events without breaking a capture of another thread.
pub fn may_look_while_others_capture(gpu: &Driver) {
    if let Err(error) = gpu.exchange_capture_mode(CAPTURE_RELAXED) {
        debug!("no relaxed capture mode: {error}");
    }
}

/// The events of all contexts.
#[derive(Debug)]
pub struct Marks {
    /// Flags of `cuEventCreate`.
    flags: u32,
    /// The events by the address of the context.
    contexts: Mutex<HashMap<usize, Arc<Events>>>,
}

impl Marks {
    /// Creates events with these flags of `cuEventCreate`.
    pub fn new(flags: u32) -> Self {
        Self { flags, contexts: Mutex::default() }
    }

    /// The events of a context.
    pub fn of(&self, context: &Arc<Object>) -> Arc<Events> {
        let mut contexts = self.contexts.lock();
        let at = Arc::as_ptr(context) as usize;
        if let Some(events) = contexts.get(&at).filter(|events| !events.is_over()) {
            return events.clone();
        }
        if contexts.len() >= MAX_CONTEXTS {
            contexts.retain(|_, events| !events.is_over());
        }
        // The weak reference keeps the address from being used again.
        let context = Arc::downgrade(context);
        let events = Arc::new(Events { context, flags: self.flags, spare: Mutex::default() });
        contexts.insert(at, events.clone());
        events
    }
}

/// The events of one context. They end with it.
#[derive(Debug)]
pub struct Events {
    /// The context, which this does not keep.
    context: Weak<Object>,
    flags: u32,
    spare: Mutex<Vec<usize>>,
}

/// An event that was recorded, or is about to be. Dropping it keeps it for later.
#[derive(Debug)]
pub struct Mark {
    raw: usize,
    events: Arc<Events>,
}

impl Events {
    /// Returns whether the context has ended.
    pub fn is_over(&self) -> bool {
        self.context.strong_count() == 0
    }

    /// Records an event; the context has to be current. Returns `None` if the driver refuses, as in a stream of another context.
    pub fn record(self: &Arc<Self>, gpu: &Driver, stream: CUstream) -> Option<Mark> {
        let mark = self.mark(gpu).ok()?;
        gpu.cuEventRecordWithFlags(mark.raw(), stream, 0).ok()?;
        Some(mark)
    }

    fn mark(self: &Arc<Self>, gpu: &Driver) -> CuResult<Mark> {
        let spare = self.spare.lock().pop();
        let raw = match spare {
            Some(raw) => raw,
            None => gpu.cuEventCreate(self.flags)?.0 as usize,
        };
        Ok(Mark { raw, events: self.clone() })
    }
}

impl Mark {
    /// Returns the driver's event, which is valid while the context lives.
    fn raw(&self) -> CUevent {
        self.raw as CUevent
    }

    /// A mark of a context that has ended.
    #[cfg(test)]
    pub fn of_nothing() -> Self {
        Self { raw: 0, events: Arc::new(Events { context: Weak::new(), flags: 0, spare: Mutex::default() }) }
    }

    /// The events that it belongs to.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Returns whether all work before it has completed.
    pub fn is_done(&self, gpu: &Driver) -> bool {
        self.completion(gpu, None).is_some()
    }

    /// Returns `None` until all work before it has completed; then its GPU time since `begin` in nanoseconds, if events show
    /// it. After an error, and after the context's end, nothing runs any more.
    pub fn completion(&self, gpu: &Driver, begin: Option<&Self>) -> Option<Option<u64>> {
        let Some(context) = self.events.context.upgrade() else { return Some(None) };
        let raw: *mut u8 = context.raw();
        let mut took = None;
        let outcome = while_current(gpu, raw as CUcontext, || {
            gpu.cuEventQuery(self.raw())?;
            if let Some(begin) = begin
                && let Ok((milliseconds,)) = gpu.cuEventElapsedTime_v2(begin.raw(), self.raw())
            {
                took = Some((f64::from(milliseconds.max(0.0)) * 1e6) as u64);
            }
            Ok(())
        });
        (outcome != Err(CudaError::NOT_READY)).then_some(took)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut spare = self.events.spare.lock();
        // More than that end with their context.
        if spare.len() < MAX_SPARE {
            spare.push(self.raw);
        }
    }
}
