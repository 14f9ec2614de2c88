// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs that are built node by node.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::alone;
use crate::capture::{count_nodes, event, launch_graph, stream};
use cuda_abi::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUgraphNodeParams, CopyEnd3D,
};

use crate::cu::{self, Opaque, cu, download, function, pointers, upload};

const INVALID_VALUE: i32 = 1;

pub fn graph() -> Opaque {
    let mut graph = null_mut();
    assert_eq!(cu!(cuGraphCreate(&mut graph, 0)), 0);
    graph
}

pub fn kernel_params(function: Opaque, block: u32, params: *mut *mut c_void) -> CUDA_KERNEL_NODE_PARAMS {
    let (grid, block) = ([1, 1, 1], [block, 1, 1]);
    let (function, params) = (function as u64, params as usize);
    let v1 = CUDA_KERNEL_NODE_PARAMS_v1 { function, grid, block, params, ..CUDA_KERNEL_NODE_PARAMS_v1::ZERO };
    CUDA_KERNEL_NODE_PARAMS { v1, kernel: 0, context: 0 }
}

pub fn memset(to: u64, value: u32, width: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value, element_bytes: 4, width, height: 1 }
}

pub fn add_memset(graph: Opaque, after: &[Opaque], params: &CUDA_MEMSET_NODE_PARAMS) -> Opaque {
    let mut node = null_mut();
    let context = cu::use_primary_context();
    assert_eq!(cu!(cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), params, context)), 0);
    node
}

fn in_host(address: u64) -> CopyEnd3D {
    CopyEnd3D { memory_type: 1, host: address, ..CopyEnd3D::ZERO }
}

fn in_device(address: u64) -> CopyEnd3D {
    CopyEnd3D { memory_type: 2, device: address, ..CopyEnd3D::ZERO }
}

fn linear(dst: CopyEnd3D, src: CopyEnd3D, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D { src, dst, width: bytes, height: 1, depth: 1 }
}

#[test]
fn nodes_run_after_those_that_they_wait_for() {
    static SUM: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn add(values: *mut c_void) {
        // SAFETY: the test passes four floats.
        let values = unsafe { *values.cast::<[f32; 4]>() };
        SUM.store(values.iter().sum::<f32>() as u32, Ordering::SeqCst);
    }
    let _alone = alone();
    let module = cu::load_module();
    let context = cu::use_primary_context();
    let (graph, stream) = (graph(), stream());
    let (source, target) = (upload(&[0u32; 4]), upload(&[0f32; 4]));
    let mut back = [0f32; 4];
    // Made in the opposite order.
    let (mut host, mut copy, mut kernel) = (null_mut(), null_mut(), null_mut());
    let summing = CUDA_HOST_NODE_PARAMS { function: Some(add), argument: back.as_mut_ptr() as usize };
    assert_eq!(cu!(cuGraphAddHostNode(&mut host, graph, null(), 0, &summing)), 0);
    let box_params = linear(in_host(back.as_mut_ptr() as u64), in_device(target), 16);
    assert_eq!(cu!(cuGraphAddMemcpyNode(&mut copy, graph, null(), 0, &box_params, context)), 0);
    let mut values = pointers![target, source, 4i32];
    let scale = kernel_params(function(module, "scale"), 4, values.as_mut_ptr());
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut kernel, graph, null(), 0, &scale)), 0);
    let fill = add_memset(graph, &[], &memset(source, 2.5f32.to_bits(), 4));
    let (from, to) = ([fill, kernel, copy], [kernel, copy, host]);
    assert_eq!(cu!(cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), 3)), 0);
    assert_eq!(cu!(cuGraphAddDependencies(graph, &fill, &kernel, 1)), INVALID_VALUE);
    let (mut count, mut room) = (3, [null_mut(); 3]);
    assert_eq!(cu!(cuGraphNodeGetDependencies(host, room.as_mut_ptr(), &mut count)), 0);
    assert_eq!((count, room), (1, [copy, null_mut(), null_mut()]));
    launch_graph(graph, stream);
    assert_eq!((back, SUM.load(Ordering::SeqCst)), ([7.5; 4], 30));
    // A circle cannot be instantiated.
    let mut exec = null_mut();
    assert_eq!(cu!(cuGraphAddDependencies(graph, &host, &fill, 1)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphRemoveDependencies(graph, &host, &fill, 1)), 0);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphDestroyNode(copy)), 0);
    assert_eq!(count_nodes(graph), 3);
    assert_eq!(cu!(cuGraphDestroyNode(copy)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn parameters_can_be_read_and_set() {
    let _alone = alone();
    let module = cu::load_module();
    let (graph, stream) = (graph(), stream());
    let (source, target) = (upload(&[1f32; 4]), upload(&[0f32; 4]));
    let mut kernel = null_mut();
    let mut values = pointers![target, source, 2i32];
    let mut given = kernel_params(function(module, "scale"), 4, values.as_mut_ptr());
    // The parameters are on the stack of this statement only: the call takes them along.
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut kernel, graph, null(), 0, &given)), 0);
    let mut shown = given;
    assert_eq!(cu!(cuGraphKernelNodeGetParams_v2(kernel, &mut shown)), 0);
    let shape = |params: &CUDA_KERNEL_NODE_PARAMS| (params.v1.function, params.v1.grid, params.v1.block);
    assert_eq!(shape(&shown), shape(&given));
    let shown = shown.v1.params as *const *const i32;
    // SAFETY: the node keeps its parameters until it changes: the third is an int.
    assert_eq!(unsafe { **shown.add(2) }, 2);
    launch_graph(graph, stream);
    assert_eq!(download::<f32>(target, 4), [3.0, 3.0, 0.0, 0.0]);
    let mut values = pointers![target, source, 4i32];
    given.v1.params = values.as_mut_ptr() as usize;
    assert_eq!(cu!(cuGraphKernelNodeSetParams_v2(kernel, &given)), 0);
    launch_graph(graph, stream);
    assert_eq!(download::<f32>(target, 4), [3.0; 4]);
    let node = add_memset(graph, &[kernel], &memset(target, 9, 4));
    let mut shown = CUDA_MEMSET_NODE_PARAMS::ZERO;
    assert_eq!(cu!(cuGraphMemsetNodeGetParams(node, &mut shown)), 0);
    assert_eq!(shown, memset(target, 9, 4));
    assert_eq!(cu!(cuGraphKernelNodeSetParams_v2(node, &given)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphMemsetNodeGetParams(kernel, &mut shown)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphMemsetNodeGetParams(stream, &mut shown)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(cuGraphMemsetNodeGetParams(node, &mut shown)), INVALID_VALUE);
}

