// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's streams and events, and their constant properties.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{HANDLE_STEP, StreamId};

use crate::handles::{Kind, refusal};
use crate::state::reached::{AnyRecords, Reached};

/// A stream that the program created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The context of the stream.
    pub context: u64,
    /// Flags of the stream.
    pub flags: u32,
}

/// An event of the program.
#[derive(Debug)]
pub struct Event {
    /// The context of the event.
    pub context: u64,
    /// The state of its latest record. `None`: not only calls of this process record the event.
    pub reached: Option<Reached>,
}

/// The program's events, by handle.
#[derive(Debug, Default)]
pub struct Events {
    all: RwLock<FxHashMap<u64, Arc<Event>>>,
    any_records: AnyRecords,
}

impl Events {
    fn change(&self) -> RwLockWriteGuard<'_, FxHashMap<u64, Arc<Event>>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new event that only calls of this process record.
    pub fn add(&self, handle: u64, context: u64) {
        let reached = Some(Reached::new(Arc::clone(&self.any_records)));
        self.change().insert(handle, Arc::new(Event { context, reached }));
    }

    /// Adds an event that other processes may record.
    pub fn add_shared(&self, handle: u64, context: u64) {
        self.change().insert(handle, Arc::new(Event { context, reached: None }));
    }

    /// Removes an event.
    pub fn remove(&self, handle: u64) {
        self.change().remove(&handle);
    }

    /// Removes the events of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.change().retain(|_, event| event.context != context);
    }

    /// From now on, launches of graphs may record an event.
    pub fn recorded_by_graphs(&self, handle: u64) {
        if let Some(event) = self.change().get_mut(&handle) {
            *event = Arc::new(Event { context: event.context, reached: None });
        }
    }

    /// Invalidates the state of all events: work was queued that may record any of them.
    pub fn all_recorded(&self) {
        self.any_records.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns an event.
    pub fn get(&self, handle: u64) -> Result<Arc<Event>, CudaError> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&handle).cloned().ok_or_else(|| refusal(Kind::Event, handle))
    }
}

/// The number of streams that a thread finds without the table's lock.
const FOUND: usize = 8;

/// A stream that a thread has found.
#[derive(Clone, Copy)]
struct Found {
    /// [`Streams::changes`] at that time; 0: none was found.
    changes: u64,
    handle: u64,
    stream: Stream,
}

thread_local! {
    // Without a destructor: destructors of other variables may make calls.
    static LAST_FOUND: [Cell<Found>; FOUND] = const {
        [const { Cell::new(Found { changes: 0, handle: 0, stream: Stream { context: 0, flags: 0 } }) }; FOUND]
    };
}

/// The program's streams, by handle. A process has one such table: threads remember what they found in it.
#[derive(Debug)]
pub struct Streams {
    all: RwLock<FxHashMap<u64, Stream>>,
    /// The number of changes so far, and 1. It changes while `all` is locked.
    changes: AtomicU64,
    /// The numbers of streams (`cuStreamGetId`), by context and stream. CUDA's default stream has one in each context.
    ids: RwLock<FxHashMap<(u64, StreamId), u64>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { all: RwLock::default(), changes: AtomicU64::new(1), ids: RwLock::default() }
    }
}

impl Streams {
    /// Locks the table for a change.
    fn change(&self) -> RwLockWriteGuard<'_, FxHashMap<u64, Stream>> {
        let all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, Ordering::Release);
        all
    }

    /// Adds a new stream.
    pub fn add(&self, handle: u64, stream: Stream) {
        self.change().insert(handle, stream);
    }

    /// Removes a stream.
    pub fn remove(&self, handle: u64) {
        // Not in the condition, which would keep the lock.
        let removed = self.change().remove(&handle);
        if let Some(stream) = removed {
            self.change_ids().remove(&(stream.context, StreamId(handle)));
        }
    }

    /// Removes the streams of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.change().retain(|_, stream| stream.context != context);
        self.change_ids().retain(|(of, _), _| *of != context);
    }

    /// Returns the number of a stream, if it is known.
    pub fn id(&self, context: u64, stream: StreamId) -> Option<u64> {
        self.ids.read().unwrap_or_else(PoisonError::into_inner).get(&(context, stream)).copied()
    }

    /// Stores the number of a stream. Not for the default stream of a thread: each thread has another one.
    pub fn note_id(&self, context: u64, stream: StreamId, id: u64) {
        self.change_ids().insert((context, stream), id);
    }

    fn change_ids(&self) -> RwLockWriteGuard<'_, FxHashMap<(u64, StreamId), u64>> {
        self.ids.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a stream that the program created.
    pub fn get(&self, handle: u64) -> Result<Stream, CudaError> {
        let changes = self.changes.load(Ordering::Acquire);
        LAST_FOUND.with(|found| {
            let found = &found[(handle / HANDLE_STEP) as usize % FOUND];
            let last = found.get();
            if (last.changes, last.handle) == (changes, handle) {
                return Ok(last.stream);
            }
            let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
            let stream = all.get(&handle).copied().ok_or_else(|| refusal(Kind::Stream, handle))?;
            found.set(Found { changes: self.changes.load(Ordering::Relaxed), handle, stream });
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_as_long_as_their_streams_live() {
        let streams = Streams::default();
        streams.add(16, Stream { context: 1, flags: 0 });
        for (context, stream) in [(1, 0), (2, 0), (1, 16)] {
            streams.note_id(context, StreamId(stream), context * 100 + stream);
        }
        let id = |context, stream| streams.id(context, StreamId(stream));
        assert_eq!((id(1, 0), id(2, 0), id(1, 16), id(2, 16)), (Some(100), Some(200), Some(116), None));
        streams.remove(16);
        assert_eq!((id(1, 0), id(1, 16)), (Some(100), None));
        streams.forget_context(1);
        assert_eq!((id(1, 0), id(2, 0)), (None, Some(200)));
    }

    #[test]
    fn a_thread_forgets_what_another_one_removes() {
        let streams = Streams::default();
        let stream = |context| Stream { context, flags: 0 };
        // Has the same place in what a thread remembers.
        let beside = 16 + HANDLE_STEP * FOUND as u64;
        streams.add(16, stream(1));
        streams.add(beside, stream(2));
        for _ in 0..2 {
            assert_eq!(streams.get(16).map(|stream| stream.context), Ok(1));
            assert_eq!(streams.get(beside).map(|stream| stream.context), Ok(2));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| streams.remove(16));
        });
        assert!(streams.get(16).is_err());
        streams.add(16, stream(3));
        assert_eq!(streams.get(16).map(|stream| stream.context), Ok(3));
        streams.forget_context(3);
        assert!(streams.get(16).is_err());
    }
}
