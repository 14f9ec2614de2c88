// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events: points in streams that can be waited for and timed.

pub(super) mod api;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use super::context::Context;
use super::handle::{Handle, Registry};
use super::ipc::SharedEvent;
use super::result::{CUresult, CuResult};
use super::stream::queue::Mark;

/// An event's handle.
pub type CUevent = Handle<Event>;

static EVENTS: Registry<Event> = Registry::new();

impl crate::driver::handle::Object for Event {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Event);
}

/// An event of a context.
pub struct Event {
    context: Weak<Context>,
    timing: bool,
    last: Mutex<Last>,
    /// The shared part of an event that other processes may open.
    shared: Option<Arc<SharedEvent>>,
}

/// The latest cuEventRecord.
#[derive(Clone, Default)]
enum Last {
    #[default]
    Never,
    Record(Record),
    /// In a stream that was capturing: the nodes for the event.
    Captured(Captured),
}

#[derive(Clone)]
struct Record {
    mark: Mark,
    at: Arc<OnceLock<Instant>>,
}

/// The work that an event marks.
pub(super) enum Recorded {
    Never,
    /// A point in a stream.
    At(Mark),
    /// A point in a stream of this or another process.
    Shared(Arc<SharedEvent>, u64),
    /// Nodes of a graph that is, or was, being captured.
    Captured(Captured),
}

/// Nodes that a stream had captured when an event was recorded in it.
#[derive(Clone)]
pub(super) struct Captured {
    /// The capture's number.
    pub(super) capture: u64,
    /// The nodes' handles.
    pub(super) nodes: Vec<usize>,
}

impl Event {
    fn last(&self) -> Last {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the latest record of any process, if the event is shared and was ever recorded.
    fn shared_record(&self) -> Option<(&Arc<SharedEvent>, u64)> {
        let shared = self.shared.as_ref()?;
        Some((shared, shared.latest())).filter(|(_, record)| *record > 0)
    }

    /// Returns the part that is shared with other processes.
    pub(super) fn shared(&self) -> Option<&SharedEvent> {
        self.shared.as_deref()
    }

    /// Returns whether it was created in `context`.
    pub(super) fn is_of(&self, context: &Arc<Context>) -> bool {
        std::ptr::eq(self.context.as_ptr(), Arc::as_ptr(context))
    }

    /// Begins a record that other processes may wait for, if they know the event.
    pub(super) fn begin_shared(&self) -> Option<(Arc<SharedEvent>, u64)> {
        self.shared.as_ref().map(|shared| (Arc::clone(shared), shared.record()))
    }

    /// Makes work that was already submitted to a stream the event's latest record; `at` is set when it is reached.
    pub(super) fn set_record(&self, mark: Mark, at: Arc<OnceLock<Instant>>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Last::Record(Record { mark, at });
    }

    /// Returns the point in a stream that a graph's wait node waits for.
    pub(super) fn mark(&self) -> Option<Mark> {
        match self.last() {
            Last::Record(record) => Some(record.mark),
            Last::Never | Last::Captured(_) => None,
        }
    }
}

pub(super) fn find(handle: CUevent) -> CuResult<Arc<Event>> {
    EVENTS.get(handle).ok_or_else(|| handle.refusal())
}

/// As [`find`], but refuses an event that other processes may open: a graph cannot have it.
pub(super) fn find_own(handle: CUevent) -> CuResult<Arc<Event>> {
    let event = find(handle)?;
    if event.shared.is_some() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(event) }
}

/// Adds an event of another process to `context`.
pub(super) fn adopt(context: &Arc<Context>, shared: SharedEvent) -> CUevent {
    let handle = Handle::unique();
    let (context, shared) = (Arc::downgrade(context), Some(Arc::new(shared)));
    EVENTS.insert(handle, Arc::new(Event { context, timing: false, last: Mutex::default(), shared }));
    handle
}

/// Returns the work that an event marks.
pub(super) fn recorded(handle: CUevent) -> CuResult<Recorded> {
    let event = find(handle)?;
    let last = event.last();
    if let (Last::Never | Last::Record(_), Some((shared, record))) = (&last, event.shared_record()) {
        return Ok(Recorded::Shared(Arc::clone(shared), record));
    }
    Ok(match last {
        Last::Never => Recorded::Never,
        Last::Record(record) => Recorded::At(record.mark),
        Last::Captured(captured) => Recorded::Captured(captured),
    })
}

/// Ends the handles of all events of a context that is being destroyed.
pub(super) fn forget_events(context: &Context) {
    EVENTS.remove_where(|event| std::ptr::eq(event.context.as_ptr(), context));
}
