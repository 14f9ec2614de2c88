// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frequent launches are prepared: the kernel becomes an executable graph of one node, whose parameters
//! change from launch to launch. NVIDIA's driver takes 1.2 us for that, and 2.8 us for `cuLaunchKernel`
//! (docs/performance.md).
//!
//! A prepared launch has the effect of the plain one. Where it might not, launches stay plain: while a stream captures or a
//! profiler measures, with attributes, and once the program has changed streams, made green contexts, bound texture
//! references, or loaded code that launches kernels: a graph does not wait for those. Where several threads launch at once,
//! the plain ones are quicker: the driver launches graphs one by one. And where the GPU is behind, launches are plain: it
//! pauses between graphs ([`Lag`]).
//!
//! Each executor prepares for itself, one graph for a function and stream, since launches of one graph wait for each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use log::debug;
use virtio_cuda_protocol::cuda::table::Facts;
use virtio_cuda_protocol::cuda::{LaunchShape, StreamId};

use super::cores;
use super::lag::Lag;
use super::marks::Marks;
use crate::worker::gpu::{
    CUfunction, CUstream, Code, CuResult, CudaError, Driver, EVENT_DISABLE_TIMING, Launch, OneKernel,
    while_current, with_capture_relaxed,
};
use crate::worker::objects::{Kind, Object};

/// The launch at which a function is prepared for a stream; 0: never. Applies with the emulator, too.
pub const VARIABLE: &str = "VHOST_CUDA_PREPARE";
/// Making a graph takes 30 us, and a launch of it 1.3 us less than a plain one.
const DEFAULT_AFTER: u32 = 32;
/// The maximum number of awake executors where a thread launches one kernel after the other. With more of them, launches wait
/// for the driver's lock, which a graph's launch holds for longer than a plain one.
pub const MAX_AWAKE: usize = 2;
/// The maximum where a thread waits between its launches, and so leaves the lock to others.
const MAX_AWAKE_THAT_WAIT: usize = 4;
/// The maximum number of graphs per worker: each takes a tenth of a megabyte of the GPU.
const MAX_READY: usize = 128;
/// The maximum number of pairs of function and stream whose launches an executor counts.
const MAX_KNOWN: usize = 1024;
/// Launches of an executor after which it looks for graphs that it has not used since the last look, where there is no
/// room for another one.
const SWEEP: u32 = 16 * 1024;

/// The number of graphs of this worker.
static READY: AtomicUsize = AtomicUsize::new(0);

/// The state of a session for prepared launches.
#[derive(Debug)]
pub struct Preparing {
    after: u32,
    /// Counts calls that change the effect of launches.
    changes: AtomicU64,
    /// True if the program has set something that a node of a graph does not have.
    special: AtomicBool,
    /// The events of [`Lag`].
    marks: Marks,
}

impl Preparing {
    /// Reads the environment; by default launches are prepared where there is a GPU.
    pub fn new(emulated: bool) -> Self {
        let wanted = std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok());
        let after = wanted.unwrap_or(if emulated { 0 } else { DEFAULT_AFTER });
        let marks = Marks::new(EVENT_DISABLE_TIMING);
        Self { after, changes: AtomicU64::new(0), special: AtomicBool::new(false), marks }
    }

    /// Returns whether launches are ever prepared.
    pub fn is_wanted(&self) -> bool {
        self.after > 0
    }

    /// Returns whether a launch of this shape may be prepared, as far as this module knows. `behind_work`: the thread has not
    /// waited since its last launch.
    pub fn may_prepare(&self, shape: &LaunchShape, behind_work: bool) -> bool {
        let most = if behind_work { MAX_AWAKE } else { MAX_AWAKE_THAT_WAIT };
        self.is_wanted()
            && (shape.flags, shape.cluster) == (0, [0; 3])
            && !self.special.load(Ordering::Relaxed)
            && cores::awake() <= most
    }

    /// Must be called after a call with these facts.
    pub fn after(&self, facts: Facts) {
        if facts.makes_launches_special() {
            self.special.store(true, Ordering::Relaxed);
        }
        if facts.is_change_of_launches() {
            self.changed();
        }
    }

    /// Notes that the effect of launches has changed: graphs that were made before are not used any more.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// A launch that may be prepared.
#[derive(Debug)]
pub struct Request<'r> {
    /// Function or kernel.
    pub code: &'r Arc<Object>,
    /// The same for a plain launch.
    pub function: CUfunction,
    /// The stream's name, and the driver's handle.
    pub stream: (StreamId, CUstream),
    /// The launch itself.
    pub launch: Launch<'r>,
}

/// The prepared launches of an executor.
#[derive(Debug, Default)]
pub struct Prepared {
    entries: HashMap<Key, Entry>,
    /// The session's count when they were made.
    changes: u64,
    /// Launches since the last sweep.
    launches: u32,
    lag: Lag,
}

/// A function's object, the name of a stream, and a context's object. The entry keeps the memory of both objects, so that no
/// other object gets their addresses.
type Key = (usize, u64, usize);

