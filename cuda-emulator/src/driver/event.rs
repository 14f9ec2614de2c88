// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events: points in streams that can be waited for and timed.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use super::capture::{self, Capture};
use super::context::{self, Context};
use super::ffi::Out;
use super::graph::{CUgraphNode, Work};
use super::handle::{Handle, Registry};
use super::ipc::SharedEvent;
use super::result::{CUresult, CuResult};
use super::stream::CUstream;
use super::stream::queue::Mark;

/// An event's handle.
pub type CUevent = Handle<Event>;

const CU_EVENT_DISABLE_TIMING: u32 = 2;
const CU_EVENT_INTERPROCESS: u32 = 4;
const CU_EVENT_ALL_FLAGS: u32 = 7;

static EVENTS: Registry<Event> = Registry::new();

/// An event of a context.
pub struct Event {
    context: Weak<Context>,
    timing: bool,
    last: Mutex<Last>,
    /// For an event that other processes may know.
    shared: Option<Arc<SharedEvent>>,
}

/// The latest cuEventRecord.
#[derive(Clone, Default)]
enum Last {
    #[default]
    Never,
    Record(Record),
    /// In a stream that was capturing: the nodes it stands for.
    Captured(Weak<Capture>, Vec<CUgraphNode>),
}

#[derive(Clone)]
struct Record {
    mark: Mark,
    at: Arc<OnceLock<Instant>>,
}

/// What an event stands for.
pub(super) enum Recorded {
    Never,
    /// A point in a stream.
    At(Mark),
    /// A point in a stream of this or another process.
    Shared(Arc<SharedEvent>, u64),
    /// Nodes of a graph that is, or was, being captured.
    Captured(Weak<Capture>, Vec<CUgraphNode>),
}

