// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs: changes between launches, and the objects that they keep alive.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::alone;
use crate::capture::stream;
use cuda_abi::CUgraphExecUpdateResultInfo;

use crate::cu::{self, Opaque, cu, download, function, pointers, upload};
use crate::nodes::{add_memset, graph, kernel_params, memset};

const INVALID_VALUE: i32 = 1;
const UPDATE_FAILURE: i32 = 910;

fn instantiate(graph: Opaque) -> Opaque {
    let mut exec = null_mut();
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    exec
}

fn launch(exec: Opaque, stream: Opaque) {
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
}

#[test]
fn single_nodes_change_without_a_new_graph() {
    let _alone = alone();
    let module = cu::load_module();
    let (graph, stream) = (graph(), stream());
    let (source, target) = (upload(&[1f32, 2.0]), upload(&[0f32; 2]));
    let fill = add_memset(graph, &[], &memset(target, 7f32.to_bits(), 2));
    let (mut node, one, both) = (null_mut(), 1i32, 2i32);
    let mut values = pointers![target, source, one];
    let mut given = kernel_params(function(module, "scale"), 2, values.as_mut_ptr());
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut node, graph, &fill, 1, &given)), 0);
    let exec = instantiate(graph);
    launch(exec, stream);
    assert_eq!(download::<f32>(target, 2), [3.0, 7.0]);
    let mut values = pointers![target, source, both];
    given.v1.params = values.as_mut_ptr() as usize;
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(exec, node, &given)), 0);
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(exec, fill, &given)), INVALID_VALUE);
    launch(exec, stream);
    assert_eq!(download::<f32>(target, 2), [3.0, 6.0]);
    assert_eq!(cu!(cuGraphNodeSetEnabled(exec, node, 0)), 0);
    launch(exec, stream);
    assert_eq!(download::<f32>(target, 2), [7.0, 7.0]);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

/// Kernels can change the node, too (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).
#[test]
fn a_launch_does_what_its_nodes_did_when_it_was_called() {
    static GO: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn hold(_: *mut c_void) {
        while GO.load(Ordering::Acquire) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    let _alone = alone();
    let module = cu::load_module();
    let (graph, stream) = (graph(), stream());
    let (source, target) = (upload(&[1f32, 2.0]), upload(&[0f32; 2]));
    let (mut node, one, both) = (null_mut(), 1i32, 2i32);
    let mut values = pointers![target, source, one];
    let mut given = kernel_params(function(module, "scale"), 2, values.as_mut_ptr());
    assert_eq!(cu!(cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, &given)), 0);
    let mut updatable = [0_u32; 16];
    updatable[0] = 1;
    assert_eq!(cu!(cuGraphKernelNodeSetAttribute(node, 13, &updatable)), 0);
    let exec = instantiate(graph);
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(hold), null_mut())), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, stream)), 0);
    let mut values = pointers![target, source, both];
    given.v1.params = values.as_mut_ptr() as usize;
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(exec, node, &given)), 0);
    GO.store(1, Ordering::Release);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(download::<f32>(target, 2), [3.0, 0.0]);
    launch(exec, stream);
    assert_eq!(download::<f32>(target, 2), [3.0, 6.0]);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn a_graph_of_the_same_shape_can_take_over() {
    let _alone = alone();
    cu::use_primary_context();
    let (first, second, third, stream) = (graph(), graph(), graph(), stream());
    let target = upload(&[0u32; 2]);
    let node = add_memset(first, &[], &memset(target, 1, 2));
    add_memset(first, &[node], &memset(target, 2, 1));
    let node = add_memset(second, &[], &memset(target, 3, 2));
    add_memset(second, &[node], &memset(target, 4, 1));
    // No edge.
    add_memset(third, &[], &memset(target, 5, 2));
    let odd = add_memset(third, &[], &memset(target, 6, 1));
    let exec = instantiate(first);
    let mut info = CUgraphExecUpdateResultInfo { result: 9, ..CUgraphExecUpdateResultInfo::ZERO };
    assert_eq!(cu!(cuGraphExecUpdate_v2(exec, second, &mut info)), 0);
    assert_eq!(info.result, 0);
    assert_eq!(cu!(cuGraphExecUpdate_v2(exec, third, &mut info)), UPDATE_FAILURE);
    assert_eq!((info.result, info.error_node), (2, odd as u64));
    let mut empty = null_mut();
    assert_eq!(cu!(cuGraphDestroyNode(odd)), 0);
    assert_eq!(cu!(cuGraphAddEmptyNode(&mut empty, third, null(), 0)), 0);
    assert_eq!(cu!(cuGraphExecUpdate_v2(exec, third, &mut info)), UPDATE_FAILURE);
    assert_eq!((info.result, info.error_node), (3, empty as u64));
    launch(exec, stream);
    assert_eq!(download::<u32>(target, 2), [4, 3]);
    for graph in [first, second, third] {
        assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    }
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
}

#[test]
fn user_objects_live_as_long_as_somebody_refers_to_them() {
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn destroy(_: *mut c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let _alone = alone();
    cu::use_primary_context();
    let (graph, mut object) = (graph(), null_mut());
    assert_eq!(cu!(cuUserObjectCreate(&mut object, null_mut(), Some(destroy), 1, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuUserObjectCreate(&mut object, null_mut(), Some(destroy), 1, 1)), 0);
    // CU_GRAPH_USER_OBJECT_MOVE
    assert_eq!(cu!(cuGraphRetainUserObject(graph, object, 1, 1)), 0);
    let exec = instantiate(graph);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 0);
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 1);
}
