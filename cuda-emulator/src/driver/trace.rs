// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports calls to the project's own libcupti, which looks the name up with dlsym, and measures kernels, copies and
//! fills. It is not part of CUDA.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_MEMCPY, ACTIVITY_MEMSET, API_DRIVER, TRACE_VERSION, TraceArguments,
    TraceHooks, TraceProvider, TraceSink, TraceWork,
};

use super::result::{CUresult, CuResult};

/// The maximum number of waiting pieces of work (about 35 MiB), because a program may never request them.
const MAX_WORK: usize = 1 << 18;

/// `CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE`
pub(super) const PAGEABLE: u8 = 1;
/// `CUPTI_ACTIVITY_MEMORY_KIND_PINNED`
pub(super) const PINNED: u8 = 2;
/// `CUPTI_ACTIVITY_MEMORY_KIND_DEVICE`
pub(super) const DEVICE: u8 = 3;
/// `CUPTI_ACTIVITY_MEMORY_KIND_ARRAY`
pub(super) const ARRAY: u8 = 4;

/// The upper half of the number of a node, in which NVIDIA's CUPTI has its graph. The project's own libcupti, which knows the graph,
/// replaces it.
const GRAPH: u64 = 1 << 32;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());
static ACTIVE: AtomicBool = AtomicBool::new(false);
static GRID: AtomicU64 = AtomicU64::new(1);

static PROVIDER: TraceProvider =
    TraceProvider { version: TRACE_VERSION, hooks: set_hooks, start, stop, now, drain };

/// Work, and the name of a kernel.
type Measured = (TraceWork, Option<Arc<str>>);

#[derive(Default)]
struct Store {
    work: VecDeque<Measured>,
    dropped: u64,
}

static STORE: Mutex<Store> = Mutex::new(Store { work: VecDeque::new(), dropped: 0 });

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The call of a piece of work, and its location.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    correlation: u32,
    device: u32,
    context: u32,
    stream: u32,
}

thread_local! {
    /// The job of a stream that this thread runs.
    static RUNNING: Cell<Option<Place>> = const { Cell::new(None) };
    /// The number of the graph node that this thread runs, or 0.
    static NODE: Cell<u64> = const { Cell::new(0) };
}

/// Passes the functions that libcupti calls to it.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_emulator_trace_provider() -> *const TraceProvider {
    &raw const PROVIDER
}

extern "C" fn set_hooks(hooks: *const TraceHooks) {
    HOOKS.store(hooks.cast_mut(), Ordering::Relaxed);
}

fn hooks() -> Option<&'static TraceHooks> {
    // SAFETY: NULL, or what libcupti passed to `set_hooks`: a constant of a library that stays loaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Runs a call of the API, and reports it.
pub(super) fn told(
    name: &'static str,
    arguments: impl FnOnce() -> TraceArguments,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(hooks) = hooks() else { return call() };
    let number = || call().0.cast_signed();
    CUresult(hooks.told(API_DRIVER, name, &arguments(), number).cast_unsigned())
}

/// Reports that a context begins to end.
pub(super) fn context_ends(context: *mut c_void) {
    if let Some(hooks) = hooks() {
        (hooks.context_ends)(context);
    }
}

extern "C" fn start() -> i32 {
    ACTIVE.store(true, Ordering::Relaxed);
    0
}

extern "C" fn stop() -> i32 {
    ACTIVE.store(false, Ordering::Relaxed);
    0
}

/// Returns the time of day in nanoseconds.
fn time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

extern "C" fn now(ns: &mut u64) -> i32 {
    *ns = time();
    0
}

extern "C" fn drain(sink: TraceSink, data: *mut c_void, dropped: &mut u64) -> i32 {
    let Store { work, dropped: lost } = std::mem::take(&mut *store());
    *dropped = dropped.saturating_add(lost);
    for (work, name) in &work {
        let (start, bytes) = name.as_ref().map_or((null(), 0), |name| (name.as_ptr(), name.len()));
        sink(data, work, start, bytes);
    }
    0
}

/// Returns the location of work that is put into a stream now, if measurements are active: the ordinal of a device,
/// and the ids of a context and a stream.
pub(super) fn place(device: i32, context: u64, stream: u64) -> Option<Place> {
    if !ACTIVE.load(Ordering::Relaxed) {
        return None;
    }
    // Work that a job puts into another stream belongs to the call of the job.
    let correlation = match RUNNING.get() {
        Some(place) => place.correlation,
        None => hooks().map_or(0, |hooks| (hooks.correlation)()),
    };
    Some(Place {
        correlation,
        device: device.cast_unsigned(),
        context: context as u32,
        stream: stream as u32,
    })
}

