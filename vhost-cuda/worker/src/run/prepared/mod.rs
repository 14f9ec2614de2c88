// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frequent launches are prepared: the kernel becomes an executable graph of one node, whose parameters
//! change from launch to launch. NVIDIA's driver takes 1.2 us for that, and 2.8 us for `cuLaunchKernel`
//! (`docs/performance/runs/2026-11-26-h200-graphs-of-one-kernel.json`).
//!
//! A prepared launch has the effect of the plain one, and CUPTI reports the same kernel, as a node of a graph. Where it might have
//! another effect, launches stay plain: while a stream captures, with attributes, and once the program has changed streams, made
//! green contexts, bound texture references, or loaded code that launches kernels: a graph does not wait for those. Where several
//! threads launch at once, the plain ones are quicker: the driver launches graphs one by one. And where the GPU is behind, launches
//! are plain: it pauses between graphs ([`Lag`]).
//!
//! Each executor prepares for itself, one graph for a function and stream, since launches of one graph wait for each other. The graphs
//! of all executors end before a context may end ([`graphs`]).

mod graphs;
mod table;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use log::debug;
use virtio_cuda_protocol::cuda::StreamId;
use virtio_cuda_protocol::cuda::table::Facts;

use super::cores;
use super::lag::Lag;
use super::marks::Marks;
use crate::gpu::{
    CUfunction, CUstream, Code, CuResult, CudaError, Driver, EVENT_DISABLE_TIMING, Launch, OneKernel,
    with_capture_relaxed,
};
use crate::objects::{Kind, Object};
pub use graphs::Changing;
use graphs::Graphs;
use table::{Of, Table};

/// The launch at which a function is prepared for a stream. Making a graph takes 30 us, and a launch of it 1.3 us less than a plain
/// one.
const AFTER: u32 = 32;
/// The same with the emulator, where short programs are to prepare their launches, too.
const AFTER_EMULATED: u32 = 1;
/// The maximum number of awake executors where a thread launches one kernel after the other. With more of them, launches wait
/// for the driver's lock, which a graph's launch holds for longer than a plain one.
pub const MAX_AWAKE: usize = 2;
/// The maximum where a thread waits between its launches, and so leaves the lock to others.
const MAX_AWAKE_THAT_WAIT: usize = 4;

/// The state of a session for prepared launches.
#[derive(Debug)]
pub struct Preparing {
    /// 0: launches are never prepared.
    after: u32,
    /// Counts calls that change the effect of launches.
    changes: AtomicU64,
    /// True if the program has set something that a node of a graph does not have.
    special: AtomicBool,
    /// The events of [`Lag`].
    marks: Marks,
    graphs: Graphs,
}

impl Preparing {
    /// Prepares launches if `fast`.
    pub fn new(fast: bool, emulated: bool) -> Self {
        let after = match (fast, emulated) {
            (false, _) => 0,
            (true, false) => AFTER,
            (true, true) => AFTER_EMULATED,
        };
        let marks = Marks::new(EVENT_DISABLE_TIMING);
        let (changes, special) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { after, changes, special, marks, graphs: Graphs::default() }
    }

    /// Returns whether launches are ever prepared.
    fn is_wanted(&self) -> bool {
        self.after > 0
    }

    /// Returns whether a launch may be prepared, as far as this module knows. `behind_work`: the thread has not waited since its
    /// last launch.
    pub fn may_launch_graphs(&self, behind_work: bool) -> bool {
        let most = if behind_work { MAX_AWAKE } else { MAX_AWAKE_THAT_WAIT };
        self.is_wanted() && !self.special.load(Ordering::Relaxed) && cores::awake() <= most
    }

    /// Must be called before a call with these facts, which may end a context. The result is held until the call is done.
    pub fn before(&self, facts: Facts, gpu: &Driver) -> Option<Changing<'_>> {
        (self.is_wanted() && facts.is_change_of_launches()).then(|| self.graphs.end_all(gpu))
    }

    /// Ends all graphs. None is made until the result is dropped.
    pub fn end_graphs(&self, gpu: &Driver) -> Changing<'_> {
        self.graphs.end_all(gpu)
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
    /// The stream.
    pub stream: Stream<'r>,
    /// The launch itself.
    pub launch: Launch<'r>,
}

/// The stream of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'r> {
    /// Its name, which the guest may give to another stream later.
    pub name: StreamId,
    /// Its object; `None` for a default stream.
    pub object: Option<&'r Arc<Object>>,
    /// The driver's handle.
    pub raw: CUstream,
}

/// The prepared launches of an executor.
#[derive(Debug, Default)]
pub struct Prepared {
    launches: Table,
    /// The session's count when they were made.
    changes: u64,
    lag: Lag,
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
        let stream = request.stream.raw;
        let key = (request.stream.name.0, Weak::as_ptr(context).addr());
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
        let of = Of { code: request.code, stream: request.stream, context };
        let graph = self.launches.graph((gpu, &preparing.graphs), of, preparing.after, || {
            let made = with_capture_relaxed(gpu, || make(gpu, context, request));
            debug!("a function is prepared: {:?}", made.as_ref().map(drop));
            made
        });
        let Some(graph) = graph else { return false };
        let code = code_of(request.code);
        let launch = |kernel: &_| gpu.launch_one_kernel(kernel, code, &request.launch, request.stream.raw);
        match graph.with(launch) {
            Some(Ok(())) => return true,
            Some(Err(error)) => {
                debug!("a prepared launch is made plain: {error}");
                self.launches.give_up(gpu, of);
            }
            None => {}
        }
        false
    }

    /// Ends all of them.
    pub fn clear(&mut self, gpu: &Driver) {
        self.launches.clear(gpu);
    }
}

fn code_of(object: &Object) -> Code {
    match object.kind() {
        Kind::Plain => Code::Function(object.raw()),
        Kind::Kernel => Code::Kernel(object.raw()),
    }
}

/// Makes a graph, unless the stream has an influence on its launches.
fn make(gpu: &Driver, context: &Weak<Object>, request: &Request<'_>) -> CuResult<OneKernel> {
    if !is_plain(gpu, context, request.stream.raw)? {
        return Err(CudaError::NOT_SUPPORTED);
    }
    gpu.one_kernel(code_of(request.code), &request.launch)
}

/// Returns whether work in a stream is the same as in the current context's default stream: a node of a graph has its own priority,
/// and the current context.
fn is_plain(gpu: &Driver, context: &Weak<Object>, stream: CUstream) -> CuResult<bool> {
    Ok(gpu.cuStreamGetPriority(stream)? == (0,)
        && context.upgrade().is_some_and(|context| gpu.cuStreamGetCtx(stream) == Ok((context.raw(),))))
}
