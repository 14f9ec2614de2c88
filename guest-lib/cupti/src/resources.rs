// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callbacks about objects and waits: contexts, streams, modules and graphs that a call makes, changes or ends. Names and arguments of
//! the calls of the driver say all of it; the runtime is built on these.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::callbacks::{self, RESOURCE, SYNCHRONIZE};
use crate::{driver, ids, objects, quiet};

/// `CUpti_CallbackIdResource`
pub const CONTEXT_CREATED: u32 = 1;
pub const CONTEXT_DESTROY_STARTING: u32 = 2;
const STREAM_CREATED: u32 = 3;
const STREAM_DESTROY_STARTING: u32 = 4;
const INIT_FINISHED: u32 = 5;
const MODULE_LOADED: u32 = 6;
const MODULE_UNLOAD_STARTING: u32 = 7;
const GRAPH_CREATED: u32 = 9;
const GRAPH_DESTROY_STARTING: u32 = 10;
const GRAPH_CLONED: u32 = 11;
const NODE_CREATE_STARTING: u32 = 12;
const NODE_CREATED: u32 = 13;
const NODE_DESTROY_STARTING: u32 = 14;
const DEPENDENCY_CREATED: u32 = 15;
const DEPENDENCY_DESTROY_STARTING: u32 = 16;
const EXEC_CREATE_STARTING: u32 = 17;
const EXEC_CREATED: u32 = 18;
const EXEC_DESTROY_STARTING: u32 = 19;
const NODE_CLONED: u32 = 20;
/// `CUpti_CallbackIdSync`
const STREAM_SYNCHRONIZED: u32 = 1;
const CONTEXT_SYNCHRONIZED: u32 = 2;
/// The maximum number of dependencies and of copied nodes that one call reports. Limits its time.
const MAX_LIST: usize = 1 << 16;

/// `CUpti_ResourceData`
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    stream: *mut c_void,
    descriptor: *const c_void,
}

/// `CUpti_ModuleResourceData`
#[repr(C)]
struct ModuleData {
    id: u32,
    /// The driver's machine code, which this library does not have: 0 and NULL.
    bytes: usize,
    code: *const c_void,
}

/// `CUpti_GraphData`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct GraphData {
    graph: u64,
    original_graph: u64,
    node: u64,
    original_node: u64,
    node_type: i32,
    dependency: u64,
    exec: u64,
}
const _: () = assert!(size_of::<GraphData>() == 56);

/// `CUpti_SynchronizeData`
#[repr(C)]
struct SynchronizeData {
    context: *mut c_void,
    stream: *mut c_void,
}

/// A call of the driver that changes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Init,
    /// The first argument points to the new context.
    NewContext,
    /// The first argument points to the new stream.
    NewStream,
    /// The first argument is the stream.
    EndStream,
    /// The first argument points to the new module or library.
    NewModule,
    /// The first argument is the module or library.
    EndModule,
    /// The first argument points to the new graph.
    NewGraph,
    /// The second argument points to the new graph.
    Captured,
    /// The first argument points to the copy of the second one.
    CloneGraph,
    EndGraph,
    /// The first argument points to the new node of the graph that is the second one. The third and fourth are its dependencies and
    /// their number.
    NewNode,
    EndNode,
    /// Graph, array of nodes, array of nodes that depend on those.
    Link {
        adds: bool,
    },
    /// The first argument points to the new executable graph of the second one.
    NewExec,
    EndExec,
    /// The first argument is the stream.
    StreamWait,
    ContextWait,
}

