// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams, including the three default ones, and the order that CUDA guarantees between them.

pub(super) mod api;
mod attributes;
pub(super) mod mem_op;
mod mem_op_api;
pub(super) mod queue;
pub(super) mod threads;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::context::{self, CUcontext, Context};
use super::device;
use super::ffi::{Out, default_stream_is_per_thread};
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use super::trace;
use queue::{Mark, Queue};

/// CUhostFn
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// A stream's handle; 0, 1 and 2 stand for the default streams.
pub type CUstream = Handle<Stream>;

const CU_STREAM_LEGACY: usize = 1;
const CU_STREAM_PER_THREAD: usize = 2;
const CU_STREAM_NON_BLOCKING: u32 = 1;
/// cuCtxGetStreamPriorityRange: from low to high. Priorities are stored without effect.
pub(super) const PRIORITIES: (i32, i32) = (0, -5);

/// Created by cuStreamCreate.
static STREAMS: Registry<Stream> = Registry::new();

impl crate::driver::handle::Object for Stream {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Stream);
}

thread_local! {
    /// This thread's default stream of each context, by context id.
    static PER_THREAD: RefCell<HashMap<u64, Arc<Stream>>> = RefCell::new(HashMap::new());
}

/// A stream of a context.
pub struct Stream {
    handle: CUstream,
    /// The handle of its context, or of the green context that it was created in. NULL for streams that the program
    /// did not create.
    home: CUcontext,
    context: Weak<Context>,
    pub(super) queue: Arc<Queue>,
    /// True if it does not take part in the legacy default stream's order.
    pub(super) non_blocking: bool,
    pub(super) priority: i32,
    /// Unique among the streams of this process, and never reused.
    pub(super) id: u64,
    /// The attributes by CUstreamAttrID.
    pub(super) attributes: Mutex<BTreeMap<u32, [u32; 16]>>,
}

impl Stream {
    fn new(context: &Weak<Context>, handle: CUstream, non_blocking: bool, priority: i32) -> Stream {
        // The handle's number serves as the id unless it stands for a default stream.
        let id = if handle.0 > CU_STREAM_PER_THREAD { handle.0 } else { CUstream::unique().0 } as u64;
        Stream {
            handle,
            home: Handle::NULL,
            context: Weak::clone(context),
            queue: Arc::default(),
            non_blocking,
            priority,
            id,
            attributes: Mutex::default(),
        }
    }

    /// Creates the legacy default stream of a context that is being created.
    pub(super) fn legacy(context: &Weak<Context>) -> Arc<Stream> {
        Arc::new(Stream::new(context, Handle::new(CU_STREAM_LEGACY), false, 0))
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.handle.0 == CU_STREAM_LEGACY
    }
}

impl Context {
    /// Returns the stream of a handle in this call.
    pub(super) fn stream(self: &Arc<Self>, handle: CUstream) -> CuResult<Arc<Stream>> {
        match handle.0 {
            0 if default_stream_is_per_thread() => Ok(self.per_thread_stream()),
            0 | CU_STREAM_LEGACY => Ok(Arc::clone(&self.legacy)),
            CU_STREAM_PER_THREAD => Ok(self.per_thread_stream()),
            _ => {
                let stream = STREAMS.get(handle).ok_or_else(|| handle.refusal())?;
                let own = std::ptr::eq(stream.context.as_ptr(), Arc::as_ptr(self));
                if own { Ok(stream) } else { Err(CUresult::CUDA_ERROR_INVALID_HANDLE) }
            }
        }
    }

    fn per_thread_stream(self: &Arc<Self>) -> Arc<Stream> {
        let make = || {
            let handle = Handle::new(CU_STREAM_PER_THREAD);
            let stream = Arc::new(Stream::new(&Arc::downgrade(self), handle, false, 0));
            self.add_stream(&stream);
            stream
        };
        let own = PER_THREAD
            .try_with(|streams| Arc::clone(streams.borrow_mut().entry(self.id).or_insert_with(make)));
        // In exit handlers the thread-local values have already ended.
        own.unwrap_or_else(|_| Arc::clone(&self.legacy))
    }

