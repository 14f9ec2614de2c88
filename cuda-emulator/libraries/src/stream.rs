// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Work in a stream of the emulated GPU.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cuda_abi::CUDA_HOST_NODE_PARAMS;
use cuda_abi::prototypes::functions::{
    cuGraphAddHostNode, cuGraphGetNodes, cuGraphHostNodeSetParams, cuLaunchHostFunc, cuStreamIsCapturing,
    cuStreamSynchronize,
};

use crate::symbols::driver_functions;

/// `CUDA_ERROR_NOT_INITIALIZED`
const NOT_INITIALIZED: c_int = 3;
/// `CUDA_ERROR_INVALID_VALUE`
const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`
const CAPTURE_UNSUPPORTED: c_int = 900;
/// `CUDA_ERROR_ILLEGAL_ADDRESS`
const ILLEGAL_ADDRESS: c_int = 700;

/// A `CUstream`.
pub type Stream = usize;

/// An address that is not device memory, or not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// The result of work in a stream.
pub type Done = Result<(), Fault>;

/// `cuda_emulator_reaches` (`cuda-emulator/src/driver/companion.rs`).
type Reaches = extern "C" fn(u64, u64) -> u32;
/// `cuda_emulator_report_illegal_address`.
type Report = extern "C" fn();

// Functions of these names have these types: their prototypes, and the emulator's own.
driver_functions! {
    launch: cuLaunchHostFunc = c"cuLaunchHostFunc";
    synchronize: cuStreamSynchronize = c"cuStreamSynchronize";
    is_capturing: cuStreamIsCapturing = c"cuStreamIsCapturing";
    nodes: cuGraphGetNodes = c"cuGraphGetNodes";
    add_node: cuGraphAddHostNode = c"cuGraphAddHostNode";
    set_node: cuGraphHostNodeSetParams = c"cuGraphHostNodeSetParams";
    reaches: Reaches = c"cuda_emulator_reaches";
    report: Report = c"cuda_emulator_report_illegal_address";
}

/// Returns whether that many bytes at `address` are memory that kernels may access.
pub fn reaches(address: usize, bytes: usize) -> bool {
    driver().is_some_and(|driver| (driver.reaches)(address as u64, bytes as u64) != 0)
}

/// Work by its number.
type Work = Arc<dyn Fn() -> Done + Send + Sync>;

/// Work that has not run yet, and what graphs may run again.
#[derive(Default)]
struct Pending {
    last: usize,
    /// The flag: it runs once.
    work: HashMap<usize, (Work, bool)>,
}

fn pending() -> std::sync::MutexGuard<'static, Pending> {
    static PENDING: OnceLock<Mutex<Pending>> = OnceLock::new();
    PENDING.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the work of that number. Work that runs once, but has been captured by a capture that began between the question and
/// the launch, runs at the first launch of its graph only.
extern "C" fn run(number: *mut c_void) {
    let number = number as usize;
    let work = {
        let mut pending = pending();
        match pending.work.get(&number) {
            Some((_, true)) => pending.work.remove(&number).map(|(work, _)| work),
            Some((work, false)) => Some(work.clone()),
            None => None,
        }
    };
    let Some(work) = work else { return };
    // A panic is an access outside of an array whose size was checked, or a size that is too large for any array.
    if catch_unwind(AssertUnwindSafe(|| work())).unwrap_or(Err(Fault)).is_err()
        && let Some(driver) = driver()
    {
        (driver.report)();
    }
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Returns whether a stream captures.
fn captures(driver: &Driver, stream: Stream) -> Result<bool, c_int> {
    let mut status = 0;
    // SAFETY: the driver checks the stream, and the place is a number's.
    match unsafe { (driver.is_capturing)(stream as u64, &raw mut status) } {
        0 => Ok(status != 0),
        error => Err(error),
    }
}

/// Keeps work until it has run once, or for ever. Returns its number.
fn keep(work: Work, runs_once: bool) -> usize {
    let mut pending = pending();
    pending.last += 1;
    let number = pending.last;
    pending.work.insert(number, (work, runs_once));
    number
}

/// Queues work, and returns its number.
fn launch(driver: &Driver, stream: Stream, work: Work, runs_once: bool) -> Result<usize, c_int> {
    let number = keep(work, runs_once);
    // SAFETY: `run` takes a number, which is good whether there is work of it or not.
    match unsafe { (driver.launch)(stream as u64, Some(run), number as *mut c_void) } {
        0 => Ok(number),
        error => {
            pending().work.remove(&number);
            Err(error)
        }
    }
}

/// Queues work. Work of a stream that captures stays until the process ends, since nothing reports the end of its graph.
///
/// Errors: the driver's, as a `CUresult`.
pub fn queue(stream: Stream, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), c_int> {
    let driver = driver().ok_or(NOT_INITIALIZED)?;
    let runs_once = !captures(driver, stream)?;
    launch(driver, stream, Arc::new(work), runs_once).map(drop)
}

/// Makes work the only node of `graph`, which has none; if `again`, in place of the work that its only node has. The work stays until the
/// process ends, since nothing reports the end of a graph.
///
/// Errors: the driver's, as a `CUresult`; `CUDA_ERROR_INVALID_VALUE` for a graph with another number of nodes.
pub fn put_into(
    graph: usize,
    again: bool,
    work: impl Fn() -> Done + Send + Sync + 'static,
) -> Result<(), c_int> {
    let driver = driver().ok_or(NOT_INITIALIZED)?;
    let (mut node, mut count) = (0, 1);
    let graph = graph as u64;
    // SAFETY: the driver checks the graph. Without places it only says how many nodes there are.
    check(unsafe { (driver.nodes)(graph, std::ptr::null_mut(), &raw mut count) })?;
    if count != usize::from(again) {
        return Err(INVALID_VALUE);
    }
    let number = keep(Arc::new(work), false);
    let params = CUDA_HOST_NODE_PARAMS { function: Some(run), argument: number };
    // SAFETY: a place for one node, and parameters of a node; `run` takes a number, which is good whether there is work of it or not.
    let put = unsafe {
        match again {
            true => check((driver.nodes)(graph, &raw mut node, &raw mut count))
                .and_then(|()| check((driver.set_node)(node, &raw const params))),
            false => check((driver.add_node)(&raw mut node, graph, std::ptr::null(), 0, &raw const params)),
        }
    };
    put.inspect_err(|_| drop(pending().work.remove(&number)))
}

/// Queues work that uses memory of the caller's, and waits for it. When this returns the work does not run, also not in a graph.
///
/// Errors: the driver's, as a `CUresult`; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for a stream that captures.
pub fn queue_and_wait(stream: Stream, work: impl Fn() -> Done + Send + Sync + 'static) -> Result<(), c_int> {
    let driver = driver().ok_or(NOT_INITIALIZED)?;
    if captures(driver, stream)? {
        return Err(CAPTURE_UNSUPPORTED);
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(&work)).unwrap_or(Err(Fault));
        done.store(true, Ordering::Release);
        result
    };
    let number = launch(driver, stream, Arc::new(work), true)?;
    // SAFETY: a stream of the driver's.
    match unsafe { (driver.synchronize)(stream as u64) } {
        0 => Ok(()),
        error => {
            // Another thread may have taken it already.
            let taken = pending().work.remove(&number).is_none();
            while taken && !is_done.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error)
        }
    }
}

/// Queues work that leaves a result for the caller, and waits for it.
///
/// Errors: as [`queue_and_wait`], and `CUDA_ERROR_ILLEGAL_ADDRESS`.
pub fn result_of<T: Send + 'static>(
    stream: Stream,
    work: impl Fn() -> Result<T, Fault> + Send + Sync + 'static,
) -> Result<T, c_int> {
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    let work = move || {
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(work()?);
        Ok(())
    };
    queue_and_wait(stream, work)?;
    let found = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.ok_or(ILLEGAL_ADDRESS)
}