/// Returns the change that a function of the driver makes.
fn change(name: &[u8]) -> Option<Change> {
    Some(match name {
        b"cuInit" => Change::Init,
        b"cuDevicePrimaryCtxRetain"
        | b"cuCtxCreate"
        | b"cuCtxCreate_v2"
        | b"cuCtxCreate_v3"
        | b"cuCtxCreate_v4" => Change::NewContext,
        b"cuStreamCreate" | b"cuStreamCreateWithPriority" => Change::NewStream,
        b"cuStreamDestroy" | b"cuStreamDestroy_v2" => Change::EndStream,
        b"cuModuleLoad" | b"cuModuleLoadData" | b"cuModuleLoadDataEx" | b"cuModuleLoadFatBinary" => {
            Change::NewModule
        }
        b"cuLibraryLoadData" | b"cuLibraryLoadFromFile" => Change::NewModule,
        b"cuModuleUnload" | b"cuLibraryUnload" => Change::EndModule,
        b"cuGraphCreate" => Change::NewGraph,
        b"cuStreamEndCapture" => Change::Captured,
        b"cuGraphClone" => Change::CloneGraph,
        b"cuGraphDestroy" => Change::EndGraph,
        b"cuGraphDestroyNode" => Change::EndNode,
        b"cuGraphAddDependencies" | b"cuGraphAddDependencies_v2" => Change::Link { adds: true },
        b"cuGraphRemoveDependencies" | b"cuGraphRemoveDependencies_v2" => Change::Link { adds: false },
        b"cuGraphExecDestroy" => Change::EndExec,
        b"cuStreamSynchronize" => Change::StreamWait,
        b"cuCtxSynchronize" | b"cuCtxSynchronize_v2" => Change::ContextWait,
        _ if name.starts_with(b"cuGraphInstantiate") => Change::NewExec,
        _ if name.starts_with(b"cuGraphAdd") && (name.ends_with(b"Node") || name.ends_with(b"Node_v2")) => {
            Change::NewNode
        }
        _ => return None,
    })
}

/// The arguments of a call, each of 8 bytes.
struct Arguments(*const u64);

impl Arguments {
    fn word(&self, index: usize) -> u64 {
        // SAFETY: `change` knows the function, whose arguments up to `index` have 8 bytes each, and the call still runs.
        unsafe { self.0.add(index).read() }
    }

    /// Returns the object that the call has stored where an argument points to.
    fn made(&self, index: usize) -> u64 {
        let place = self.word(index) as *const u64;
        // SAFETY: the call has succeeded, so it has stored a handle there.
        if place.is_null() { 0 } else { unsafe { place.read_unaligned() } }
    }

    /// Returns an array of handles.
    fn list(&self, index: usize, count: usize) -> Vec<u64> {
        let place = self.word(index) as *const u64;
        let count = if place.is_null() { 0 } else { count.min(MAX_LIST) };
        // SAFETY: the program passes that many handles.
        (0..count).map(|at| unsafe { place.add(at).read_unaligned() }).collect()
    }
}

/// Reports what a call of the driver is about to do; with `is_done`, what it has done.
pub fn tell(name: &[u8], arguments: *const c_void, is_done: bool) {
    if !callbacks::any_of(RESOURCE) && !callbacks::any_of(SYNCHRONIZE) {
        return;
    }
    let name = name.strip_suffix(b"_ptsz").unwrap_or(name);
    // All other functions of this list have arguments.
    let is_readable = |change: &Change| *change == Change::ContextWait || !arguments.is_null();
    let Some(change) = change(name).filter(is_readable) else { return };
    let arguments = &Arguments(arguments.cast());
    quiet::quietly(|| match is_done {
        true => done(change, name, arguments),
        false => begun(change, name, arguments),
    });
}

fn begun(change: Change, name: &[u8], arguments: &Arguments) {
    match change {
        Change::EndStream => tell_stream(STREAM_DESTROY_STARTING, arguments.word(0)),
        Change::EndModule => tell_module(MODULE_UNLOAD_STARTING, arguments.word(0)),
        Change::EndGraph => tell_graph_end(arguments.word(0)),
        Change::NewNode => {
            tell_graph(NODE_CREATE_STARTING, GraphData { graph: arguments.word(1), ..GraphData::default() })
        }
        Change::EndNode => {
            let node = arguments.word(0);
            tell_graph(
                NODE_DESTROY_STARTING,
                GraphData { node, node_type: objects::node_type(node), ..GraphData::default() },
            );
            ids::forget_node(node);
        }
        Change::Link { adds: false } => tell_links(DEPENDENCY_DESTROY_STARTING, name, arguments),
        Change::NewExec => {
            tell_graph(EXEC_CREATE_STARTING, GraphData { graph: arguments.word(1), ..GraphData::default() })
        }
        Change::EndExec => {
            tell_graph(EXEC_DESTROY_STARTING, GraphData { exec: arguments.word(0), ..GraphData::default() });
            tell_graph(
                GRAPH_DESTROY_STARTING,
                GraphData { graph: arguments.word(0), ..GraphData::default() },
            );
            ids::forget_graph(arguments.word(0));
        }
        _ => {}
    }
}

