// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of objects. Contexts, graphs and modules are counted from 1 as they are seen first; the driver numbers streams and
//! devices.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::quiet::unrecorded;
use crate::result::{
    CUptiResult, INVALID_CONTEXT, INVALID_DEVICE, INVALID_PARAMETER, INVALID_STREAM, NOT_SUPPORTED, Result,
    enter, set,
};
use crate::{numbers, objects};

/// The maximum number of objects of a kind that keep their number (2 MiB). Limits the memory of a program that makes graphs
/// without end.
const MAX_OBJECTS: usize = 1 << 16;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`, of the two types of thread ids: records have the kernel's.
const THREAD_ID_SYSTEM: u32 = 1;
/// Exceeds the handles of drivers, which are addresses of the process or numbers of the guest's library.
const FIRST_HIDDEN: u64 = 0x7fff_0000_0000_0000;

/// Numbers by handle.
#[derive(Debug, Default)]
struct Numbers {
    last: u32,
    known: BTreeMap<u64, u32>,
}

impl Numbers {
    const NONE: Self = Self { last: 0, known: BTreeMap::new() };

    fn of(&mut self, handle: u64) -> u32 {
        if let Some(number) = self.known.get(&handle) {
            return *number;
        }
        if self.known.len() >= MAX_OBJECTS {
            self.known.pop_first();
        }
        self.last = self.last.wrapping_add(1);
        self.known.insert(handle, self.last);
        self.last
    }
}

/// Graphs, executable graphs and their nodes.
#[derive(Debug)]
struct Graphs {
    /// Numbers of graphs and executable graphs, which differ.
    numbers: Numbers,
    /// The number of nodes that a graph has had.
    counts: BTreeMap<u64, u32>,
    /// Numbers of nodes: that of the graph in the upper half, and the position in the order of creation in the lower one.
    nodes: BTreeMap<u64, u64>,
    /// The handle of the last node of an executable graph: programs see no others of these nodes.
    last_hidden: u64,
    /// The executable graphs that calls have launched, by the call's number.
    launched: BTreeMap<u32, u32>,
}

impl Graphs {
    const NONE: Self = Self {
        numbers: Numbers::NONE,
        counts: BTreeMap::new(),
        nodes: BTreeMap::new(),
        last_hidden: FIRST_HIDDEN,
        launched: BTreeMap::new(),
    };

    /// Returns the number of a node. A new one belongs to `graph`.
    fn node(&mut self, graph: u64, node: u64) -> u64 {
        if let Some(number) = self.nodes.get(&node) {
            return *number;
        }
        for map_is_full in [self.nodes.len() >= MAX_OBJECTS, self.counts.len() >= MAX_OBJECTS] {
            if map_is_full {
                self.nodes.pop_first();
                self.counts.pop_first();
            }
        }
        let count = self.counts.entry(graph).or_default();
        let position = *count;
        *count = count.wrapping_add(1);
        let number = u64::from(self.numbers.of(graph)) << 32 | u64::from(position);
        self.nodes.insert(node, number);
        number
    }

    /// Forgets a graph or executable graph, and its nodes.
    fn forget(&mut self, graph: u64) {
        self.counts.remove(&graph);
        if let Some(number) = self.numbers.known.remove(&graph) {
            self.nodes.retain(|_, node| *node >> 32 != u64::from(number));
        }
    }
}

#[derive(Debug)]
struct Objects {
    contexts: Numbers,
    modules: Numbers,
    graphs: Graphs,
}

static OBJECTS: Mutex<Objects> =
    Mutex::new(Objects { contexts: Numbers::NONE, modules: Numbers::NONE, graphs: Graphs::NONE });

fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of a context; 0 for none.
pub fn of_context(context: *mut c_void) -> u32 {
    if context.is_null() { 0 } else { objects().contexts.of(context as u64) }
}

/// Returns the number of a module or library.
pub fn of_module(module: u64) -> u32 {
    objects().modules.of(module)
}

/// Numbers a new graph or executable graph.
pub fn add_graph(graph: u64) {
    objects().graphs.numbers.of(graph);
}

/// Numbers a new node of a graph.
pub fn add_node(graph: u64, node: u64) {
    objects().graphs.node(graph, node);
}

/// Numbers the next node of an executable graph, and returns a handle for it.
pub fn add_hidden_node(exec: u64) -> u64 {
    let graphs = &mut objects().graphs;
    graphs.last_hidden += 1;
    let node = graphs.last_hidden;
    graphs.node(exec, node);
    node
}

/// Forgets a graph or executable graph that ends: its handle may be used again.
pub fn forget_graph(graph: u64) {
    objects().graphs.forget(graph);
}

/// Forgets a node that ends.
pub fn forget_node(node: u64) {
    objects().graphs.nodes.remove(&node);
}

/// Forgets a context that ends.
pub fn forget_context(context: *mut c_void) {
    objects().contexts.known.remove(&(context as u64));
}

/// Notes which executable graph a call launches: the records of its work come later.
pub fn note_launch(correlation: u32, exec: u64) {
    let graphs = &mut objects().graphs;
    let number = graphs.numbers.of(exec);
    numbers::insert(&mut graphs.launched, MAX_OBJECTS, correlation, number);
}

/// Returns the program's numbers of a graph and a node, from those of the provider and the call that has launched the graph; zeros if
/// that call launches none: workers launch kernels as graphs of their own.
pub fn of_work(correlation: u32, graph: u32, node: u64) -> (u32, u64) {
    if node == 0 {
        return (graph, 0);
    }
    let launched = objects().graphs.launched.get(&correlation).copied();
    launched.map_or((0, 0), |graph| (graph, u64::from(graph) << 32 | node & u64::from(u32::MAX)))
}

/// Returns the driver's number of a stream, after a look at its context.
fn stream_id(context: u64, stream: u64, per_thread: bool) -> Result<u32> {
    let ask = || {
        let is_there = context == 0 || stream < 3 || objects::context_of(stream) == Some(context);
        objects::stream_id(stream, per_thread).filter(|_| is_there)
    };
    let id = unrecorded(ask).ok_or(INVALID_STREAM)?;
    Ok(id as u32)
}

/// Stores the number of a context; 0 for NULL.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(context: *mut c_void, id: *mut u32) -> CUptiResult {
    enter(|| {
        let is_one = || context.is_null() || objects::device_of(context as u64).is_some();
        if !unrecorded(is_one) {
            return Err(INVALID_CONTEXT);
        }
        // SAFETY: this function's contract.
        unsafe { set(id, of_context(context)) }
    })
}

/// Stores the ordinal of a context's device. NULL is the current context.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetDeviceId(context: *mut c_void, id: *mut u32) -> CUptiResult {
    enter(|| {
        let ask = || objects::device_of(context as u64);
        let device = unrecorded(ask).ok_or(INVALID_DEVICE)?;
        // SAFETY: this function's contract.
        unsafe { set(id, device) }
    })
}

/// Stores the number of a stream, which must be one of `context` unless that is NULL.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamIdEx(
    context: *mut c_void,
    stream: *mut c_void,
    per_thread: u8,
    id: *mut u32,
) -> CUptiResult {
    // SAFETY: this function's contract.
    enter(|| unsafe { set(id, stream_id(context as u64, stream as u64, per_thread != 0)?) })
}

/// As [`cuptiGetStreamIdEx`], with the legacy default stream.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamId(
    context: *mut c_void,
    stream: *mut c_void,
    id: *mut u32,
) -> CUptiResult {
    // SAFETY: this function's contract.
    unsafe { cuptiGetStreamIdEx(context, stream, 0, id) }
}

/// Stores the number of a graph.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphId(graph: *mut c_void, id: *mut u32) -> CUptiResult {
    enter(|| {
        if graph.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: this function's contract.
        unsafe { set(id, objects().graphs.numbers.of(graph as u64)) }
    })
}

/// Stores the number of an executable graph.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphExecId(exec: *mut c_void, id: *mut u32) -> CUptiResult {
    // SAFETY: this function's contract.
    unsafe { cuptiGetGraphId(exec, id) }
}

/// Stores the number of a node.
///
/// # Safety
///
/// `id` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphNodeId(node: *mut c_void, id: *mut u64) -> CUptiResult {
    enter(|| {
        if node.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: this function's contract.
        unsafe { set(id, objects().graphs.node(0, node as u64)) }
    })
}

/// Accepts the kernel's thread ids, which records have.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: u32) -> CUptiResult {
    enter(|| if kind == THREAD_ID_SYSTEM { Ok(()) } else { Err(NOT_SUPPORTED) })
}

/// Stores the type of thread ids.
///
/// # Safety
///
/// `kind` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetThreadIdType(kind: *mut u32) -> CUptiResult {
    // SAFETY: this function's contract.
    enter(|| unsafe { set(kind, THREAD_ID_SYSTEM) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_number_of_their_graph() {
        let mut graphs = Graphs::NONE;
        assert_eq!([graphs.numbers.of(70), graphs.numbers.of(71), graphs.numbers.of(70)], [1, 2, 1]);
        assert_eq!(
            [graphs.node(71, 5), graphs.node(70, 6), graphs.node(71, 7)],
            [2 << 32, 1 << 32, 2 << 32 | 1]
        );
        assert_eq!(graphs.node(0, 7), 2 << 32 | 1);
        graphs.forget(71);
        assert_eq!(graphs.nodes.keys().copied().collect::<Vec<_>>(), [6]);
        assert_eq!(graphs.node(71, 5), 3 << 32);
    }

    #[test]
    fn work_of_a_graph_has_the_programs_numbers() {
        note_launch(70_001, 0x7070);
        let number = objects().graphs.numbers.of(0x7070);
        assert_eq!(of_work(70_001, 9, 9 << 32 | 4), (number, u64::from(number) << 32 | 4));
        assert_eq!(of_work(70_001, 0, 0), (0, 0));
        assert_eq!(of_work(70_002, 9, 9 << 32 | 4), (0, 0), "a graph of the worker");
    }
}
