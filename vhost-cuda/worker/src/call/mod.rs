// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a call while it runs, and what it does with values, objects and work.

pub mod lifecycle;
pub mod local;
pub mod resolve;
pub mod time_limit;
pub mod turns;
pub mod work;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::time::Duration;

use vhost_cuda_common::exchange::Token;
use vhost_cuda_common::statistics::Counter;
use virtio_cuda_protocol::cuda::{ContextId, GraphId, GraphNodeId, LaunchShape};

use self::resolve::Resolve;
use crate::gpu::{CUcontext, CUgraph, CUgraphNode, CUstream, CuResult, CudaError, Driver, while_current};
use crate::home::Home;
use crate::memory::allocations::{Origin, Range};
use crate::memory::bulk::{BulkIn, BulkOut};
use crate::memory::pages::PageList;
use crate::objects::images::KnownImage;
use crate::objects::jit::JitLogs;
use crate::objects::{Destroyer, Held, Object, Parent, Reserved, Table};
use crate::run::cores;
use crate::run::gate::Slot;
use crate::run::marks::Mark;
use crate::run::new_lane::NewLane;
use crate::run::prepared::{self, Prepared};
use crate::run::signal::{self, Signal};
use crate::state::SessionState;

/// The state of a thread that its executor keeps between calls.
#[derive(Debug, Default)]
pub struct ThreadState {
    /// Name and epoch of the context that is current here, and the context, which it does not keep.
    current: Option<(ContextId, u64, Option<Weak<Object>>)>,
    /// The objects that the call uses.
    pub held: Held,
    /// The latest logs of the just-in-time compiler.
    pub jit: JitLogs,
    /// The first error of posted calls, until it is reported.
    pub deferred: Option<CudaError>,
    /// The device on which a call has found no memory, if the call names one.
    pub short_of: Option<i32>,
    /// The lane that was just assigned to the thread.
    pub new_lane: Option<NewLane>,
    /// The number of its lane.
    pub lane: Option<u32>,
    /// True if the guest thread has ended: another thread may soon get its lane.
    pub ended: bool,
    /// True if the session leaves this worker, and the call has turned back without effect.
    pub left: bool,
    /// The signal by which the executor waits for short copies.
    pub signal: Signal,
    /// Frequent launches.
    pub prepared: Prepared,
    /// True if the call came as soon as the one before it was done.
    pub at_once: bool,
    /// True if the call before it only queued work.
    pub queued: bool,
    /// The duration of the last call's copy; zero for a call that did not copy.
    pub copied: Duration,
    /// The stream of the library that the call has used, where shares of GPU time are kept.
    pub library_stream: Cell<Option<CUstream>>,
    /// The same, with the event before the work, where there is a time limit.
    pub library_start: RefCell<Option<(CUstream, Option<Mark>)>>,
    /// True if the last call of a library has answered with the library's error.
    pub library_failed: bool,
    /// Counts its calls, for the operator.
    pub counter: Counter,
    /// The number of the guest thread.
    pub number: u32,
    /// [`vhost_cuda_common::recording::LANE`] if the call came through a lane, or 0.
    pub path: u32,
    /// The time that the call is known to have waited before it began, in nanoseconds, while calls are recorded.
    pub waited: u64,
    /// The function of a library that the call has called, while calls are recorded.
    pub function: Option<&'static str>,
    /// The image that the call has loaded, if the daemon keeps it.
    pub image: RefCell<Option<KnownImage>>,
    /// The token of the event of another process that the call opens.
    pub opened_event: Cell<Option<Token>>,
    /// Its place at the session's gate.
    pub slot: Option<&'static Slot>,
}

impl ThreadState {
    /// Makes `context` current in the calling thread. It lives until the call is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`, and the driver's own.
    pub fn make_current(&mut self, session: &SessionState, context: ContextId) -> CuResult<()> {
        let epoch = session.contexts.epoch();
        if self.is_current(context, epoch) {
            return Ok(());
        }
        self.current = None;
        let object = if context.0 == 0 { None } else { Some(session.contexts.get(context)?.object) };
        let weak = object.as_ref().map(Arc::downgrade);
        let stands = || session.contexts.epoch() == epoch;
        let raw = object.map_or(std::ptr::null_mut(), |object| {
            self.held.keep_context(context.0, epoch, object, stands).raw()
        });
        session.gpu.cuCtxSetCurrent(raw)?;
        self.current = Some((context, epoch, weak));
        Ok(())
    }