fn done(change: Change, name: &[u8], arguments: &Arguments) {
    match change {
        Change::Init => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            if callbacks::is_enabled(RESOURCE, INIT_FINISHED) && !TOLD.swap(true, Ordering::Relaxed) {
                callbacks::call::<ResourceData>(RESOURCE, INIT_FINISHED, null());
            }
        }
        Change::NewStream => tell_stream(STREAM_CREATED, arguments.made(0)),
        Change::NewModule => tell_module(MODULE_LOADED, arguments.made(0)),
        Change::NewContext => callbacks::tell_new_context(arguments.made(0) as *mut c_void),
        Change::NewGraph => tell_new_graph(arguments.made(0)),
        Change::Captured => tell_captured(arguments.made(1)),
        Change::CloneGraph => tell_clone(arguments.made(0), arguments.word(1)),
        Change::NewNode => tell_new_node(name, arguments),
        Change::Link { adds: true } => tell_links(DEPENDENCY_CREATED, name, arguments),
        Change::NewExec => tell_exec(arguments.made(0), arguments.word(1)),
        Change::StreamWait => tell_wait(STREAM_SYNCHRONIZED, arguments.word(0)),
        Change::ContextWait => tell_wait(CONTEXT_SYNCHRONIZED, 0),
        _ => {}
    }
}

/// Calls the program's function about an object of the current context.
fn tell_resource(cbid: u32, stream: u64, context: *mut c_void, descriptor: *const c_void) {
    let about = ResourceData { context, stream: stream as *mut c_void, descriptor };
    callbacks::call(RESOURCE, cbid, &raw const about);
}

/// Reports a context.
pub fn tell_context(cbid: u32, context: *mut c_void) {
    tell_resource(cbid, 0, context, null());
}

fn tell_stream(cbid: u32, stream: u64) {
    if callbacks::is_enabled(RESOURCE, cbid) {
        tell_resource(cbid, stream, driver::current_context(), null());
    }
}

fn tell_module(cbid: u32, module: u64) {
    if callbacks::is_enabled(RESOURCE, cbid) {
        let about = ModuleData { id: ids::of_module(module), bytes: 0, code: null() };
        tell_resource(cbid, 0, driver::current_context(), (&raw const about).cast());
    }
}

/// Reports a graph. As in NVIDIA's library, only executable graphs have a context.
fn tell_graph(cbid: u32, about: GraphData) {
    if callbacks::is_enabled(RESOURCE, cbid) {
        let has_context = matches!(cbid, EXEC_CREATE_STARTING | EXEC_CREATED);
        let context = if has_context { driver::current_context() } else { null_mut() };
        tell_resource(cbid, 0, context, (&raw const about).cast());
    }
}

/// Numbers a new node of a graph, and reports it.
fn tell_node(graph: u64, node: u64, node_type: i32) {
    ids::add_node(graph, node);
    tell_graph(NODE_CREATED, GraphData { graph, node, node_type, ..GraphData::default() });
}

fn tell_new_node(name: &[u8], arguments: &Arguments) {
    let (node, graph) = (arguments.made(0), arguments.word(1));
    let node_type = objects::node_type(node);
    if callbacks::is_enabled(RESOURCE, DEPENDENCY_CREATED) {
        for dependency in arguments.list(2, edges(name, arguments)) {
            tell_graph(
                DEPENDENCY_CREATED,
                GraphData { graph, node, node_type, dependency, ..GraphData::default() },
            );
        }
    }
    tell_node(graph, node, node_type);
}

/// Reports edges of a graph.
fn tell_links(cbid: u32, name: &[u8], arguments: &Arguments) {
    if !callbacks::is_enabled(RESOURCE, cbid) {
        return;
    }
    let count = edges(name, arguments);
    for (dependency, node) in arguments.list(1, count).into_iter().zip(arguments.list(2, count)) {
        let node_type = objects::node_type(node);
        tell_graph(
            cbid,
            GraphData { graph: arguments.word(0), node, node_type, dependency, ..GraphData::default() },
        );
    }
}