#[test]
fn children_clones_and_any_node() {
    let _alone = alone();
    cu::use_primary_context();
    let (parent, child, stream) = (graph(), graph(), stream());
    let target = upload(&[0u32; 4]);
    let first = add_memset(child, &[], &memset(target, 1, 4));
    add_memset(child, &[first], &memset(target, 2, 2));
    let (mut node, mut own, mut kind) = (null_mut(), null_mut(), 99);
    assert_eq!(cu!(cuGraphAddChildGraphNode(&mut node, parent, null(), 0, child)), 0);
    assert_eq!(cu!(cuGraphNodeGetType(node, &mut kind)), 0);
    assert_eq!(kind, 4);
    // A copy: what happens to the original is not seen.
    assert_eq!(cu!(cuGraphDestroy(child)), 0);
    assert_eq!(cu!(cuGraphChildGraphNodeGetGraph(node, &mut own)), 0);
    assert_eq!(count_nodes(own), 2);
    assert_eq!(cu!(cuGraphDestroy(own)), INVALID_VALUE);
    let mut body = [0u64; 29];
    body[..5].copy_from_slice(&[target, 0, 4 << 32 | 3, 1, 1]);
    let mut any = CUgraphNodeParams { kind: 2, payload: body, ..CUgraphNodeParams::ZERO };
    let mut last = null_mut();
    assert_eq!(cu!(cuGraphAddNode_v2(&mut last, parent, &node, null(), 1, &mut any)), 0);
    any.kind = 77;
    assert_eq!(cu!(cuGraphAddNode_v2(&mut last, parent, null(), null(), 0, &mut any)), INVALID_VALUE);
    let (mut clone, mut found) = (null_mut(), null_mut());
    assert_eq!(cu!(cuGraphClone(&mut clone, parent)), 0);
    assert_eq!(cu!(cuGraphNodeFindInClone(&mut found, last, clone)), 0);
    assert!(found != last && !found.is_null());
    assert_eq!(cu!(cuGraphDestroy(parent)), 0);
    launch_graph(clone, stream);
    assert_eq!(download::<u32>(target, 4), [3, 2, 1, 1]);
    assert_eq!(cu!(cuGraphDestroy(clone)), 0);
    assert_eq!(cu!(cuGraphNodeGetType(found, &mut kind)), INVALID_VALUE);
}

#[test]
fn copies_show_what_they_copy_and_events_are_recorded() {
    let _alone = alone();
    let context = cu::use_primary_context();
    let (graph, stream, event) = (graph(), stream(), event());
    let (from, to) = (upload(&[5u32; 2]), upload(&[0u32; 2]));
    let (mut copy, mut record) = (null_mut(), null_mut());
    let given = linear(in_device(to), in_device(from), 8);
    assert_eq!(cu!(cuGraphAddMemcpyNode(&mut copy, graph, null(), 0, &given, context)), 0);
    let mut shown = CUDA_MEMCPY3D::ZERO;
    assert_eq!(cu!(cuGraphMemcpyNodeGetParams(copy, &mut shown)), 0);
    assert_eq!((shown.dst.device, shown.src.device, shown.width), (to, from, 8));
    assert_eq!(cu!(cuGraphAddEventRecordNode(&mut record, graph, &copy, 1, event)), 0);
    let beyond = linear(in_device(to), in_device(from), 12);
    assert_eq!(cu!(cuGraphAddMemcpyNode(&mut copy, graph, null(), 0, &beyond, context)), INVALID_VALUE);
    let mut exec = null_mut();
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
    assert_eq!(download::<u32>(to, 2), [5, 5]);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}