    /// Returns whether `context` is current already, and can be kept for the call.
    fn is_current(&self, context: ContextId, epoch: u64) -> bool {
        match &self.current {
            Some((name, then, object)) if (*name, *then) == (context, epoch) => match object {
                None => true,
                Some(_) if self.held.context(context.0, epoch) => true,
                Some(object) => object.upgrade().map(|object| self.held.keep::<u8>(object)).is_some(),
            },
            _ => false,
        }
    }

    /// Returns the objects that the call uses, the prepared launches, and the current context, which the call keeps.
    pub fn for_launch(&mut self) -> (&Held, &mut Prepared, Option<&Weak<Object>>) {
        let context = self.current.as_ref().and_then(|(_, _, context)| context.as_ref());
        (&self.held, &mut self.prepared, context)
    }

    /// Forgets the current context: another one may be current now.
    pub fn forget_current(&mut self) {
        self.current = None;
    }
}

/// Pages of the guest process that a call may keep.
#[derive(Debug)]
pub struct Kept {
    /// The driver's tag for them.
    pub tag: u64,
    /// The pages.
    pub pages: PageList,
    /// True if the guest's process may write them.
    pub writable: bool,
}

/// The arguments of a handler.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// The session, which lives as long as the process.
    pub session: &'static SessionState,
    /// The guest thread.
    pub thread: &'a mut ThreadState,
    /// The context that is current in it; 0 for none.
    pub context: ContextId,
    /// The number of the program's API call, for a profiler; 0 for none.
    pub api_call: u32,
    /// The bytes that the device reads.
    pub bulk_in: BulkIn<'a>,
    /// The bytes that the device writes.
    pub bulk_out: BulkOut,
    /// Pages that the call may keep.
    pub kept: Option<Kept>,
}

