// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs.

use core::ffi::{c_char, c_uint, c_void};

use super::{Result, Slot, cudaError_t, driver};
use crate::abi::driver::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUgraphNodeParams};
use crate::abi::{
    CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUuserObject,
    cudaExternalSemaphoreSignalNodeParams, cudaExternalSemaphoreWaitNodeParams, cudaGraphConditionalHandle,
    cudaGraphEdgeData, cudaGraphExecUpdateResultInfo, cudaGraphInstantiateParams, cudaHostFn_t,
    cudaHostNodeParams, cudaLaunchAttributeValue, cudaMemAllocNodeParams, cudaMemsetParams,
};

driver! {
    fn cuGraphCreate(phGraph: *mut CUgraph, flags: c_uint);
    fn cuGraphDestroy(hGraph: CUgraph);
    fn cuGraphClone(phGraphClone: *mut CUgraph, originalGraph: CUgraph);
    fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize);
    fn cuGraphGetRootNodes(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize);
    fn cuGraphGetEdges_v2(
        hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edgeData: *mut cudaGraphEdgeData,
        numEdges: *mut usize,
    );
    fn cuGraphAddDependencies_v2(
        hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edgeData: *const cudaGraphEdgeData, numDependencies: usize,
    );
    fn cuGraphRemoveDependencies_v2(
        hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
        edgeData: *const cudaGraphEdgeData, numDependencies: usize,
    );
    fn cuGraphDestroyNode(hNode: CUgraphNode);
    fn cuGraphNodeGetType(hNode: CUgraphNode, type_: *mut c_uint);
    fn cuGraphNodeFindInClone(phNode: *mut CUgraphNode, hOriginalNode: CUgraphNode, hClonedGraph: CUgraph);
    fn cuGraphNodeGetDependencies_v2(
        hNode: CUgraphNode, dependencies: *mut CUgraphNode, edgeData: *mut cudaGraphEdgeData,
        numDependencies: *mut usize,
    );
    fn cuGraphNodeGetDependentNodes_v2(
        hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, edgeData: *mut cudaGraphEdgeData,
        numDependentNodes: *mut usize,
    );
    fn cuGraphDebugDotPrint(hGraph: CUgraph, path: *const c_char, flags: c_uint);
    fn cuUserObjectCreate(
        object_out: *mut CUuserObject, ptr: *mut c_void, destroy: cudaHostFn_t, initialRefcount: c_uint,
        flags: c_uint,
    );
    fn cuUserObjectRetain(object: CUuserObject, count: c_uint);
    fn cuUserObjectRelease(object: CUuserObject, count: c_uint);
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
    fn cuGraphConditionalHandleCreate(
        pHandle_out: *mut cudaGraphConditionalHandle, hGraph: CUgraph, ctx: CUcontext,
        defaultLaunchValue: c_uint, flags: c_uint,
    );

    fn cuGraphAddKernelNode_v2(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    );
    fn cuGraphKernelNodeGetParams_v2(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS);
    fn cuGraphKernelNodeSetParams_v2(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS);
    fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode);
    fn cuGraphKernelNodeGetAttribute(
        hNode: CUgraphNode, attr: c_uint, value_out: *mut cudaLaunchAttributeValue,
    );
    fn cuGraphKernelNodeSetAttribute(
        hNode: CUgraphNode, attr: c_uint, value: *const cudaLaunchAttributeValue,
    );
    fn cuGraphAddMemcpyNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext,
    );
    fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D);
    fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D);
    fn cuGraphAddMemsetNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, memsetParams: *const cudaMemsetParams, ctx: CUcontext,
    );
    fn cuGraphMemsetNodeGetParams(hNode: CUgraphNode, nodeParams: *mut cudaMemsetParams);
    fn cuGraphMemsetNodeSetParams(hNode: CUgraphNode, nodeParams: *const cudaMemsetParams);
    fn cuGraphAddHostNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, nodeParams: *const cudaHostNodeParams,
    );
    fn cuGraphHostNodeGetParams(hNode: CUgraphNode, nodeParams: *mut cudaHostNodeParams);
    fn cuGraphHostNodeSetParams(hNode: CUgraphNode, nodeParams: *const cudaHostNodeParams);
    fn cuGraphAddChildGraphNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, childGraph: CUgraph,
    );
    fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, phGraph: *mut CUgraph);
    fn cuGraphAddEmptyNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize,
    );
    fn cuGraphAddEventRecordNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, event: CUevent,
    );
    fn cuGraphEventRecordNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);
    fn cuGraphEventRecordNodeSetEvent(hNode: CUgraphNode, event: CUevent);
    fn cuGraphAddEventWaitNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, event: CUevent,
    );
    fn cuGraphEventWaitNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);
    fn cuGraphEventWaitNodeSetEvent(hNode: CUgraphNode, event: CUevent);
    fn cuGraphAddExternalSemaphoresSignalNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    );
    fn cuGraphExternalSemaphoresSignalNodeGetParams(
        hNode: CUgraphNode, params_out: *mut cudaExternalSemaphoreSignalNodeParams,
    );
    fn cuGraphExternalSemaphoresSignalNodeSetParams(
        hNode: CUgraphNode, nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    );
    fn cuGraphAddExternalSemaphoresWaitNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    );
    fn cuGraphExternalSemaphoresWaitNodeGetParams(
        hNode: CUgraphNode, params_out: *mut cudaExternalSemaphoreWaitNodeParams,
    );
    fn cuGraphExternalSemaphoresWaitNodeSetParams(
        hNode: CUgraphNode, nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    );
    fn cuGraphAddMemAllocNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, nodeParams: *mut cudaMemAllocNodeParams,
    );
    fn cuGraphMemAllocNodeGetParams(hNode: CUgraphNode, params_out: *mut cudaMemAllocNodeParams);
    fn cuGraphAddMemFreeNode(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        numDependencies: usize, dptr: CUdeviceptr,
    );
    fn cuGraphMemFreeNodeGetParams(hNode: CUgraphNode, dptr_out: *mut CUdeviceptr);
    fn cuGraphAddNode_v2(
        phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
        dependencyData: *const cudaGraphEdgeData, numDependencies: usize, nodeParams: *mut CUgraphNodeParams,
    );
    fn cuGraphNodeSetParams(hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams);

    fn cuGraphInstantiateWithFlags(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: u64);
    fn cuGraphInstantiateWithParams(
        phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut cudaGraphInstantiateParams,
    );
    fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, flags: *mut u64);
    fn cuGraphExecDestroy(hGraphExec: CUgraphExec);
    fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream);
    fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream);
    fn cuGraphExecUpdate_v2(
        hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut cudaGraphExecUpdateResultInfo,
    );
    fn cuGraphExecKernelNodeSetParams_v2(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    );
    fn cuGraphExecMemcpyNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext,
    );
    fn cuGraphExecMemsetNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, memsetParams: *const cudaMemsetParams, ctx: CUcontext,
    );
    fn cuGraphExecHostNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const cudaHostNodeParams,
    );
    fn cuGraphExecChildGraphNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, childGraph: CUgraph);
    fn cuGraphExecEventRecordNodeSetEvent(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent);
    fn cuGraphExecEventWaitNodeSetEvent(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent);
    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode,
        nodeParams: *const cudaExternalSemaphoreSignalNodeParams,
    );
    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const cudaExternalSemaphoreWaitNodeParams,
    );
    fn cuGraphNodeSetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: c_uint);
    fn cuGraphNodeGetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: *mut c_uint);
    fn cuGraphExecNodeSetParams(
        hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams,
    );
}