/// Runs a job of a stream at a location.
pub(super) fn at<T>(place: Option<Place>, job: impl FnOnce() -> T) -> T {
    let Some(place) = place else { return job() };
    struct Restore(Option<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _restore = Restore(RUNNING.replace(Some(place)));
    job()
}

/// Runs the node of a graph at this position.
pub(super) fn node<T>(position: usize, run: impl FnOnce() -> T) -> T {
    NODE.set(GRAPH | position as u64);
    let value = run();
    NODE.set(0);
    value
}

/// Executes work and measures it, in the job of a stream. `describe` is called for the rest only if measurements are
/// active.
fn measured(describe: impl FnOnce() -> Measured, work: impl FnOnce() -> CuResult<()>) -> CuResult<()> {
    let Some(place) = RUNNING.get().filter(|_| ACTIVE.load(Ordering::Relaxed)) else { return work() };
    let start = time();
    let result = work();
    let end = time().max(start + 1);
    let (about, name) = describe();
    let Place { correlation, device, context, stream } = place;
    let mut store = store();
    if store.work.len() < MAX_WORK {
        let graph_node = NODE.get();
        let work = TraceWork { start, end, correlation, device, context, stream, graph_node, ..about };
        store.work.push_back((work, name));
    } else {
        store.dropped += 1;
    }
    result
}

/// Runs a kernel. `describe` returns its name, grid, block, static and dynamic shared memory and registers.
pub(super) fn kernel(
    describe: impl FnOnce() -> (Arc<str>, [[u32; 3]; 2], [u32; 2], u32),
    run: impl FnOnce() -> CuResult<()>,
) -> CuResult<()> {
    let about = || {
        let (name, [grid, block], shared, registers) = describe();
        let grid_id = GRID.fetch_add(1, Ordering::Relaxed);
        let kind = ACTIVITY_CONCURRENT_KERNEL;
        (TraceWork { kind, grid, block, shared, registers, grid_id, ..TraceWork::default() }, Some(name))
    };
    measured(about, run)
}

/// `CUpti_ActivityMemcpyKind`
fn direction(from: u8, to: u8) -> u8 {
    let is_host = |kind| kind == PAGEABLE || kind == PINNED;
    match (from, to) {
        (from, to) if is_host(from) && is_host(to) => 9,
        (from, ARRAY) if is_host(from) => 3,
        (ARRAY, to) if is_host(to) => 4,
        (ARRAY, ARRAY) => 5,
        (ARRAY, _) => 6,
        (_, ARRAY) => 7,
        (from, _) if is_host(from) => 1,
        (_, to) if is_host(to) => 2,
        _ => 8,
    }
}

/// Copies that many bytes between two kinds of memory.
pub(super) fn copy(bytes: u64, [from, to]: [u8; 2], run: impl FnOnce() -> CuResult<()>) -> CuResult<()> {
    let kinds = [direction(from, to), from, to, 0];
    measured(|| (TraceWork { kind: ACTIVITY_MEMCPY, bytes, kinds, ..TraceWork::default() }, None), run)
}

/// Fills that many bytes with a pattern.
pub(super) fn fill(bytes: u64, pattern: [u8; 4], run: impl FnOnce() -> CuResult<()>) -> CuResult<()> {
    let (value, kinds) = (u32::from_le_bytes(pattern), [0, 0, DEVICE, 0]);
    measured(|| (TraceWork { kind: ACTIVITY_MEMSET, bytes, value, kinds, ..TraceWork::default() }, None), run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_cuptis_directions() {
        let pairs = [
            (PAGEABLE, DEVICE),
            (DEVICE, PINNED),
            (DEVICE, DEVICE),
            (PINNED, PAGEABLE),
            (PINNED, ARRAY),
            (ARRAY, DEVICE),
        ];
        assert_eq!(pairs.map(|(from, to)| direction(from, to)), [1, 2, 8, 9, 3, 6]);
    }

    #[test]
    fn only_work_of_jobs_is_measured() {
        let about = || (TraceWork::default(), None);
        let place = Place { correlation: 70_001, ..Place::default() };
        let count = || store().work.iter().filter(|(work, _)| work.correlation == 70_001).count();
        assert_eq!(measured(about, || Ok(())), Ok(()));
        assert_eq!(at(Some(place), || measured(about, || Ok(()))), Ok(()));
        assert_eq!(count(), 0);
        start();
        assert_eq!(at(Some(place), || measured(about, || Ok(()))), Ok(()));
        stop();
        assert_eq!(count(), 1);
        let found = store().work.iter().find(|(work, _)| work.correlation == 70_001).map(|(work, _)| *work);
        assert!(found.is_some_and(|work| work.start > 0 && work.end > work.start));
    }
}
