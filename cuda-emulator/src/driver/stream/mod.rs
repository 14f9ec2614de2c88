// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams, the three default ones included, and the order that CUDA promises between them.

mod attributes;
pub(super) mod mem_op;
pub(super) mod queue;
mod threads;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::capture::{self, Branch};
use super::context::green::{self, CUgreenCtx};
use super::context::{self, CUcontext, Context};
use super::device;
use super::event::{self, CUevent, Recorded};
use super::ffi::{Out, default_stream_is_per_thread, in_host_function};
use super::graph::{HostWork, Work};
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};
use queue::{Mark, Queue};

/// A stream's handle; 0, 1 and 2 stand for the default streams.
pub type CUstream = Handle<Stream>;

const CU_STREAM_LEGACY: usize = 1;
const CU_STREAM_PER_THREAD: usize = 2;
const CU_STREAM_NON_BLOCKING: u32 = 1;
/// cuCtxGetStreamPriorityRange: from low to high. Priorities are kept but not acted on.
pub(super) const PRIORITIES: (i32, i32) = (0, -5);

/// Created by cuStreamCreate.
static STREAMS: Registry<Stream> = Registry::new();

thread_local! {
    /// This thread's default stream of each context, by context id.
    static PER_THREAD: RefCell<HashMap<u64, Arc<Stream>>> = RefCell::new(HashMap::new());
}

/// A stream of a context.
pub struct Stream {
    handle: CUstream,
    /// The handle of its context: of a green one, if it was made in one. NULL for streams that the program did not make.
    home: CUcontext,
    context: Weak<Context>,
    pub(super) queue: Arc<Queue>,
    /// Takes no part in the legacy default stream's order.
    pub(super) non_blocking: bool,
    pub(super) priority: i32,
    id: u64,
    /// Work goes into a graph instead.
    pub(super) capture: Mutex<Option<Branch>>,
    /// By CUstreamAttrID.
    pub(super) attributes: Mutex<BTreeMap<u32, [u32; 16]>>,
}

impl Stream {
    fn new(context: &Weak<Context>, handle: CUstream, non_blocking: bool, priority: i32) -> Stream {
        // The handle's number serves as the id unless it stands for a default stream.
        let id = if handle.0 > CU_STREAM_PER_THREAD { handle.0 } else { CUstream::mint().0 } as u64;
        Stream {
            handle,
            home: Handle::NULL,
            context: Weak::clone(context),
            queue: Arc::default(),
            non_blocking,
            priority,
            id,
            capture: Mutex::default(),
            attributes: Mutex::default(),
        }
    }

    /// The legacy default stream of a context that is being made.
    pub(super) fn legacy(context: &Weak<Context>) -> Arc<Stream> {
        Arc::new(Stream::new(context, Handle::new(CU_STREAM_LEGACY), false, 0))
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.handle.0 == CU_STREAM_LEGACY
    }
}