/// Returns the number of edges among a function's arguments. Some take data of the edges before it.
fn edges(name: &[u8], arguments: &Arguments) -> usize {
    let has_data =
        matches!(name, b"cuGraphAddNode_v2" | b"cuGraphAddDependencies_v2" | b"cuGraphRemoveDependencies_v2");
    arguments.word(if has_data { 4 } else { 3 }) as usize
}

/// Numbers a new graph, and reports it.
fn tell_new_graph(graph: u64) {
    ids::add_graph(graph);
    tell_graph(GRAPH_CREATED, GraphData { graph, ..GraphData::default() });
}

/// Reports a captured graph with its nodes. Their handles are not known earlier.
fn tell_captured(graph: u64) {
    if graph == 0 {
        return;
    }
    tell_new_graph(graph);
    for node in nodes_of(graph, NODE_CREATED) {
        tell_node(graph, node, objects::node_type(node));
    }
}

/// Returns the nodes of a graph if a callback is enabled.
fn nodes_of(graph: u64, cbid: u32) -> Vec<u64> {
    if callbacks::is_enabled(RESOURCE, cbid) { objects::nodes(graph, MAX_LIST) } else { Vec::new() }
}

fn tell_clone(graph: u64, original_graph: u64) {
    tell_new_graph(graph);
    for original_node in nodes_of(original_graph, NODE_CLONED) {
        tell_copy(graph, original_graph, objects::node_in_clone(original_node, graph), original_node);
    }
    tell_graph(GRAPH_CLONED, GraphData { graph, original_graph, ..GraphData::default() });
}

fn tell_copy(graph: u64, original_graph: u64, node: u64, original_node: u64) {
    let node_type = objects::node_type(original_node);
    tell_node(graph, node, node_type);
    let about = GraphData { graph, original_graph, node, original_node, node_type, ..GraphData::default() };
    tell_graph(NODE_CLONED, about);
}

/// Reports an executable graph. It is a copy of the graph, whose nodes no function of the driver takes.
fn tell_exec(exec: u64, graph: u64) {
    tell_new_graph(exec);
    for original_node in nodes_of(graph, NODE_CLONED) {
        tell_copy(exec, graph, ids::add_hidden_node(exec), original_node);
    }
    tell_graph(EXEC_CREATED, GraphData { graph, exec, ..GraphData::default() });
}

/// Reports that a graph and its nodes begin to end.
fn tell_graph_end(graph: u64) {
    tell_graph(GRAPH_DESTROY_STARTING, GraphData { graph, ..GraphData::default() });
    for node in nodes_of(graph, NODE_DESTROY_STARTING) {
        tell_graph(NODE_DESTROY_STARTING, GraphData { graph, node, ..GraphData::default() });
    }
    ids::forget_graph(graph);
}

fn tell_wait(cbid: u32, stream: u64) {
    if callbacks::is_enabled(SYNCHRONIZE, cbid) {
        let about = SynchronizeData { context: driver::current_context(), stream: stream as *mut c_void };
        callbacks::call(SYNCHRONIZE, cbid, &raw const about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_changes() {
        let of = |name: &str| change(name.as_bytes());
        assert_eq!(of("cuGraphAddKernelNode_v2"), Some(Change::NewNode));
        assert_eq!(of("cuGraphAddNode"), Some(Change::NewNode));
        assert_eq!(of("cuGraphAddDependencies_v2"), Some(Change::Link { adds: true }));
        assert_eq!(of("cuGraphInstantiateWithFlags"), Some(Change::NewExec));
        assert_eq!(of("cuGraphExecDestroy"), Some(Change::EndExec));
        assert_eq!(of("cuGraphLaunch"), None);
        assert_eq!(of("cuLaunchKernel"), None);
    }

    #[test]
    fn arguments_are_read_as_words() {
        let made = 70_u64;
        let words = [&raw const made as u64, 7, [1_u64, 2, 3].as_ptr() as u64, 0];
        let arguments = Arguments(words.as_ptr());
        assert_eq!((arguments.made(0), arguments.word(1)), (70, 7));
        assert_eq!(arguments.list(2, 3), [1, 2, 3]);
        assert_eq!((arguments.made(3), arguments.list(3, 9)), (0, Vec::new()));
    }
}
