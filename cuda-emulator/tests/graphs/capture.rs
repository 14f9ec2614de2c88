// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capture: streams become graphs with the same effects.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::alone;
use crate::cu::{self, Opaque, cu, download, function, launch_in, params, upload};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;

pub fn stream() -> Opaque {
    let mut stream = null_mut();
    assert_eq!(cu!(cuStreamCreate(&mut stream, 1)), 0);
    stream
}

pub fn event() -> Opaque {
    let mut event = null_mut();
    assert_eq!(cu!(cuEventCreate(&mut event, 2)), 0);
    event
}

/// Instantiates a graph, launches it in a stream and waits.
pub fn launch_graph(graph: Opaque, stream: Opaque) {
    let mut exec = null_mut();
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
}

pub fn count_nodes(graph: Opaque) -> usize {
    let mut count = 0;
    assert_eq!(cu!(cuGraphGetNodes(graph, null_mut(), &mut count)), 0);
    count
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    let _alone = alone();
    let module = cu::load_module();
    let (stream, mut graph, mut exec) = (stream(), null_mut(), null_mut());
    let (source, target) = (upload(&[1f32, 2.0, 3.0, 4.0]), upload(&[0f32; 4]));
    let mut back = [0f32; 4];
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, GLOBAL)), 0);
    let scale = function(module, "scale");
    assert_eq!(launch_in(stream, scale, 1, 4, 0, params![target, source, 4i32]), 0);
    assert_eq!(cu!(cuMemcpyAsync(source, target, 16, stream)), 0);
    assert_eq!(cu!(cuMemcpyAsync(back.as_mut_ptr() as u64, target, 16, stream)), 0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(count_nodes(graph), 3);
    assert_eq!(download::<f32>(target, 4), [0.0; 4]);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    for _ in 0..3 {
        assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(back, [27.0, 54.0, 81.0, 108.0]);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_ne!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_ne!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn forks_join_by_events() {
    let _alone = alone();
    let module = cu::load_module();
    let (one, two, fork, join) = (stream(), stream(), event(), event());
    let (target, count) = (upload(&[7i32; 4]), function(module, "count"));
    let mut graph = null_mut();
    assert_eq!(cu!(cuStreamBeginCapture_v2(one, THREAD_LOCAL)), 0);
    assert_eq!(cu!(cuMemsetD32Async(target, 1, 4, one)), 0);
    assert_eq!(cu!(cuEventRecord(fork, one)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(two, fork, 0)), 0);
    let (mut status, mut id_one, mut id_two) = (9, 0, 0);
    let (mut nodes, mut number) = (std::ptr::null(), 0);
    let none = null_mut();
    assert_eq!(
        cu!(cuStreamGetCaptureInfo_v2(one, &mut status, &mut id_one, none, null_mut(), none.cast())),
        0
    );
    assert_eq!(
        cu!(cuStreamGetCaptureInfo_v2(two, &mut status, &mut id_two, none.cast(), &mut nodes, &mut number)),
        0
    );
    assert_eq!((status, id_one == id_two, number), (1, true, 1));
    assert_eq!(cu!(cuMemsetD32Async(target + 4, 2, 2, two)), 0);
    assert_eq!(launch_in(one, count, 1, 1, 0, null_mut()), 0);
    assert_eq!(cu!(cuEventRecord(join, two)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(one, join, 0)), 0);
    assert_eq!(cu!(cuMemsetD32Async(target + 8, 3, 1, one)), 0);
    assert_eq!(cu!(cuStreamEndCapture(one, &mut graph)), 0);
    assert_eq!(cu!(cuStreamIsCapturing(two, &mut status)), 0);
    assert_eq!((status, count_nodes(graph)), (0, 4));
    let mut edges = 0;
    assert_eq!(cu!(cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges)), 0);
    assert_eq!(edges, 4);
    assert_eq!(download::<i32>(target, 4), [7; 4]);
    launch_graph(graph, two);
    assert_eq!(download::<i32>(target, 4), [1, 2, 3, 1]);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn host_functions_are_captured_and_see_the_order() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn look(place: *mut c_void) {
        // SAFETY: the test passes the address of managed memory that it frees later.
        SEEN.fetch_add(unsafe { *place.cast::<u32>() }, Ordering::SeqCst);
    }
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut place, mut graph) = (stream(), 0, null_mut());
    assert_eq!(cu!(cuMemAllocManaged(&mut place, 4, 1)), 0);
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, GLOBAL)), 0);
    assert_eq!(cu!(cuMemsetD32Async(place, 5, 1, stream)), 0);
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(look), place as *mut c_void)), 0);
    assert_eq!(cu!(cuStreamWriteValue32_v2(stream, place, 11, 0)), 0);
    assert_eq!(cu!(cuStreamWaitValue32_v2(stream, place, 11, 1)), 0);
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(look), place as *mut c_void)), 0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), 0);
    launch_graph(graph, stream);
    assert_eq!(SEEN.load(Ordering::SeqCst), 16);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(cuMemFree_v2(place)), 0);
}

#[test]
fn a_capture_can_add_to_a_graph_and_its_dependencies_can_change() {
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut graph, mut first, mut ended) = (stream(), null_mut(), null_mut(), null_mut());
    let target = upload(&[0i32; 2]);
    assert_eq!(cu!(cuGraphCreate(&mut graph, 0)), 0);
    assert_eq!(cu!(cuGraphAddEmptyNode(&mut first, graph, std::ptr::null(), 0)), 0);
    assert_eq!(cu!(cuStreamBeginCaptureToGraph(stream, graph, &first, std::ptr::null(), 1, GLOBAL)), 0);
    assert_eq!(cu!(cuMemsetD32Async(target, 1, 1, stream)), 0);
    assert_eq!(cu!(cuStreamUpdateCaptureDependencies(stream, &mut first, 1, 1)), 0);
    assert_eq!(cu!(cuMemsetD32Async(target + 4, 2, 1, stream)), 0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut ended)), 0);
    assert_eq!((ended, count_nodes(graph)), (graph, 3));
    let mut roots = 0;
    assert_eq!(cu!(cuGraphGetRootNodes(graph, null_mut(), &mut roots)), 0);
    assert_eq!(roots, 1);
    launch_graph(graph, stream);
    assert_eq!(download::<i32>(target, 2), [1, 2]);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn host_functions_must_not_call_the_api() {
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn call(_: *mut c_void) {
        let mut ptr = 0;
        ANSWER.store(cu!(cuMemAlloc_v2(&mut ptr, 4)) as u32, Ordering::SeqCst);
    }
    let _alone = alone();
    cu::use_primary_context();
    let stream = stream();
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(call), null_mut())), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(ANSWER.load(Ordering::SeqCst), 800);
}
