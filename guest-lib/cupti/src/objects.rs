// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions about objects, which this project's libcuda answers. Callers run [`quietly`](crate::quiet::quietly), so that none is
//! reported to the program.

use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null};
use std::sync::OnceLock;

use cuda_abi::prototypes::functions::{
    cuCtxGetDevice, cuCtxGetDevice_v2, cuFuncGetName, cuGraphGetNodes, cuGraphNodeFindInClone,
    cuGraphNodeGetType, cuKernelGetName, cuStreamGetCtx, cuStreamGetId,
};

use cuda_program::Library;

/// The functions that answer.
struct Questions {
    device: cuCtxGetDevice,
    device_of: cuCtxGetDevice_v2,
    stream_id: cuStreamGetId,
    stream_id_per_thread: cuStreamGetId,
    stream_context: cuStreamGetCtx,
    nodes: cuGraphGetNodes,
    node_type: cuGraphNodeGetType,
    in_clone: cuGraphNodeFindInClone,
    function_name: cuFuncGetName,
    kernel_name: cuKernelGetName,
}

fn questions() -> Option<&'static Questions> {
    static QUESTIONS: OnceLock<Option<Questions>> = OnceLock::new();
    let find = || {
        let library = Library::libcuda()?;
        let function = |name: &CStr| library.symbol(name).map(NonNull::as_ptr);
        // SAFETY: functions of the driver API, with their prototypes.
        unsafe {
            Some(Questions {
                device: transmute::<*mut c_void, cuCtxGetDevice>(function(c"cuCtxGetDevice")?),
                device_of: transmute::<*mut c_void, cuCtxGetDevice_v2>(function(c"cuCtxGetDevice_v2")?),
                stream_id: transmute::<*mut c_void, cuStreamGetId>(function(c"cuStreamGetId")?),
                stream_id_per_thread: transmute::<*mut c_void, cuStreamGetId>(function(
                    c"cuStreamGetId_ptsz",
                )?),
                stream_context: transmute::<*mut c_void, cuStreamGetCtx>(function(c"cuStreamGetCtx")?),
                nodes: transmute::<*mut c_void, cuGraphGetNodes>(function(c"cuGraphGetNodes")?),
                node_type: transmute::<*mut c_void, cuGraphNodeGetType>(function(c"cuGraphNodeGetType")?),
                in_clone: transmute::<*mut c_void, cuGraphNodeFindInClone>(function(
                    c"cuGraphNodeFindInClone",
                )?),
                function_name: transmute::<*mut c_void, cuFuncGetName>(function(c"cuFuncGetName")?),
                kernel_name: transmute::<*mut c_void, cuKernelGetName>(function(c"cuKernelGetName")?),
            })
        }
    };
    QUESTIONS.get_or_init(find).as_ref()
}

/// Returns the ordinal of a context's device; 0: of the current context's.
pub fn device_of(context: u64) -> Option<u32> {
    let questions = questions()?;
    let mut device = -1;
    // SAFETY: `device` is a local; the driver refuses what is no context.
    let result = unsafe {
        match context {
            0 => (questions.device)(&raw mut device),
            context => (questions.device_of)(&raw mut device, context),
        }
    };
    u32::try_from(device).ok().filter(|_| result == 0)
}

/// Returns the driver's number of a stream. `per_thread`: stream 0 is the thread's own one.
pub fn stream_id(stream: u64, per_thread: bool) -> Option<u64> {
    let questions = questions()?;
    let ask = if per_thread { questions.stream_id_per_thread } else { questions.stream_id };
    let mut id = 0;
    // SAFETY: `id` is a local; the driver refuses what is no stream.
    (unsafe { ask(stream, &raw mut id) } == 0).then_some(id)
}

/// Returns the context of a stream.
pub fn context_of(stream: u64) -> Option<u64> {
    let mut context = 0;
    // SAFETY: `context` is a local; the driver refuses what is no stream.
    (unsafe { (questions()?.stream_context)(stream, &raw mut context) } == 0).then_some(context)
}

/// Returns up to `most` nodes of a graph.
pub fn nodes(graph: u64, most: usize) -> Vec<u64> {
    let Some(questions) = questions() else { return Vec::new() };
    let mut count = 0;
    // SAFETY: NULL asks for the number only.
    if unsafe { (questions.nodes)(graph, std::ptr::null_mut(), &raw mut count) } != 0 || count == 0 {
        return Vec::new();
    }
    let mut nodes = vec![0; count.min(most)];
    count = nodes.len();
    // SAFETY: the array has room for `count` nodes.
    let result = unsafe { (questions.nodes)(graph, nodes.as_mut_ptr(), &raw mut count) };
    nodes.truncate(if result == 0 { count } else { 0 });
    nodes
}

/// Returns the `CUgraphNodeType` of a node; -1 if it is not one.
pub fn node_type(node: u64) -> i32 {
    let mut kind = 0;
    // SAFETY: `kind` is a local; the driver refuses what is no node.
    match questions().map(|questions| unsafe { (questions.node_type)(node, &raw mut kind) }) {
        Some(0) => kind.cast_signed(),
        _ => -1,
    }
}

/// Returns the node of a cloned graph that was copied from the node `original`. Returns 0 if the clone has no such node.
pub fn node_in_clone(original: u64, clone: u64) -> u64 {
    let mut node = 0;
    // SAFETY: `node` is a local; the driver refuses what is no node or no copy.
    match questions().map(|questions| unsafe { (questions.in_clone)(&raw mut node, original, clone) }) {
        Some(0) => node,
        _ => 0,
    }
}

/// Returns the name of a function or kernel, as long as its module lives; NULL for others.
pub fn name_of(function: u64) -> *const c_char {
    let Some(questions) = questions() else { return null() };
    let mut name = null();
    // SAFETY: `name` is a local; the driver refuses what is neither.
    unsafe {
        if (questions.function_name)(&raw mut name, function) != 0
            && (questions.kernel_name)(&raw mut name, function) != 0
        {
            return null();
        }
    }
    name
}
