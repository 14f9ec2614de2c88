// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs that allocate memory.

use std::ptr::null_mut;

use crate::alone;
use crate::capture::stream;
use crate::cu::{self, cu, upload};

const INVALID_VALUE: i32 = 1;

fn used() -> u64 {
    let mut used = 0u64;
    assert_eq!(cu!(cuDeviceGetGraphMemAttribute(0, 0, (&raw mut used).cast())), 0);
    used
}

#[test]
fn memory_that_a_launch_leaves_must_be_freed_before_the_next() {
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut graph, mut exec, mut ptr) = (stream(), null_mut(), null_mut(), 0);
    let target = upload(&[0u32]);
    let before = used();
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 0)), 0);
    assert_eq!(cu!(cuMemAllocAsync(&mut ptr, 4096, stream)), 0);
    assert_eq!(cu!(cuMemsetD32Async(ptr, 8, 1024, stream)), 0);
    assert_eq!(cu!(cuMemcpyAsync(target, ptr + 4092, 4, stream)), 0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu::download::<u32>(target, 1), [8]);
    assert_eq!(used(), before + 4096);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeAsync(ptr, stream)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
    assert_eq!(cu!(cuMemFree_v2(ptr)), INVALID_VALUE);
    assert_eq!(used(), before);
    let mut clone = null_mut();
    assert_ne!(cu!(cuGraphClone(&mut clone, graph)), 0);
    // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 1)), 0);
    for _ in 0..2 {
        assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(used(), before);
}

#[test]
fn memory_that_the_graph_frees_is_free_again() {
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut graph, mut exec, mut ptr) = (stream(), null_mut(), null_mut(), 0);
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 0)), 0);
    assert_eq!(cu!(cuMemAllocAsync(&mut ptr, 64, stream)), 0);
    assert_eq!(cu!(cuMemFreeAsync(ptr, stream)), 0);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    for _ in 0..3 {
        assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(cuMemFree_v2(ptr)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}
