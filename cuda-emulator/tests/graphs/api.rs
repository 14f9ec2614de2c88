// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prototypes and structures of cuda.h for graphs.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver_cu::Opaque;

/// CUDA_KERNEL_NODE_PARAMS_v2
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    pub function: Opaque,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: Opaque,
    pub context: Opaque,
}

/// CUDA_MEMSET_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct MemsetParams {
    pub to: u64,
    pub pitch: usize,
    pub value: c_uint,
    pub element: c_uint,
    pub width: usize,
    pub height: usize,
}

/// One side of CUDA_MEMCPY3D
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Place {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub memory_type: c_uint,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub reserved: u64,
    pub pitch: usize,
    pub height: usize,
}

/// CUDA_MEMCPY3D
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Memcpy3D {
    pub from: Place,
    pub to: Place,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// CUDA_HOST_NODE_PARAMS
#[repr(C)]
pub struct HostParams {
    pub function: unsafe extern "C" fn(*mut c_void),
    pub data: *mut c_void,
}

/// CUgraphNodeParams
#[repr(C)]
pub struct NodeParams {
    pub kind: c_uint,
    pub reserved: [c_int; 3],
    pub body: [u64; 29],
    pub reserved2: u64,
}

/// CUgraphExecUpdateResultInfo
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UpdateResult {
    pub result: c_uint,
    pub node: Opaque,
    pub from: Opaque,
}

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
        params: *const KernelParams,
    ) -> c_int;
    pub fn cuGraphKernelNodeGetParams_v2(node: Opaque, params: *mut KernelParams) -> c_int;
    pub fn cuGraphKernelNodeSetParams_v2(node: Opaque, params: *const KernelParams) -> c_int;
    pub fn cuGraphAddMemcpyNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const Memcpy3D,
        context: Opaque,
    ) -> c_int;
    pub fn cuGraphMemcpyNodeGetParams(node: Opaque, params: *mut Memcpy3D) -> c_int;
    pub fn cuGraphAddMemsetNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const MemsetParams,
        context: Opaque,
    ) -> c_int;
    pub fn cuGraphMemsetNodeGetParams(node: Opaque, params: *mut MemsetParams) -> c_int;
    pub fn cuGraphAddHostNode(
        node: Node,
        graph: Opaque,
        nodes: Nodes,
        count: usize,
        params: *const HostParams,
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
        params: *mut NodeParams,
    ) -> c_int;
    pub fn cuGraphInstantiateWithFlags(exec: *mut Opaque, graph: Opaque, flags: u64) -> c_int;
    pub fn cuGraphExecDestroy(exec: Opaque) -> c_int;
    pub fn cuGraphExecKernelNodeSetParams_v2(
        exec: Opaque,
        node: Opaque,
        params: *const KernelParams,
    ) -> c_int;
    pub fn cuGraphExecUpdate_v2(exec: Opaque, graph: Opaque, info: *mut UpdateResult) -> c_int;
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
