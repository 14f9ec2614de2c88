// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Graphs, their nodes and user objects.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! graph_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void);
            fn cuDeviceGraphMemTrim(device: CUdevice);
            fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void);
            fn cuGraphAddBatchMemOpNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
            );
            fn cuGraphAddChildGraphNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, childGraph: CUgraph,
            );
            fn cuGraphAddDependencies(
                hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize,
            );
            fn cuGraphAddDependencies_v2(
                hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
                edgeData: *const CUgraphEdgeData, numDependencies: usize,
            );
            fn cuGraphAddEmptyNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize,
            );
            fn cuGraphAddEventRecordNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, event: CUevent,
            );
            fn cuGraphAddEventWaitNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, event: CUevent,
            );
            fn cuGraphAddExternalSemaphoresSignalNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
            );
            fn cuGraphAddExternalSemaphoresWaitNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
            );
            fn cuGraphAddHostNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_HOST_NODE_PARAMS,
            );
            fn cuGraphAddKernelNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            fn cuGraphAddKernelNode_v2(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
            );
            fn cuGraphAddMemAllocNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
            );
            fn cuGraphAddMemFreeNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, dptr: CUdeviceptr,
            );
            fn cuGraphAddMemcpyNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext,
            );
            fn cuGraphAddMemsetNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext,
            );
            fn cuGraphAddNode(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                numDependencies: usize, nodeParams: *mut CUgraphNodeParams,
            );
            fn cuGraphAddNode_v2(
                phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode,
                dependencyData: *const CUgraphEdgeData, numDependencies: usize,
                nodeParams: *mut CUgraphNodeParams,
            );
            fn cuGraphBatchMemOpNodeGetParams(
                hNode: CUgraphNode, nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
            );
            fn cuGraphBatchMemOpNodeSetParams(
                hNode: CUgraphNode, nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
            );
            fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, phGraph: *mut CUgraph);
            fn cuGraphClone(phGraphClone: *mut CUgraph, originalGraph: CUgraph);
            fn cuGraphConditionalHandleCreate(
                pHandle_out: *mut CUgraphConditionalHandle, hGraph: CUgraph, ctx: CUcontext,
                defaultLaunchValue: c_uint, flags: c_uint,
            );
            fn cuGraphCreate(phGraph: *mut CUgraph, flags: c_uint);
            fn cuGraphDebugDotPrint(hGraph: CUgraph, path: *const c_char, flags: c_uint);
            fn cuGraphDestroy(hGraph: CUgraph);
            fn cuGraphDestroyNode(hNode: CUgraphNode);
            fn cuGraphEventRecordNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);
            fn cuGraphEventRecordNodeSetEvent(hNode: CUgraphNode, event: CUevent);
            fn cuGraphEventWaitNodeGetEvent(hNode: CUgraphNode, event_out: *mut CUevent);
            fn cuGraphEventWaitNodeSetEvent(hNode: CUgraphNode, event: CUevent);
            fn cuGraphExecBatchMemOpNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode,
                nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
            );
            fn cuGraphExecChildGraphNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, childGraph: CUgraph,
            );
            fn cuGraphExecDestroy(hGraphExec: CUgraphExec);
            fn cuGraphExecEventRecordNodeSetEvent(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent,
            );
            fn cuGraphExecEventWaitNodeSetEvent(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent);
            fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode,
                nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
            );
            fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode,
                nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
            );
            fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, flags: *mut u64);
            fn cuGraphExecGetId(hGraphExec: CUgraphExec, graphId: *mut c_uint);
            fn cuGraphExecHostNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS,
            );
            fn cuGraphExecKernelNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
            );
            fn cuGraphExecKernelNodeSetParams_v2(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
            );
            fn cuGraphExecMemcpyNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, copyParams: *const CUDA_MEMCPY3D,
                ctx: CUcontext,
            );
            fn cuGraphExecMemsetNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
                ctx: CUcontext,
            );
            fn cuGraphExecNodeSetParams(
                hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams,
            );
            fn cuGraphExecUpdate(
                hGraphExec: CUgraphExec, hGraph: CUgraph, hErrorNode_out: *mut CUgraphNode,
                updateResult_out: *mut c_uint,
            );
            fn cuGraphExecUpdate_v2(
                hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut CUgraphExecUpdateResultInfo,
            );
            fn cuGraphExternalSemaphoresSignalNodeGetParams(
                hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
            );
            fn cuGraphExternalSemaphoresSignalNodeSetParams(
                hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
            );
            fn cuGraphExternalSemaphoresWaitNodeGetParams(
                hNode: CUgraphNode, params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS,
            );
            fn cuGraphExternalSemaphoresWaitNodeSetParams(
                hNode: CUgraphNode, nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
            );
            fn cuGraphGetEdges(
                hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, numEdges: *mut usize,
            );
            fn cuGraphGetEdges_v2(
                hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode,
                edgeData: *mut CUgraphEdgeData, numEdges: *mut usize,
            );
            fn cuGraphGetId(hGraph: CUgraph, graphId: *mut c_uint);
            fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize);
            fn cuGraphGetRootNodes(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize);
            fn cuGraphHostNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_HOST_NODE_PARAMS);
            fn cuGraphHostNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS);
            fn cuGraphInstantiate(
                phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode,
                logBuffer: *mut c_char, bufferSize: usize,
            );
            fn cuGraphInstantiateWithFlags(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: u64);
            fn cuGraphInstantiateWithParams(
                phGraphExec: *mut CUgraphExec, hGraph: CUgraph,
                instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
            );
            fn cuGraphInstantiate_v2(
                phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode,
                logBuffer: *mut c_char, bufferSize: usize,
            );
            fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode);
            fn cuGraphKernelNodeGetAttribute(
                hNode: CUgraphNode, attr: c_uint, value_out: *mut CUkernelNodeAttrValue,
            );
            fn cuGraphKernelNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1);
            fn cuGraphKernelNodeGetParams_v2(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphKernelNodeSetAttribute(
                hNode: CUgraphNode, attr: c_uint, value: *const CUkernelNodeAttrValue,
            );
            fn cuGraphKernelNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1);
            fn cuGraphKernelNodeSetParams_v2(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphLaunch(hGraph: CUgraphExec, hStream: CUstream);
            fn cuGraphMemAllocNodeGetParams(hNode: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
            fn cuGraphMemFreeNodeGetParams(hNode: CUgraphNode, dptr_out: *mut CUdeviceptr);
            fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D);
            fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D);
            fn cuGraphMemsetNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS);
            fn cuGraphMemsetNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMSET_NODE_PARAMS);
            fn cuGraphNodeFindInClone(
                phNode: *mut CUgraphNode, hOriginalNode: CUgraphNode, hClonedGraph: CUgraph,
            );
            fn cuGraphNodeGetContainingGraph(hNode: CUgraphNode, phGraph: *mut CUgraph);
            fn cuGraphNodeGetDependencies(
                hNode: CUgraphNode, dependencies: *mut CUgraphNode, numDependencies: *mut usize,
            );
            fn cuGraphNodeGetDependencies_v2(
                hNode: CUgraphNode, dependencies: *mut CUgraphNode, edgeData: *mut CUgraphEdgeData,
                numDependencies: *mut usize,
            );
            fn cuGraphNodeGetDependentNodes(
                hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, numDependentNodes: *mut usize,
            );
            fn cuGraphNodeGetDependentNodes_v2(
                hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, edgeData: *mut CUgraphEdgeData,
                numDependentNodes: *mut usize,
            );
            fn cuGraphNodeGetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: *mut c_uint);
            fn cuGraphNodeGetLocalId(hNode: CUgraphNode, nodeId: *mut c_uint);
            fn cuGraphNodeGetToolsId(hNode: CUgraphNode, toolsNodeId: *mut u64);
            fn cuGraphNodeGetType(hNode: CUgraphNode, type_: *mut c_uint);
            fn cuGraphNodeSetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: c_uint);
            fn cuGraphNodeSetParams(hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams);
            fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
            fn cuGraphRemoveDependencies(
                hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize,
            );
            fn cuGraphRemoveDependencies_v2(
                hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
                edgeData: *const CUgraphEdgeData, numDependencies: usize,
            );
            fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
            fn cuGraphUpload(hGraph: CUgraphExec, hStream: CUstream);
            fn cuUserObjectCreate(
                object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn, initialRefcount: c_uint,
                flags: c_uint,
            );
            fn cuUserObjectRelease(object: CUuserObject, count: c_uint);
            fn cuUserObjectRetain(object: CUuserObject, count: c_uint);
        }
    };
}
