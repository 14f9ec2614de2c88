// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every entry point of the runtime API with good arguments: graphs.
#pragma once

#include "bad_input_runtime.h"

namespace bad_input {

inline void runtime_graphs_table() {
    P(cudaStreamBeginCaptureToGraph, _, _, _, _, keep(0), _);
    P(cudaGraphCreate);
    P(cudaGraphAddKernelNode, _, _, _, keep(0), _);
    P(cudaGraphKernelNodeGetParams);
    P(cudaGraphKernelNodeSetParams);
    P(cudaGraphKernelNodeCopyAttributes);
    P(cudaGraphKernelNodeGetAttribute);
    P(cudaGraphKernelNodeSetAttribute);
    P(cudaGraphAddMemcpyNode, _, _, _, keep(0), _);
    P(cudaGraphAddMemcpyNodeToSymbol, _, _, _, keep(0), _, host, 16, 0, cudaMemcpyDefault);
    P(cudaGraphAddMemcpyNodeFromSymbol, _, _, _, keep(0), memory, _, 16, 0, cudaMemcpyDefault);
    P(cudaGraphAddMemcpyNode1D, _, _, _, keep(0), memory, host, 16, cudaMemcpyDefault);
    P(cudaGraphMemcpyNodeGetParams);
    P(cudaGraphMemcpyNodeSetParams);
    P(cudaGraphMemcpyNodeSetParamsToSymbol, _, _, host, 16, 0, cudaMemcpyDefault);
    P(cudaGraphMemcpyNodeSetParamsFromSymbol, _, memory, _, 16, 0, cudaMemcpyDefault);
    P(cudaGraphMemcpyNodeSetParams1D, _, memory, host, 16, cudaMemcpyDefault);
    P(cudaGraphAddMemsetNode, _, _, _, keep(0), _);
    P(cudaGraphMemsetNodeGetParams);
    P(cudaGraphMemsetNodeSetParams);
    P(cudaGraphAddHostNode, _, _, _, keep(0), _);
    P(cudaGraphHostNodeGetParams);
    P(cudaGraphHostNodeSetParams);
    P(cudaGraphAddChildGraphNode, _, _, _, keep(0), _);
    P(cudaGraphChildGraphNodeGetGraph);
    P(cudaGraphAddEmptyNode, _, _, _, keep(0));
    P(cudaGraphAddEventRecordNode, _, _, _, keep(0), _);
    P(cudaGraphEventRecordNodeGetEvent);
    P(cudaGraphEventRecordNodeSetEvent);
    P(cudaGraphAddEventWaitNode, _, _, _, keep(0), _);
    P(cudaGraphEventWaitNodeGetEvent);
    P(cudaGraphEventWaitNodeSetEvent);
    P(cudaGraphAddExternalSemaphoresSignalNode, _, _, _, keep(0), _);
    P(cudaGraphExternalSemaphoresSignalNodeGetParams);
    P(cudaGraphExternalSemaphoresSignalNodeSetParams);
    P(cudaGraphAddExternalSemaphoresWaitNode, _, _, _, keep(0), _);
    P(cudaGraphExternalSemaphoresWaitNodeGetParams);
    P(cudaGraphExternalSemaphoresWaitNodeSetParams);
    P(cudaGraphAddMemAllocNode, _, _, _, keep(0), _);
    P(cudaGraphMemAllocNodeGetParams);
    P(cudaGraphAddMemFreeNode, _, _, _, keep(0), _);
    P(cudaGraphMemFreeNodeGetParams);
    P(cudaDeviceGraphMemTrim);
    P(cudaDeviceGetGraphMemAttribute);
    P(cudaDeviceSetGraphMemAttribute);
    P(cudaGraphClone);
    P(cudaGraphNodeFindInClone);
    P(cudaGraphNodeGetType);
    P(cudaGraphGetNodes);
    P(cudaGraphGetRootNodes);
    P(cudaGraphGetEdges);
    P(cudaGraphNodeGetDependencies, _, _, _, _);
    P(cudaGraphNodeGetDependentNodes);
    P(cudaGraphAddDependencies, _, _, _, _, keep(0));
    P(cudaGraphRemoveDependencies, _, _, _, _, keep(0));
    P(cudaGraphDestroyNode);
    P(cudaGraphInstantiate);
    P(cudaGraphInstantiateWithFlags);
    P(cudaGraphInstantiateWithParams);
    P(cudaGraphExecGetFlags);
    P(cudaGraphExecKernelNodeSetParams);
    P(cudaGraphExecMemcpyNodeSetParams);
    P(cudaGraphExecMemcpyNodeSetParamsToSymbol, _, _, _, host, 16, 0, cudaMemcpyDefault);
    P(cudaGraphExecMemcpyNodeSetParamsFromSymbol, _, _, memory, _, 16, 0, cudaMemcpyDefault);
    P(cudaGraphExecMemcpyNodeSetParams1D, _, _, memory, host, 16, cudaMemcpyDefault);
    P(cudaGraphExecMemsetNodeSetParams);
    P(cudaGraphExecHostNodeSetParams);
    P(cudaGraphExecChildGraphNodeSetParams);
    P(cudaGraphExecEventRecordNodeSetEvent);
    P(cudaGraphExecEventWaitNodeSetEvent);
    P(cudaGraphExecExternalSemaphoresSignalNodeSetParams);
    P(cudaGraphExecExternalSemaphoresWaitNodeSetParams);
    P(cudaGraphNodeSetEnabled);
    P(cudaGraphNodeGetEnabled);
    P(cudaGraphExecUpdate);
    P(cudaGraphUpload);
    P(cudaGraphLaunch);
    P(cudaGraphExecDestroy);
    P(cudaGraphDestroy);
    P(cudaGraphDebugDotPrint, _, "/dev/null", _);
    P(cudaUserObjectCreate, _, host, _, 1, cudaUserObjectNoDestructorSync);
    P(cudaUserObjectRetain, _, 1);
    P(cudaUserObjectRelease, _, 1);
    P(cudaGraphRetainUserObject, _, _, 1, _);
    P(cudaGraphReleaseUserObject, _, _, 1);
    P(cudaGraphAddNode, _, _, _, _, keep(0), _);
    P(cudaGraphNodeSetParams);
    P(cudaGraphExecNodeSetParams);
    P(cudaGraphConditionalHandleCreate);
}

}  // namespace bad_input