impl<'c> CallContext<'c> {
    /// The driver.
    pub fn gpu(&self) -> &'static Driver {
        &self.session.gpu
    }
    /// Returns whether [`Signal`] may wait for a copy of `bytes` bytes.
    pub fn may_signal(&self, bytes: u64) -> bool {
        let session = self.session;
        session.fast
            && bytes <= signal::MAX_BYTES
            && session.unwaited.is_none(session.code.may_print())
            && !session.graphs.is_capturing()
    }
    /// Returns whether [`Signal`] may wait for work that the calls before this one have queued. Not where the work may be done
    /// already: then the driver knows that at once. Nor where many threads wait: each word is one more command for the GPU.
    pub fn may_signal_queued(&self) -> bool {
        let few = cores::awake() <= prepared::MAX_AWAKE;
        few && self.thread.at_once && self.thread.queued && self.may_signal(0)
    }
    /// Waits for a stream of the current context by [`Signal`].
    pub fn wait_by_signal(&mut self, stream: CUstream) -> CuResult<()> {
        self.thread.signal.wait(&self.session.gpu, self.session.contexts.epoch(), stream)
    }
    /// Returns whether a launch of that shape may be prepared.
    ///
    /// A capture that another thread begins at this moment on the same stream is a race of the program.
    pub fn may_prepare(&self, shape: &LaunchShape) -> bool {
        let session = self.session;
        (shape.flags, shape.cluster) == (0, [0; 3])
            && session.preparing.may_launch_graphs(self.thread.queued)
            && !session.code.may_launch()
            && !session.graphs.is_capturing()
    }
    /// Turns a guest value into the driver's, which is valid until the call is done.
    pub fn resolve<Host>(&self, value: impl Resolve<'c, Host>) -> CuResult<Host> {
        value.resolve(self)
    }
    /// The objects that the call uses.
    pub fn held(&self) -> &Held {
        &self.thread.held
    }
    /// Looks an object up, and keeps it until the call is done.
    ///
    /// Errors: `CUDA_ERROR_INVALID_HANDLE`.
    pub fn keep<T>(&self, table: &Table, id: u64) -> CuResult<*mut T> {
        Ok(self.held().named(table, id)?.raw())
    }
    /// Returns the driver's graph, which no other call uses meanwhile. See [`crate::objects::graphs`].
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn graph(&self, id: GraphId) -> CuResult<CUgraph> {
        self.session.graphs.graph(self.held(), id)
    }
    /// Returns the driver's node of a graph that no other call uses meanwhile.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn node(&self, id: GraphNodeId) -> CuResult<CUgraphNode> {
        self.session.graphs.node(self.held(), id)
    }
    /// Locks all graphs that the call uses, for calls that may use several.
    pub fn enter(&self, graphs: &[GraphId], nodes: &[GraphNodeId]) {
        self.session.graphs.enter(self.held(), graphs, nodes);
    }
    /// Locks captures if the stream captures: then the call changes a graph. Returns whether it does.
    ///
    /// The query, too, is made under the lock: the driver's answer to another call about a capture is valid only until the
    /// next call on the stream.
    pub fn note_capture(&self, stream: CUstream) -> bool {
        let (graphs, held) = (&self.session.graphs, self.held());
        if !graphs.is_capturing() {
            return false;
        }
        let before = held.has_captures();
        held.lock_captures(graphs.captures());
        let captures = held.has_captures() && self.gpu().cuStreamIsCapturing(stream) != Ok((0,));
        if !captures && !before {
            held.unlock_captures();
        }
        captures
    }
    /// Returns an object that was made in the current context, and that `end` destroys.
    pub fn made<T: 'static>(&self, raw: *mut T, end: fn(&Driver, *mut T) -> CuResult<()>) -> Object {
        self.made_in(self.home_of(), raw, end)
    }
    /// Returns the context that owns new objects, as an object.
    pub fn home_of(&self) -> Option<Parent> {
        self.session.contexts.home_of(self.context)
    }
    /// Returns an object of a context that `end` destroys.
    pub fn made_in<T>(
        &self,
        context: Option<Parent>,
        raw: *mut T,
        end: impl FnOnce(&'static Driver, *mut T) -> CuResult<()> + Send + Sync + 'static,
    ) -> Object {
        let (gpu, address) = (self.gpu(), raw as usize);
        let current = context.as_ref().map(|parent| parent.object.raw::<u8>() as usize);
        let ends = move |who| match (who, current) {
            (Destroyer::LastUser, Some(current)) => {
                while_current(gpu, current as CUcontext, || end(gpu, address as *mut T))
            }
            _ => end(gpu, address as *mut T),
        };
        Object::new(raw).ends_by(ends).in_context(context)
    }
    /// Gives a name its object.
    ///
    /// Errors: `CUDA_ERROR_CONTEXT_IS_DESTROYED` if its parent was destroyed meanwhile. Then the object is destroyed, too, when
    /// the call is done.
    pub fn fill(&self, reserved: Reserved<'_>, object: Object) -> CuResult<()> {
        reserved.fill(Arc::new(object)).map_err(|object| {
            self.held().keep::<u8>(object);
            CudaError::CONTEXT_IS_DESTROYED
        })
    }
    /// Returns the context that owns new objects, with its device.
    pub fn owner(&self) -> CuResult<Home> {
        self.session.contexts.owner(self.context)
    }
    /// Checks that `bytes` bytes at an address are the session's, and lets the driver copy them for the current context, also on
    /// another device.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, and the driver's.
    pub fn check_copied(&self, address: u64, bytes: u64, is_written: bool) -> CuResult<()> {
        match is_written {
            true => self.session.check_written(address, bytes)?,
            false => self.session.check(address, bytes)?,
        }
        match self.elsewhere(address)? {
            Some(range) => self.session.placed.lend(self.gpu(), range.base, self.owner()?.device),
            None => Ok(()),
        }
    }
    /// Returns the allocation of `cuMemAlloc` at an address if it is on another device than the current context, which has no access.
    ///
    /// Errors: `CUDA_ERROR_INVALID_CONTEXT`.
    pub fn elsewhere(&self, address: u64) -> CuResult<Option<Range>> {
        if !self.session.placed.has_peers() {
            return Ok(None);
        }
        let device = self.owner()?.device;
        let range = self.session.allocations().find(address).copied();
        let placed = &self.session.placed;
        let is_there = |range: &Range| range.origin == Origin::Allocated && range.device != device;
        Ok(range.filter(is_there).filter(|range| !placed.is_accessible(range.base, device)))
    }
    /// Returns the context that owns new objects: for a green context, the primary one.
    pub fn home(&self) -> u64 {
        self.session.contexts.home(self.context)
    }
}
