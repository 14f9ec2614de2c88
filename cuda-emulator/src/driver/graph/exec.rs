// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs: the nodes in an order in which one thread can execute them.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::body::{CUgraphNode, Graph, Node};
use super::conditional::{Conditional, Next};
use super::device_launch;
use super::footprint;
use super::memory::GraphMemory;
use super::user_object::References;
use super::work::Work;
use crate::driver::capture;
use crate::driver::context::Context;
use crate::driver::event::Event;
use crate::driver::handle::{Handle, Registry};
use crate::driver::launch::{RunningGraph, Updatable, Wanted, next_version};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::CUstream;
use crate::driver::stream::queue::Mark;
use crate::driver::trace;

/// An executable graph's handle.
pub type CUgraphExec = Handle<GraphExec>;

/// CUgraphInstantiate_flags
pub(super) const AUTO_FREE_ON_LAUNCH: u64 = 1;
pub(super) const UPLOAD: u64 = 2;
pub(super) const DEVICE_LAUNCH: u64 = 4;
pub(super) const USE_NODE_PRIORITY: u64 = 8;

static EXECS: Registry<GraphExec> = Registry::new();

impl crate::driver::handle::Object for GraphExec {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Exec);
}

/// An executable graph.
pub struct GraphExec {
    pub(super) handle: CUgraphExec,
    pub(super) flags: u64,
    /// The state that kernels launch: that of the last upload.
    uploaded: Mutex<Option<Arc<Body>>>,
    /// True if a kernel has launched it, or it is running.
    pub(super) waiting: AtomicBool,
    /// Replaced completely on a change, so that running launches keep theirs.
    body: Mutex<Arc<Body>>,
    /// The end of the latest launch: launches of the same graph never overlap.
    last: Mutex<Option<Mark>>,
}

/// The work of a launch.
#[derive(Clone)]
pub(super) struct Body {
    /// The nodes. Each follows its dependencies.
    pub(super) nodes: Vec<ExecNode>,
    /// The user objects of the graph that it was instantiated from or last updated with. Running launches keep
    /// theirs.
    pub(super) references: Arc<References>,
}

/// A node of an executable graph.
#[derive(Clone)]
pub(super) struct ExecNode {
    /// The graph's node that it was created from. Programs identify it by that node.
    pub(super) source: CUgraphNode,
    pub(super) work: Work,
    pub(super) enabled: bool,
    /// Grows with each change by the host.
    pub(super) version: u64,
    /// The work of a child graph node.
    pub(super) child: Option<Body>,
    /// The work of the graphs of a conditional node.
    pub(super) branches: Vec<Body>,
    pub(super) dependencies: Vec<CUgraphNode>,
}

impl Body {
    /// Returns a graph's body, or `None` when its dependencies are circular.
    pub(super) fn of(graph: &Graph) -> Option<Body> {
        let make = |(source, node): (CUgraphNode, Node)| {
            let child = match &node.work {
                Work::Child(child) => Some(Body::of(child)?),
                _ => None,
            };
            let branches = match &node.work {
                Work::Conditional(node) => {
                    node.graphs.iter().map(|graph| Body::of(graph)).collect::<Option<_>>()?
                }
                _ => Vec::new(),
            };
            let dependencies = node.dependencies.iter().map(|(node, _)| *node).collect();
            let (work, enabled, version) = (node.work, true, next_version());
            Some(ExecNode { source, work, enabled, version, child, branches, dependencies })
        };
        let nodes = graph.sorted()?.into_iter().map(make).collect::<Option<_>>()?;
        let references = References::default();
        references.share(&graph.references);
        Some(Body { nodes, references: Arc::new(references) })
    }

    /// Returns the node that was created from a graph's node, also in children.
    pub(super) fn find(&mut self, source: CUgraphNode) -> Option<&mut ExecNode> {
        for node in &mut self.nodes {
            if node.source == source {
                return Some(node);
            }
            let mut inside = node.child.iter_mut().chain(&mut node.branches);
            if let Some(found) = inside.find_map(|body| body.find(source)) {
                return Some(found);
            }
        }
        None
    }