#[derive(Debug)]
struct Entry {
    _code: Weak<Object>,
    context: Weak<Object>,
    state: State,
    /// True if it was used since the last sweep.
    used: bool,
}

#[derive(Debug)]
enum State {
    Counted(u32),
    Ready(OneKernel),
    /// The driver refuses to prepare it.
    Plain,
}

impl Prepared {
    /// Launches, by a graph if there is one or it is the launch's turn to get one.
    ///
    /// Errors: those of a plain launch.
    pub fn launch(
        &mut self,
        gpu: &Driver,
        preparing: &Preparing,
        context: &Weak<Object>,
        request: Request<'_>,
    ) -> CuResult<()> {
        let (name, stream) = request.stream;
        let key = (name.0, Weak::as_ptr(context).addr());
        if self.lag.is_behind(key) || !self.launch_graph(gpu, preparing, context, &request) {
            gpu.launch(request.function, stream, request.launch)?;
        }
        self.lag.launched(key, |mark| {
            // During another thread's capture the driver would consider the query, or a new event, unsafe.
            with_capture_relaxed(gpu, || {
                let behind = mark.is_some_and(|mark| !mark.is_done(gpu));
                (
                    behind,
                    context.upgrade().and_then(|context| preparing.marks.of(&context).record(gpu, stream)),
                )
            })
        });
        Ok(())
    }

    /// Returns false if nothing was launched.
    fn launch_graph(
        &mut self,
        gpu: &Driver,
        preparing: &Preparing,
        context: &Weak<Object>,
        request: &Request<'_>,
    ) -> bool {
        let changes = preparing.changes.load(Ordering::Acquire);
        if self.changes != changes {
            self.clear(gpu);
            self.changes = changes;
        }
        self.launches = self.launches.saturating_add(1);
        let key = (Arc::as_ptr(request.code).addr(), request.stream.0.0, Weak::as_ptr(context).addr());
        if self.entries.len() >= MAX_KNOWN && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| matches!(entry.state, State::Ready(_)));
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            _code: Arc::downgrade(request.code),
            context: context.clone(),
            state: State::Counted(0),
            used: false,
        });
        entry.used = true;
        if let State::Counted(count) = &mut entry.state {
            *count += 1;
            if *count < preparing.after {
                return false;
            }
            let more = |ready: usize| (ready < MAX_READY).then_some(ready + 1);
            if READY.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                self.sweep(gpu);
                return false;
            }
            let made = with_capture_relaxed(gpu, || make(gpu, context, request));
            debug!("a function is prepared: {:?}", made.as_ref().map(drop));
            entry.state = made.map_or_else(
                |_| {
                    READY.fetch_sub(1, Ordering::Relaxed);
                    State::Plain
                },
                State::Ready,
            );
        }
        let State::Ready(kernel) = &entry.state else { return false };
        let code = code_of(request.code);
        let launched = gpu.launch_one_kernel(kernel, code, &request.launch, request.stream.1);
        if let Err(error) = launched {
            debug!("a prepared launch is made plain: {error}");
            end(gpu, entry);
        }
        launched.is_ok()
    }

    /// Ends graphs that were not used since the last sweep, if that was long ago.
    fn sweep(&mut self, gpu: &Driver) {
        if self.launches < SWEEP {
            return;
        }
        self.launches = 0;
        self.entries.retain(|_, entry| {
            let keep = std::mem::take(&mut entry.used);
            if !keep {
                end(gpu, entry);
            }
            keep
        });
    }

    /// Ends all of them.
    pub fn clear(&mut self, gpu: &Driver) {
        for (_, mut entry) in self.entries.drain() {
            end(gpu, &mut entry);
        }
    }
}

fn code_of(object: &Object) -> Code {
    match object.kind() {
        Kind::Plain => Code::Function(object.raw()),
        Kind::Kernel => Code::Kernel(object.raw()),
    }
}

/// Makes a graph, unless the stream has an influence on its launches: a node has its own priority, and the current context.
fn make(gpu: &Driver, context: &Weak<Object>, request: &Request<'_>) -> CuResult<OneKernel> {
    let stream = request.stream.1;
    let is_plain = gpu.cuStreamGetPriority(stream)? == (0,)
        && context.upgrade().is_some_and(|context| gpu.cuStreamGetCtx(stream) == Ok((context.raw(),)));
    if !is_plain {
        return Err(CudaError::NOT_SUPPORTED);
    }
    gpu.one_kernel(code_of(request.code), &request.launch)
}

/// Ends an entry's graph. If its context has ended, the driver has freed a part of it, and must not be called: the rest stays,
/// and counts as a graph for ever.
fn end(gpu: &Driver, entry: &mut Entry) {
    let State::Ready(kernel) = std::mem::replace(&mut entry.state, State::Plain) else { return };
    let Some(context) = entry.context.upgrade() else { return };
    READY.fetch_sub(1, Ordering::Relaxed);
    let ended =
        with_capture_relaxed(gpu, || while_current(gpu, context.raw(), || gpu.end_one_kernel(kernel)));
    if let Err(error) = ended {
        debug!("a prepared launch does not end: {error}");
    }
}