impl Event {
    fn last(&self) -> Last {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The latest record in a stream. Asking for another one is an error, which ends the capture that it belongs to.
    fn record(&self) -> CuResult<Option<Record>> {
        match self.last() {
            Last::Never => Ok(None),
            Last::Record(record) => Ok(Some(record)),
            Last::Captured(capture, _) => {
                capture.upgrade().inspect(|capture| capture.invalidate());
                Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
            }
        }
    }

    /// The latest record of any process, if the event is shared and was ever recorded.
    fn shared_record(&self) -> Option<(&Arc<SharedEvent>, u64)> {
        let shared = self.shared.as_ref()?;
        Some((shared, shared.latest())).filter(|(_, record)| *record > 0)
    }

    /// What is shared with other processes.
    pub(super) fn shared(&self) -> Option<&SharedEvent> {
        self.shared.as_deref()
    }

    /// Whether it was created in `context`.
    pub(super) fn is_of(&self, context: &Arc<Context>) -> bool {
        std::ptr::eq(self.context.as_ptr(), Arc::as_ptr(context))
    }

    /// Begins a record that other processes may wait for, if they know the event.
    pub(super) fn begin_shared(&self) -> Option<(Arc<SharedEvent>, u64)> {
        self.shared.as_ref().map(|shared| (Arc::clone(shared), shared.record()))
    }

    /// Makes work that a stream got already the event's latest record; `at` is set when it is reached.
    pub(super) fn set_record(&self, mark: Mark, at: Arc<OnceLock<Instant>>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Last::Record(Record { mark, at });
    }

    /// The point in a stream that a graph's wait node waits for.
    pub(super) fn mark(&self) -> Option<Mark> {
        match self.last() {
            Last::Record(record) => Some(record.mark),
            Last::Never | Last::Captured(..) => None,
        }
    }
}

pub(super) fn find(handle: CUevent) -> CuResult<Arc<Event>> {
    EVENTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The same, but not one that other processes may know: a graph cannot have it.
pub(super) fn find_own(handle: CUevent) -> CuResult<Arc<Event>> {
    let event = find(handle)?;
    if event.shared.is_some() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(event) }
}

/// Makes an event of another process one of `context`.
pub(super) fn adopt(context: &Arc<Context>, shared: SharedEvent) -> CUevent {
    let handle = Handle::mint();
    let (context, shared) = (Arc::downgrade(context), Some(Arc::new(shared)));
    EVENTS.insert(handle, Arc::new(Event { context, timing: false, last: Mutex::default(), shared }));
    handle
}

/// What an event stands for.
pub(super) fn recorded(handle: CUevent) -> CuResult<Recorded> {
    let event = find(handle)?;
    let last = event.last();
    if let (Last::Never | Last::Record(_), Some((shared, record))) = (&last, event.shared_record()) {
        return Ok(Recorded::Shared(Arc::clone(shared), record));
    }
    Ok(match last {
        Last::Never => Recorded::Never,
        Last::Record(record) => Recorded::At(record.mark),
        Last::Captured(capture, nodes) => Recorded::Captured(capture, nodes),
    })
}

/// Ends the handles of all events of a context that is being destroyed.
pub(super) fn forget_events(context: &Context) {
    EVENTS.remove_where(|event| std::ptr::eq(event.context.as_ptr(), context));
}

fn event_create(out: Out<CUevent>, flags: u32) -> CuResult<()> {
    out.check()?;
    let timing = flags & CU_EVENT_DISABLE_TIMING == 0;
    if flags & !CU_EVENT_ALL_FLAGS != 0 || flags & CU_EVENT_INTERPROCESS != 0 && timing {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = Arc::downgrade(&context::current()?);
    let shared = flags & CU_EVENT_INTERPROCESS != 0;
    let shared = shared.then(SharedEvent::new).transpose()?.map(Arc::new);
    let handle = Handle::mint();
    EVENTS.insert(handle, Arc::new(Event { context, timing, last: Mutex::default(), shared }));
    out.set(handle);
    Ok(())
}

fn event_destroy(handle: CUevent) -> CuResult<()> {
    context_of(&*find(handle)?)?;
    EVENTS.remove(handle).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// CU_EVENT_RECORD_EXTERNAL
const RECORD_EXTERNAL: u32 = 1;

fn event_record(handle: CUevent, stream: CUstream) -> CuResult<()> {
    event_record_with_flags(handle, stream, 0)
}

fn event_record_with_flags(handle: CUevent, stream: CUstream, flags: u32) -> CuResult<()> {
    if flags & !RECORD_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let event = find(handle)?;
    let context = event.context.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.checked()?;
    let stream = context.stream(stream)?;
    capture::check_order(&context, &stream)?;
    if flags & RECORD_EXTERNAL != 0
        && capture::add(&stream, || Ok(Work::EventRecord(handle, find_own(handle)?)))?
    {
        return Ok(());
    }
    if flags & RECORD_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    if let Some((capture, nodes)) = capture::dependencies(&stream)? {
        *event.last.lock().unwrap_or_else(PoisonError::into_inner) = Last::Captured(capture, nodes);
        return Ok(());
    }
    let at = Arc::new(OnceLock::new());
    let stamp = Arc::clone(&at);
    // Held while the record is submitted, so that two threads' records end in the order of their marks.
    let mut last = event.last.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = event.begin_shared();
    let mark = context.submit(&stream, Vec::new(), move |_, _| {
        stamp.get_or_init(Instant::now);
        if let Some((shared, record)) = shared {
            shared.reach(record);
        }
        Ok(())
    });
    *last = Last::Record(Record { mark, at });
    Ok(())
}

fn context_of(event: &Event) -> CuResult<Arc<Context>> {
    event.context.upgrade().ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?.checked()
}

fn event_query(handle: CUevent) -> CuResult<()> {
    let event = find(handle)?;
    let context = context_of(&event)?;
    let record = event.record()?;
    capture::check_safe()?;
    context.flush_printf();
    let ready = match event.shared_record() {
        Some((shared, record)) => shared.is_reached(record),
        None => record.is_none_or(|record| record.mark.reached()),
    };
    if let Some(error) = context.sticky() {
        return Err(error);
    }
    if ready { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

fn event_synchronize(handle: CUevent) -> CuResult<()> {
    let event = find(handle)?;
    let context = context_of(&event)?;
    let record = event.record()?;
    match event.shared_record() {
        Some((shared, record)) => shared.wait(record),
        None => record.into_iter().for_each(|record| record.mark.wait()),
    }
    context.flush_printf();
    context.sticky().map_or(Ok(()), Err)
}

fn event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CuResult<()> {
    let (start, end) = (find(start)?, find(end)?);
    context_of(&start)?;
    if !start.timing || !end.timing {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (start.record()?, end.record()?) else {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    };
    milliseconds.check()?;
    let (Some(start), Some(end)) = (start.at.get(), end.at.get()) else {
        return Err(CUresult::CUDA_ERROR_NOT_READY);
    };
    let forward = end.saturating_duration_since(*start).as_secs_f64();
    let backward = start.saturating_duration_since(*end).as_secs_f64();
    milliseconds.set(((forward - backward) * 1e3) as f32);
    Ok(())
}

super::ffi::entries! { after_init
    cuEventCreate => event_create(out: Out<CUevent>, flags: u32);
    cuEventDestroy => event_destroy(event: CUevent);
    cuEventDestroy_v2 => event_destroy(event: CUevent);
    cuEventRecord + cuEventRecord_ptsz => event_record(event: CUevent, stream: CUstream);
    cuEventRecordWithFlags + cuEventRecordWithFlags_ptsz => event_record_with_flags(
        event: CUevent, stream: CUstream, flags: u32);
    cuEventQuery => event_query(event: CUevent);
    cuEventSynchronize => event_synchronize(event: CUevent);
    cuEventElapsedTime => event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent);
    cuEventElapsedTime_v2 => event_elapsed_time(milliseconds: Out<f32>, start: CUevent, end: CUevent);
}