    fn add_stream(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Returns the streams that exist or still work, except the legacy one.
    pub(super) fn live_streams(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Appends work to a stream. The job gets the context's sticky error, if there is one when it starts.
    pub(super) fn submit(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        after: Vec<Mark>,
        job: impl FnOnce(&Context, Option<CUresult>) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        stream.queue.wait_for_room();
        self.append(stream, after, job)
    }

    /// As [`Self::submit`], for a caller that has already waited for room, because it holds a lock that other threads
    /// need.
    pub(super) fn append(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        mut after: Vec<Mark>,
        job: impl FnOnce(&Context, Option<CUresult>) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        // Held while the ends of the other streams are read, so that two submissions agree on their order.
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        after.extend(self.predecessors(stream));
        let context = Arc::clone(self);
        let place = trace::place(self.device.ordinal, self.id, stream.id);
        let job = move || {
            if let Err(error) = trace::at(place, || job(&context, context.sticky())) {
                context.poison(error);
            }
        };
        // Kept until the job has ended: waits for the whole context find the stream until then.
        stream.queue.push(after, Box::new(job), Arc::<Stream>::clone(stream))
    }

    /// Appends work that is skipped in a context with a sticky error.
    pub(super) fn submit_work(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        job: impl FnOnce(&Context) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        self.submit(
            stream,
            Vec::new(),
            |context, sticky| if sticky.is_some() { Ok(()) } else { job(context) },
        )
    }

    /// Must be called at the end of a call that has appended a launch, a copy or a fill. With
    /// `CUDA_LAUNCH_BLOCKING=1` it waits for the work, and the call returns the work's error.
    pub(super) fn end_asynchronous(&self, work: &Mark) -> CuResult<()> {
        if !device::environment().launch_blocking {
            return Ok(());
        }
        work.wait();
        self.flush_printf();
        self.sticky().map_or(Ok(()), Err)
    }

    /// Executes work in stream order and waits for it. Runs on this thread when there is no earlier work.
    pub(super) fn run(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        job: impl FnOnce(&Context) -> CuResult<()> + Send + 'static,
    ) -> CuResult<()> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = if self.predecessors(stream).is_empty() { stream.queue.enter() } else { None };
        drop(order);
        match entered {
            Some(_entered) => trace::at(trace::place(self.device.ordinal, self.id, stream.id), || job(self))?,
            None => self.submit_work(stream, job).wait(),
        }
        self.flush_printf();
        self.sticky().map_or(Ok(()), Err)
    }

    /// Appends work to no stream of the program: it waits for `after` only. Waits for the whole context include it.
    pub(super) fn submit_aside(
        self: &Arc<Self>,
        after: Vec<Mark>,
        job: impl FnOnce(&Context, Option<CUresult>) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        let aside = Arc::new(Stream::new(&Arc::downgrade(self), Handle::unique(), true, 0));
        self.add_stream(&aside);
        self.submit(&aside, after, job)
    }

    /// Returns the ends of all streams.
    pub(super) fn ends(&self) -> Vec<Mark> {
        let streams = self.live_streams();
        streams.iter().chain([&self.legacy]).map(|stream| stream.queue.end()).collect()
    }

    /// Makes all later work wait for `mark`.
    pub(super) fn wait_for(&self, mark: Mark) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    /// Returns the marks of other streams that work appended to `stream` now must wait for.
    fn predecessors(&self, stream: &Arc<Stream>) -> Vec<Mark> {
        let mut marks = self.stream_predecessors(stream);
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.retain(|mark| !mark.reached());
        marks.extend(awaited.iter().cloned());
        marks
    }

    fn stream_predecessors(&self, stream: &Arc<Stream>) -> Vec<Mark> {
        let unreached = |stream: &Arc<Stream>| Some(stream.queue.end()).filter(|mark| !mark.reached());
        if stream.is_legacy() {
            self.live_streams().iter().filter(|stream| !stream.non_blocking).filter_map(unreached).collect()
        } else if stream.non_blocking {
            Vec::new()
        } else {
            unreached(&self.legacy).into_iter().collect()
        }
    }

    /// Waits for all streams.
    pub(super) fn wait_idle(&self) {
        let ends: Vec<_> = self.live_streams().iter().map(|stream| stream.queue.end()).collect();
        self.legacy.queue.end().wait();
        ends.iter().for_each(Mark::wait);
    }

    /// Removes the handles of all streams of a context that is being destroyed.
    pub(super) fn forget_streams(&self) {
        STREAMS.remove_where(|stream| std::ptr::eq(stream.context.as_ptr(), self));
        // Other threads' entries stay, but no later context has this id.
        let _ = PER_THREAD.try_with(|streams| streams.borrow_mut().remove(&self.id));
    }
}

/// Creates a stream in a context.
pub(super) fn create_in(home: CUcontext, out: Out<CUstream>, flags: u32, priority: i32) -> CuResult<()> {
    if home == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = context::find_given(home)?.checked()?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let handle = Handle::unique();
    let mut stream =
        Stream::new(&Arc::downgrade(&context), handle, flags & CU_STREAM_NON_BLOCKING != 0, priority);
    stream.home = home;
    let stream = Arc::new(stream);
    context.add_stream(&stream);
    STREAMS.insert(handle, stream);
    out.set_if_wanted(handle);
    Ok(())
}

/// Returns a stream and its context.
pub(super) fn with_stream(handle: CUstream) -> CuResult<(Arc<Context>, Arc<Stream>)> {
    let context = match STREAMS.get(handle).and_then(|stream| stream.context.upgrade()) {
        // Any thread may wait for a stream, independent of its current context.
        Some(context) => context.checked()?,
        None => context::current()?,
    };
    let stream = context.stream(handle)?;
    Ok((context, stream))
}

/// Returns the handle of a stream's context, or of its green context.
pub(super) fn context_handle(handle: CUstream) -> CuResult<CUcontext> {
    let (context, stream) = with_stream(handle)?;
    let home = if stream.home == Handle::NULL { context::current_handle() } else { Some(stream.home) };
    Ok(home.unwrap_or(context.handle))
}