    /// Calls `body` for each node that kernels may change.
    pub(super) fn for_updatable(&self, body: &mut impl FnMut(Wanted<'_>, &Arc<Updatable>)) {
        for node in &self.nodes {
            if let Some((wanted, updatable)) = node.updatable() {
                body(wanted, updatable);
            }
            node.child.iter().chain(&node.branches).for_each(|inside| inside.for_updatable(body));
        }
    }

    /// Returns whether kernels may change any node.
    pub(super) fn is_updatable(&self) -> bool {
        let mut any = false;
        self.for_updatable(&mut |_, _| any = true);
        any
    }

    fn plan(&self, plan: &mut Plan) {
        for node in self.nodes.iter().filter(|node| node.enabled) {
            match &node.work {
                Work::EventWait(_, event) => plan.waits.extend(event.mark()),
                Work::EventRecord(_, event) => {
                    plan.records.push_back((Arc::clone(event), Arc::new(OnceLock::new())));
                }
                Work::Alloc(memory) => plan.memory.push((Arc::clone(memory), true)),
                Work::Free(_, Some(memory)) => plan.memory.push((Arc::clone(memory), false)),
                _ => {}
            }
            node.child.iter().for_each(|child| child.plan(plan));
        }
    }

    /// Executes all work, in the order of [`Self::plan`].
    pub(super) fn run(
        &self,
        context: &Context,
        stamps: &mut VecDeque<Arc<OnceLock<Instant>>>,
        graph: &dyn RunningGraph,
    ) -> CuResult<()> {
        let nodes = self.nodes.iter().enumerate();
        for (position, node) in nodes.filter(|(_, node)| node.enabled || node.updatable().is_some()) {
            if let Some(error) = context.sticky() {
                return Err(error);
            }
            trace::node(position, || match node.updatable() {
                Some((wanted, updatable)) => updatable.run(wanted, graph),
                None => node.work.run(graph),
            })?;
            if let Work::EventRecord(..) = node.work
                && let Some(stamp) = stamps.pop_front()
            {
                stamp.get_or_init(Instant::now);
            }
            if let Some(child) = &node.child {
                child.run(context, stamps, graph)?;
            }
            if let Work::Conditional(conditional) = &node.work {
                node.run_branches(conditional, context, graph)?;
            }
        }
        Ok(())
    }

    /// Sets conditions to their values at the start of a graph.
    pub(super) fn start(&self) {
        for node in &self.nodes {
            if let Work::Conditional(conditional) = &node.work {
                conditional.condition.start();
            }
            node.child.iter().chain(&node.branches).for_each(Body::start);
        }
    }

    /// Returns whether graphs of conditional nodes contain only allowed nodes: kernels, copies, fills and graphs.
    fn branches_are_plain(&self, inside: bool) -> bool {
        self.nodes.iter().all(|node| {
            let plain = matches!(
                node.work,
                Work::Kernel(_)
                    | Work::Copy(_)
                    | Work::Fill(_)
                    | Work::Empty
                    | Work::Child(_)
                    | Work::Conditional(_)
            );
            (plain || !inside)
                && node.child.iter().all(|child| child.branches_are_plain(inside))
                && node.branches.iter().all(|branch| branch.branches_are_plain(true))
        })
    }
}

impl ExecNode {
    /// Returns, if kernels may change the node: the host's state, and the state that kernels change.
    fn updatable(&self) -> Option<(Wanted<'_>, &Arc<Updatable>)> {
        let Work::Kernel(kernel) = &self.work else { return None };
        let wanted = Wanted { kernel, enabled: self.enabled, version: self.version };
        Some((wanted, kernel.updatable.as_ref()?))
    }

    /// Notes a change by the host.
    pub(super) fn changed(&mut self) {
        self.version = next_version();
    }

