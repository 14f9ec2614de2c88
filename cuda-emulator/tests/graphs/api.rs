// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prototypes and structures of cuda.h for graphs.

use std::ffi::{c_int, c_uint, c_void};

use cuda_abi::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphExecUpdateResultInfo, CUgraphNodeParams,
};

use crate::driver_cu::Opaque;

/// The addresses of kernel arguments, as an array that must outlive its use.
macro_rules! pointers {
    ($($arg:expr),* $(,)?) => {
        [$(std::ptr::from_ref(&$arg).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
pub(crate) use pointers;

type Node = *mut Opaque;
type Nodes = *const Opaque;

unsafe extern "C" {
    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> c_int;
    pub fn cuStreamBeginCapture_v2(stream: Opaque, mode: c_uint) -> c_int;
    pub fn cuStreamEndCapture(stream: Opaque, graph: *mut Opaque) -> c_int;
    pub fn cuStreamIsCapturing(stream: Opaque, status: *mut c_uint) -> c_int;
    pub fn cuStreamGetCaptureInfo_v2(
        stream: Opaque,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut Opaque,
        nodes: *mut Nodes,
        count: *mut usize,
    ) -> c_int;
    pub fn cuStreamUpdateCaptureDependencies(
        stream: Opaque,
        nodes: Nodes,
        count: usize,
        flags: c_uint,
    ) -> c_int;
    pub fn cuStreamBeginCaptureToGraph(
        stream: Opaque,
        graph: Opaque,
        nodes: Nodes,
        edges: *const u64,
        count: usize,
        mode: c_uint,
    ) -> c_int;
    pub fn cuStreamWaitEvent(stream: Opaque, event: Opaque, flags: c_uint) -> c_int;
    pub fn cuStreamDestroy_v2(stream: Opaque) -> c_int;
    pub fn cuEventQuery(event: Opaque) -> c_int;
    pub fn cuEventSynchronize(event: Opaque) -> c_int;
    pub fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Opaque) -> c_int;
    pub fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: Opaque) -> c_int;
    pub fn cuMemAllocAsync(ptr: *mut u64, bytes: usize, stream: Opaque) -> c_int;
    pub fn cuMemFreeAsync(ptr: u64, stream: Opaque) -> c_int;
    pub fn cuLaunchHostFunc(
        stream: Opaque,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> c_int;
    pub fn cuGraphCreate(graph: *mut Opaque, flags: c_uint) -> c_int;
    pub fn cuGraphDestroy(graph: Opaque) -> c_int;
    pub fn cuGraphDestroyNode(node: Opaque) -> c_int;
    pub fn cuGraphClone(clone: *mut Opaque, graph: Opaque) -> c_int;
    pub fn cuGraphNodeFindInClone(node: Node, original: Opaque, clone: Opaque) -> c_int;
    pub fn cuGraphNodeGetType(node: Opaque, kind: *mut c_uint) -> c_int;
    pub fn cuGraphGetNodes(graph: Opaque, nodes: Node, count: *mut usize) -> c_int;
    pub fn cuGraphGetRootNodes(graph: Opaque, nodes: Node, count: *mut usize) -> c_int;
    pub fn cuGraphGetEdges(graph: Opaque, from: Node, to: Node, count: *mut usize) -> c_int;
    pub fn cuGraphNodeGetDependencies(node: Opaque, nodes: Node, count: *mut usize) -> c_int;
    pub fn cuGraphAddDependencies(graph: Opaque, from: Nodes, to: Nodes, count: usize) -> c_int;
    pub fn cuGraphRemoveDependencies(graph: Opaque, from: Nodes, to: Nodes, count: usize) -> c_int;
    pub fn cuGraphAddKernelNode_v2(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> c_int;
    pub fn cuGraphKernelNodeGetParams_v2(node: Opaque, params: *mut CUDA_KERNEL_NODE_PARAMS) -> c_int;
    pub fn cuGraphKernelNodeSetParams_v2(node: Opaque, params: *const CUDA_KERNEL_NODE_PARAMS) -> c_int;
    pub fn cuGraphAddMemcpyNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const CUDA_MEMCPY3D,
        context: Opaque,
    ) -> c_int;
    pub fn cuGraphMemcpyNodeGetParams(node: Opaque, params: *mut CUDA_MEMCPY3D) -> c_int;
    pub fn cuGraphAddMemsetNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        context: Opaque,
    ) -> c_int;
    pub fn cuGraphMemsetNodeGetParams(node: Opaque, params: *mut CUDA_MEMSET_NODE_PARAMS) -> c_int;
    pub fn cuGraphAddHostNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) -> c_int;
    pub fn cuGraphAddEmptyNode(node: Node, graph: Opaque, nodes: Nodes, count: usize) -> c_int;
    pub fn cuGraphAddChildGraphNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        child: Opaque,
    ) -> c_int;
    pub fn cuGraphChildGraphNodeGetGraph(node: Opaque, graph: *mut Opaque) -> c_int;
    pub fn cuGraphAddEventRecordNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        event: Opaque,
    ) -> c_int;
    pub fn cuGraphAddNode_v2(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        edges: *const u64,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) -> c_int;
    pub fn cuGraphInstantiateWithFlags(exec: *mut Opaque, graph: Opaque, flags: u64) -> c_int;
    pub fn cuGraphExecDestroy(exec: Opaque) -> c_int;
    pub fn cuGraphExecKernelNodeSetParams_v2(
        exec: Opaque,
        node: Opaque,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> c_int;
    pub fn cuGraphExecUpdate_v2(exec: Opaque, graph: Opaque, info: *mut CUgraphExecUpdateResultInfo)
    -> c_int;
    pub fn cuGraphNodeSetEnabled(exec: Opaque, node: Opaque, enabled: c_uint) -> c_int;
    pub fn cuGraphLaunch(exec: Opaque, stream: Opaque) -> c_int;
    pub fn cuUserObjectCreate(
        object: *mut Opaque,
        data: *mut c_void,
        destroy: unsafe extern "C" fn(*mut c_void),
        count: c_uint,
        flags: c_uint,
    ) -> c_int;
    pub fn cuGraphRetainUserObject(graph: Opaque, object: Opaque, count: c_uint, flags: c_uint) -> c_int;
    pub fn cuDeviceGraphMemTrim(device: c_int) -> c_int;
    pub fn cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_uint, value: *mut c_void) -> c_int;
    pub fn cuStreamWriteValue32_v2(stream: Opaque, address: u64, value: c_uint, flags: c_uint) -> c_int;
    pub fn cuStreamWaitValue32_v2(stream: Opaque, address: u64, value: c_uint, flags: c_uint) -> c_int;
}