impl Context {
    /// The stream that a handle means in this call.
    pub(super) fn stream(self: &Arc<Self>, handle: CUstream) -> CuResult<Arc<Stream>> {
        match handle.0 {
            0 if default_stream_is_per_thread() => Ok(self.per_thread_stream()),
            0 | CU_STREAM_LEGACY => Ok(Arc::clone(&self.legacy)),
            CU_STREAM_PER_THREAD => Ok(self.per_thread_stream()),
            _ => {
                let stream = STREAMS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
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
        // In exit handlers the thread's values are gone already.
        own.unwrap_or_else(|_| Arc::clone(&self.legacy))
    }

    fn add_stream(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// The streams that exist or still work, the legacy one excepted.
    pub(super) fn live_streams(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Appends work to a stream. The job gets the context's sticky error, if it has one by then.
    pub(super) fn submit(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        mut after: Vec<Mark>,
        job: impl FnOnce(&Context, Option<CUresult>) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        stream.queue.wait_for_room();
        // Held while the other streams' ends are looked up, so that two submissions agree on who is first.
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        after.extend(self.predecessors(stream));
        let (context, kept) = (Arc::clone(self), Arc::clone(stream));
        let job = move || {
            if let Err(error) = job(&context, context.sticky()) {
                context.poison(error);
            }
            drop(kept);
        };
        stream.queue.push(after, Box::new(job))
    }

    /// Appends work that a context with a sticky error no longer does.
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

    /// To be called at the end of a call that has appended a launch, a copy or a fill. With `CUDA_LAUNCH_BLOCKING=1` it
    /// waits for the work, whose error is then the call's.
    pub(super) fn end_asynchronous(&self, work: &Mark) -> CuResult<()> {
        if !device::environment().launch_blocking {
            return Ok(());
        }
        work.wait();
        self.flush_printf();
        self.sticky().map_or(Ok(()), Err)
    }

    /// Does work at its place in a stream and waits for it; on this thread when nothing is before it.
    pub(super) fn run(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        job: impl FnOnce(&Context) -> CuResult<()> + Send + 'static,
    ) -> CuResult<()> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = if self.predecessors(stream).is_empty() { stream.queue.enter() } else { None };
        drop(order);
        match entered {
            Some(_entered) => job(self)?,
            None => self.submit_work(stream, job).wait(),
        }
        self.flush_printf();
        self.sticky().map_or(Ok(()), Err)
    }

    /// Appends work to no stream: it waits for `after` only.
    pub(super) fn submit_aside(
        self: &Arc<Self>,
        after: Vec<Mark>,
        job: impl FnOnce(&Context, Option<CUresult>) -> CuResult<()> + Send + 'static,
    ) -> Mark {
        let aside = Arc::new(Stream::new(&Arc::downgrade(self), Handle::mint(), true, 0));
        self.submit(&aside, after, job)
    }

    /// The ends of all streams.
    pub(super) fn ends(&self) -> Vec<Mark> {
        let streams = self.live_streams();
        streams.iter().chain([&self.legacy]).map(|stream| stream.queue.end()).collect()
    }

    /// Has all work that is appended from now on wait for `mark`.
    pub(super) fn wait_for(&self, mark: Mark) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
    }

    /// What work that is appended to `stream` now must wait for elsewhere.
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

    /// Waits for all streams and says whether something failed.
    pub(super) fn synchronize(&self) -> CuResult<()> {
        capture::refuse_any(self)?;
        self.wait_idle();
        self.flush_printf();
        self.sticky().map_or(Ok(()), Err)
    }

    /// Waits for all streams.
    pub(super) fn wait_idle(&self) {
        let ends: Vec<_> = self.live_streams().iter().map(|stream| stream.queue.end()).collect();
        self.legacy.queue.end().wait();
        ends.iter().for_each(Mark::wait);
    }

    /// Ends the handles of all streams of a context that is being destroyed.
    pub(super) fn forget_streams(&self) {
        STREAMS.remove_where(|stream| std::ptr::eq(stream.context.as_ptr(), self));
        // Other threads' entries stay, but no later context has this id.
        let _ = PER_THREAD.try_with(|streams| streams.borrow_mut().remove(&self.id));
    }
}

fn stream_create(out: Out<CUstream>, flags: u32) -> CuResult<()> {
    stream_create_with_priority(out, flags, 0)
}

fn stream_create_with_priority(out: Out<CUstream>, flags: u32, priority: i32) -> CuResult<()> {
    out.check()?;
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    create_in(context::current_handle().unwrap_or(Handle::NULL), out, flags, priority)
}

/// Creates a stream in a context.
pub(super) fn create_in(home: CUcontext, out: Out<CUstream>, flags: u32, priority: i32) -> CuResult<()> {
    if home == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = context::find_given(home)?.checked()?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let handle = Handle::mint();
    let mut stream =
        Stream::new(&Arc::downgrade(&context), handle, flags & CU_STREAM_NON_BLOCKING != 0, priority);
    stream.home = home;
    let stream = Arc::new(stream);
    context.add_stream(&stream);
    STREAMS.insert(handle, stream);
    out.set(handle);
    Ok(())
}

fn stream_destroy(handle: CUstream) -> CuResult<()> {
    let stream = STREAMS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    stream.context.upgrade().map(Context::checked).transpose()?;
    capture::abandon(&stream);
    // Work under way goes on: its job holds the stream.
    STREAMS.remove(handle).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// A stream and its context.
pub(super) fn with_stream(handle: CUstream) -> CuResult<(Arc<Context>, Arc<Stream>)> {
    let context = match STREAMS.get(handle).and_then(|stream| stream.context.upgrade()) {
        // Any thread may wait for a stream, whatever its current context is.
        Some(context) => context.checked()?,
        None => context::current()?,
    };
    let stream = context.stream(handle)?;
    Ok((context, stream))
}

/// Where work for a stream goes: to the stream's own context, though some context must be current.
pub(super) fn place_work(handle: CUstream) -> CuResult<(Arc<Context>, Arc<Stream>)> {
    context::current()?;
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    Ok((context, stream))
}

fn stream_synchronize(handle: CUstream) -> CuResult<()> {
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    if stream.is_legacy() {
        context.predecessors(&stream).iter().for_each(Mark::wait);
    }
    stream.queue.end().wait();
    context.flush_printf();
    context.sticky().map_or(Ok(()), Err)
}

fn stream_query(handle: CUstream) -> CuResult<()> {
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    let idle =
        stream.queue.end().reached() && (!stream.is_legacy() || context.predecessors(&stream).is_empty());
    context.flush_printf();
    if let Some(error) = context.sticky() {
        return Err(error);
    }
    if idle { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

/// CU_EVENT_WAIT_EXTERNAL
const WAIT_EXTERNAL: u32 = 1;

fn stream_wait_event(handle: CUstream, event: CUevent, flags: u32) -> CuResult<()> {
    if flags & !WAIT_EXTERNAL != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    if flags & WAIT_EXTERNAL != 0
        && capture::add(&stream, || Ok(Work::EventWait(event, event::find_own(event)?)))?
    {
        return Ok(());
    }
    if flags & WAIT_EXTERNAL != 0 {
        // Only a graph can have such a node.
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let mark = match event::recorded(event)? {
        Recorded::Captured(capture, nodes) => return capture::join(&stream, &capture, &nodes),
        Recorded::Never => return Ok(()),
        Recorded::Shared(shared, record) => {
            capture::isolate(&stream)?;
            if !shared.is_reached(record) {
                context.submit(&stream, Vec::new(), move |_, _| {
                    shared.wait(record);
                    Ok(())
                });
            }
            return Ok(());
        }
        Recorded::At(mark) => mark,
    };
    capture::isolate(&stream)?;
    if !mark.is_of(&stream.queue) && !mark.reached() {
        context.submit(&stream, vec![mark], |_, _| Ok(()));
    }
    Ok(())
}

fn stream_get_flags(handle: CUstream, flags: Out<u32>) -> CuResult<()> {
    flags.check()?;
    let (_, stream) = with_stream(handle)?;
    flags.set(if stream.non_blocking { CU_STREAM_NON_BLOCKING } else { 0 });
    Ok(())
}

fn stream_get_priority(handle: CUstream, priority: Out<i32>) -> CuResult<()> {
    priority.check()?;
    priority.set(with_stream(handle)?.1.priority);
    Ok(())
}

fn stream_get_id(handle: CUstream, id: Out<u64>) -> CuResult<()> {
    id.check()?;
    id.set(with_stream(handle)?.1.id);
    Ok(())
}

fn stream_get_ctx(handle: CUstream, out: Out<CUcontext>) -> CuResult<()> {
    out.check()?;
    out.set(context_handle(handle)?);
    Ok(())
}

/// The handle of a stream's context: of a green one, if it is of one.
pub(super) fn context_handle(handle: CUstream) -> CuResult<CUcontext> {
    let (context, stream) = with_stream(handle)?;
    let home = if stream.home == Handle::NULL { context::current_handle() } else { Some(stream.home) };
    Ok(home.unwrap_or(context.handle))
}

fn stream_get_ctx_v2(handle: CUstream, out: Out<CUcontext>, green: Out<CUgreenCtx>) -> CuResult<()> {
    out.check()?;
    let (context, _) = with_stream(handle)?;
    green.set(green::of_context(context_handle(handle)?));
    out.set(context.handle);
    Ok(())
}

fn stream_get_device(handle: CUstream, device: Out<i32>) -> CuResult<()> {
    device.check()?;
    device.set(with_stream(handle)?.0.device.ordinal);
    Ok(())
}

/// CUhostFn
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
type StreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;

fn launch_host_func(handle: CUstream, function: HostFunction, argument: *mut c_void) -> CuResult<()> {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    let work = HostWork { function, argument: argument as usize };
    if !capture::add(&stream, || Ok(Work::Host(work)))? {
        context.submit_work(&stream, move |_| work.run());
    }
    Ok(())
}

fn stream_add_callback(
    handle: CUstream,
    callback: StreamCallback,
    data: *mut c_void,
    flags: u32,
) -> CuResult<()> {
    let callback = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = with_stream(handle)?;
    capture::check_order(&context, &stream)?;
    capture::refuse(&stream)?;
    let data = data as usize;
    context.submit(&stream, Vec::new(), move |_, sticky| {
        let status = sticky.unwrap_or(CUresult::CUDA_SUCCESS);
        // SAFETY: the caller passed a function that may be called with this argument until the stream got here.
        in_host_function(|| unsafe { callback(handle, status, data as *mut c_void) })
    });
    Ok(())
}

super::ffi::entries! { after_init
    cuStreamCreate => stream_create(out: Out<CUstream>, flags: u32);
    cuStreamCreateWithPriority => stream_create_with_priority(out: Out<CUstream>, flags: u32, priority: i32);
    cuStreamDestroy => stream_destroy(stream: CUstream);
    cuStreamDestroy_v2 => stream_destroy(stream: CUstream);
    cuStreamSynchronize + cuStreamSynchronize_ptsz => stream_synchronize(stream: CUstream);
    cuStreamQuery + cuStreamQuery_ptsz => stream_query(stream: CUstream);
    cuStreamWaitEvent + cuStreamWaitEvent_ptsz => stream_wait_event(stream: CUstream, event: CUevent, flags: u32);
    cuStreamGetFlags + cuStreamGetFlags_ptsz => stream_get_flags(stream: CUstream, flags: Out<u32>);
    cuStreamGetPriority + cuStreamGetPriority_ptsz => stream_get_priority(stream: CUstream, priority: Out<i32>);
    cuStreamGetId + cuStreamGetId_ptsz => stream_get_id(stream: CUstream, id: Out<u64>);
    cuStreamGetCtx + cuStreamGetCtx_ptsz => stream_get_ctx(stream: CUstream, context: Out<CUcontext>);
    cuStreamGetCtx_v2 + cuStreamGetCtx_v2_ptsz => stream_get_ctx_v2(
        stream: CUstream, context: Out<CUcontext>, green: Out<CUgreenCtx>);
    cuStreamGetDevice + cuStreamGetDevice_ptsz => stream_get_device(stream: CUstream, device: Out<i32>);
    cuLaunchHostFunc + cuLaunchHostFunc_ptsz => launch_host_func(
        stream: CUstream, function: HostFunction, argument: *mut c_void);
    cuStreamAddCallback + cuStreamAddCallback_ptsz => stream_add_callback(
        stream: CUstream, callback: StreamCallback, data: *mut c_void, flags: u32);
}