    fn run_branches(
        &self,
        conditional: &Conditional,
        context: &Context,
        graph: &dyn RunningGraph,
    ) -> CuResult<()> {
        let run = |index: usize| match self.branches.get(index) {
            // They contain no events.
            Some(branch) => branch.run(context, &mut VecDeque::new(), graph),
            None => Ok(()),
        };
        loop {
            match conditional.next() {
                Next::Last(index) => return run(index),
                Next::Again(index) => run(index)?,
                Next::Done => return Ok(()),
            }
            if let Some(error) = context.sticky() {
                return Err(error);
            }
        }
    }
}

/// The waits, records and allocations of a launch.
#[derive(Default)]
struct Plan {
    waits: Vec<Mark>,
    records: VecDeque<(Arc<Event>, Arc<OnceLock<Instant>>)>,
    /// Allocations (true) and frees, in order.
    memory: Vec<(Arc<GraphMemory>, bool)>,
}

impl Plan {
    fn use_memory(&self, automatic: bool) -> CuResult<()> {
        let mut live: Vec<(u64, bool)> = Vec::new();
        for (memory, allocates) in &self.memory {
            let known = live.iter().rev().find(|(ptr, _)| *ptr == memory.ptr).map(|(_, live)| *live);
            let now = known.unwrap_or_else(|| memory.is_live());
            let left_over = *allocates && known.is_none() && automatic;
            if now == *allocates && !left_over {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            live.push((memory.ptr, *allocates));
        }
        for (memory, allocates) in &self.memory {
            let _ = if *allocates { memory.allocate() } else { memory.free() };
        }
        Ok(())
    }
}

impl GraphExec {
    pub(super) fn lock(&self) -> MutexGuard<'_, Arc<Body>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the host's present state the one that kernels launch and change.
    pub(super) fn upload(&self) {
        let body = self.body();
        body.for_updatable(&mut |wanted, updatable| updatable.upload(wanted));
        // Other graphs do not keep their origin longer than necessary.
        if self.is_for_device() {
            *self.uploaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }

    /// Returns the work of a launch by a kernel, or `None` if a kernel cannot launch the graph yet.
    pub(super) fn uploaded(&self) -> Option<Arc<Body>> {
        self.uploaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the work of a launch that begins now.
    pub(super) fn body(&self) -> Arc<Body> {
        Arc::clone(&self.lock())
    }

    /// Returns whether kernels can launch it.
    pub(super) fn is_for_device(&self) -> bool {
        self.flags & DEVICE_LAUNCH != 0
    }

    /// Returns the kind of a node.
    pub(super) fn kind_of(&self, source: CUgraphNode) -> CuResult<u32> {
        let mut body = self.lock();
        let node = Arc::make_mut(&mut body).find(source);
        node.map(|node| node.work.kind()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the work of a node.
    pub(super) fn work_of(&self, source: CUgraphNode) -> CuResult<Work> {
        let mut body = self.lock();
        let node = Arc::make_mut(&mut body).find(source);
        node.map(|node| node.work.clone()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Changes the work of a node. Its kind must stay.
    pub(super) fn set_work(&self, source: CUgraphNode, work: Work) -> CuResult<()> {
        let mut body = self.lock();
        let body = Arc::make_mut(&mut body);
        let node = body.find(source).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if node.work.kind() != work.kind() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if let (Work::Kernel(old), Work::Kernel(new)) = (&node.work, &work)
            && old.context.handle != new.context.handle
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        node.work = match (&node.work, work) {
            (Work::Kernel(old), Work::Kernel(new)) if old.updatable.is_some() => {
                Work::Kernel(Arc::new(new.in_place_of(old)?))
            }
            (_, work) => work,
        };
        node.changed();
        Ok(())
    }
}

/// Instantiates a graph. An error includes the reason (CUgraphInstantiateResult) and the node.
pub(super) fn instantiate(graph: &Graph, flags: u64) -> Result<CUgraphExec, (CUresult, u32, CUgraphNode)> {
    const ERROR: u32 = 1;
    const INVALID_STRUCTURE: u32 = 2;
    const OPERATION_NOT_SUPPORTED: u32 = 3;
    const CONDITIONAL_HANDLE_UNUSED: u32 = 5;
    let refuse = |why| (CUresult::CUDA_ERROR_INVALID_VALUE, why, Handle::NULL);
    if flags & !(AUTO_FREE_ON_LAUNCH | UPLOAD | DEVICE_LAUNCH | USE_NODE_PRIORITY) != 0 || graph.is_child() {
        return Err(refuse(ERROR));
    }
    // Memory would never be freed after a launch by the device.
    if flags & DEVICE_LAUNCH != 0 && flags & AUTO_FREE_ON_LAUNCH != 0 {
        return Err(refuse(ERROR));
    }
    if flags & DEVICE_LAUNCH != 0 {
        // Such a graph contains work for the device, and no other work.
        if graph.lock().is_empty() {
            return Err(refuse(ERROR));
        }
        if let Some(node) = graph.not_for_device() {
            return Err((CUresult::CUDA_ERROR_INVALID_VALUE, OPERATION_NOT_SUPPORTED, node));
        }
    }
    let body = Body::of(graph).ok_or(refuse(INVALID_STRUCTURE))?;
    if !graph.uses_its_conditions() {
        return Err(refuse(CONDITIONAL_HANDLE_UNUSED));
    }
    if !body.branches_are_plain(false) {
        return Err(refuse(INVALID_STRUCTURE));
    }
    let (mut taken, mut free) = (Vec::new(), true);
    body.for_updatable(&mut |_, updatable| {
        free = free && updatable.take();
        taken.extend(free.then(|| Arc::clone(updatable)));
    });
    if !free {
        taken.iter().for_each(|updatable| updatable.give_back());
        return Err((CUresult::CUDA_ERROR_NOT_SUPPORTED, ERROR, Handle::NULL));
    }
    let handle = if flags & DEVICE_LAUNCH != 0 { Handle::unique_high() } else { Handle::unique() };
    let exec = GraphExec {
        handle,
        flags,
        uploaded: Mutex::default(),
        waiting: AtomicBool::new(false),
        body: Mutex::new(Arc::new(body)),
        last: Mutex::default(),
    };
    EXECS.insert(handle, Arc::new(exec));
    Ok(handle)
}

/// Returns the executable graph of a handle.
pub(super) fn find(handle: CUgraphExec) -> CuResult<Arc<GraphExec>> {
    EXECS.get(handle).ok_or_else(|| handle.refusal())
}

/// cuGraphExecDestroy: running launches continue.
pub(super) fn destroy(handle: CUgraphExec) -> CuResult<()> {
    let exec = EXECS.remove(handle).ok_or_else(|| handle.refusal())?;
    exec.body().for_updatable(&mut |_, updatable| updatable.give_back());
    Ok(())
}

impl Drop for GraphExec {
    /// Called when it is destroyed and its launches have ended.
    fn drop(&mut self) {
        self.body().for_updatable(&mut |wanted, updatable| updatable.end(wanted.version));
    }
}

/// cuGraphLaunch
pub(super) fn launch(handle: CUgraphExec, stream: CUstream) -> CuResult<()> {
    let exec = find(handle)?;
    let (context, stream) = capture::place_work(stream)?;
    // A graph launch cannot be captured.
    capture::refuse(&stream)?;
    let body = exec.body();
    exec.upload();
    context.flush_printf();
    let mut plan = Plan::default();
    body.plan(&mut plan);
    stream.queue.wait_for_room();
    let mut last = exec.last.lock().unwrap_or_else(PoisonError::into_inner);
    plan.use_memory(exec.flags & AUTO_FREE_ON_LAUNCH != 0)?;
    plan.waits.extend(last.clone());
    plan.waits.retain(|mark| !mark.is_of(&stream.queue) && !mark.reached());
    let stamps: VecDeque<_> = plan.records.iter().map(|(_, stamp)| Arc::clone(stamp)).collect();
    let held = Arc::clone(&exec);
    footprint::begin(&plan.memory, &stream.queue);
    let mark = context.append(&stream, plan.waits, move |context, sticky| {
        let mut left = stamps.clone();
        let result =
            if sticky.is_some() { Ok(()) } else { device_launch::run(&held, &body, context, &mut left) };
        for stamp in stamps {
            stamp.get_or_init(Instant::now);
        }
        result
    });
    footprint::end(&plan.memory, &mark);
    for (event, stamp) in plan.records {
        event.set_record(mark.clone(), stamp);
    }
    *last = Some(mark.clone());
    drop(last);
    context.end_asynchronous(&mark)
}
