// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs that allocate memory.

use std::ptr::null_mut;

use cuda_abi::{CUDA_MEM_ALLOC_NODE_PARAMS, CUmemLocation, CUmemPoolProps};

use crate::alone;
use crate::capture::stream;
use crate::cu::{self, cu, upload};

const INVALID_VALUE: i32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: u32 = 1;
/// Device 0.
const DEVICE: CUmemLocation = CUmemLocation { kind: 1, id: 0 };

fn used() -> u64 {
    let mut used = 0u64;
    assert_eq!(cu!(cuDeviceGetGraphMemAttribute(0, 0, (&raw mut used).cast())), 0);
    used
}

/// Returns the memory that graphs need when they keep nothing that could be given back.
fn needed() -> u64 {
    assert_eq!(cu!(cuDeviceGraphMemTrim(0)), 0);
    used()
}

#[test]
fn memory_that_a_launch_leaves_must_be_freed_before_the_next() {
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut graph, mut exec, mut ptr) = (stream(), null_mut(), null_mut(), 0);
    let target = upload(&[0u32]);
    let before = needed();
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
    assert_eq!(used(), before + 4096);
    assert_eq!(needed(), before);
    let mut clone = null_mut();
    assert_ne!(cu!(cuGraphClone(&mut clone, graph)), 0);
    // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 1)), 0);
    for _ in 0..2 {
        assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(used(), before + 4096);
    assert_eq!(needed(), before + 4096);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(needed(), before);
}

#[test]
fn graphs_share_memory_that_they_do_not_need_at_once() {
    let _alone = alone();
    cu::use_primary_context();
    let before = needed();
    let streams = [stream(), stream()];
    // Graphs that free their memory, and two that do not.
    let graphs: Vec<_> = [true, true, true, false, false]
        .into_iter()
        .map(|frees| {
            let (mut graph, mut exec, mut ptr) = (null_mut(), null_mut(), 0);
            assert_eq!(cu!(cuStreamBeginCapture_v2(streams[0], 0)), 0);
            assert_eq!(cu!(cuMemAllocAsync(&mut ptr, 1 << 20, streams[0])), 0);
            if frees {
                assert_eq!(cu!(cuMemFreeAsync(ptr, streams[0])), 0);
            }
            assert_eq!(cu!(cuStreamEndCapture(streams[0], &mut graph)), 0);
            assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
            (graph, exec, ptr)
        })
        .collect();
    assert_eq!(used(), before, "graphs that were not launched keep nothing");
    for (_, exec, _) in &graphs[..3] {
        for _ in 0..2 {
            assert_eq!(cu!(cuGraphLaunch(*exec, streams[0])), 0);
            assert_eq!(used(), before + (1 << 20), "one after the other in a stream");
        }
    }
    assert_eq!(cu!(cuStreamSynchronize(streams[0])), 0);
    assert_eq!(cu!(cuGraphLaunch(graphs[0].1, streams[1])), 0);
    assert_eq!(cu!(cuStreamSynchronize(streams[1])), 0);
    assert_eq!(used(), before + (1 << 20), "in another stream, when the first ones have ended");
    for (index, (_, exec, _)) in graphs[3..].iter().enumerate() {
        assert_eq!(cu!(cuGraphLaunch(*exec, streams[0])), 0);
        assert_eq!(used(), before + ((1 + index as u64) << 20), "what is not freed is not shared");
    }
    assert_eq!(cu!(cuStreamSynchronize(streams[0])), 0);
    assert_eq!(needed(), before + (2 << 20));
    graphs[3..].iter().for_each(|(.., ptr)| assert_eq!(cu!(cuMemFree_v2(*ptr)), 0));
    assert_eq!(used(), before + (2 << 20), "freed, but kept");
    assert_eq!(needed(), before);
    for (graph, exec, _) in graphs {
        assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
        assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    }
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

#[test]
fn what_a_graph_frees_it_allocates_again() {
    let _alone = alone();
    cu::use_primary_context();
    let mut graph = null_mut();
    assert_eq!(cu!(cuGraphCreate(&mut graph, 0)), 0);
    let allocate = |behind: &[cu::Opaque], bytes: usize| {
        let pool = CUmemPoolProps { kind: PINNED, location: DEVICE, ..CUmemPoolProps::ZERO };
        let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { pool, bytes, ..CUDA_MEM_ALLOC_NODE_PARAMS::ZERO };
        let (mut node, first, count) = (null_mut(), behind.as_ptr(), behind.len());
        assert_eq!(cu!(cuGraphAddMemAllocNode(&mut node, graph, first, count, &mut params)), 0);
        (node, params.dptr)
    };
    let free = |behind: &[cu::Opaque], ptr: u64| {
        let mut node = null_mut();
        assert_eq!(cu!(cuGraphAddMemFreeNode(&mut node, graph, behind.as_ptr(), behind.len(), ptr)), 0);
        node
    };
    let (first, one) = allocate(&[], 4096);
    let freed = free(&[first], one);
    let (_, beside) = allocate(&[first], 4096);
    assert_ne!(beside, one, "not free yet");
    let (second, two) = allocate(&[freed], 4000);
    assert_eq!(two, one);
    let (_, third) = allocate(&[freed], 4096);
    assert_ne!(third, one, "taken already");
    let freed = free(&[second], two);
    assert_eq!(allocate(&[freed], 16).1, one);
    let before = needed();
    let (stream, mut exec) = (stream(), null_mut());
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    // Three blocks: memory that is freed and allocated again shares one.
    assert_eq!(used(), before + 3 * 4096);
    for ptr in [beside, third, one] {
        assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
        assert_eq!(cu!(cuMemFree_v2(ptr)), INVALID_VALUE);
    }
    assert_eq!(needed(), before);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}
