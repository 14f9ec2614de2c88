// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every entry point of the driver API with good arguments: graphs.
#pragma once

#include "bad_input_driver.h"

namespace bad_input {

inline void graphs_table() {
    P(cuStreamBeginCaptureToGraph, _, _, _, _, keep(0), _);
    P(cuGraphCreate);
    P(cuGraphAddKernelNode, _, _, _, keep(0), _);
    P(cuGraphKernelNodeGetParams);
    P(cuGraphKernelNodeSetParams);
    P(cuGraphAddMemcpyNode, _, _, _, keep(0), _, _);
    P(cuGraphMemcpyNodeGetParams);
    P(cuGraphMemcpyNodeSetParams);
    P(cuGraphAddMemsetNode, _, _, _, keep(0), _, _);
    P(cuGraphMemsetNodeGetParams);
    P(cuGraphMemsetNodeSetParams);
    P(cuGraphAddHostNode, _, _, _, keep(0), _);
    P(cuGraphHostNodeGetParams);
    P(cuGraphHostNodeSetParams);
    P(cuGraphAddChildGraphNode, _, _, _, keep(0), _);
    P(cuGraphChildGraphNodeGetGraph);
    P(cuGraphAddEmptyNode, _, _, _, keep(0));
    P(cuGraphAddEventRecordNode, _, _, _, keep(0), _);
    P(cuGraphEventRecordNodeGetEvent);
    P(cuGraphEventRecordNodeSetEvent);
    P(cuGraphAddEventWaitNode, _, _, _, keep(0), _);
    P(cuGraphEventWaitNodeGetEvent);
    P(cuGraphEventWaitNodeSetEvent);
    P(cuGraphAddExternalSemaphoresSignalNode, _, _, _, keep(0), _);
    P(cuGraphExternalSemaphoresSignalNodeGetParams);
    P(cuGraphExternalSemaphoresSignalNodeSetParams);
    P(cuGraphAddExternalSemaphoresWaitNode, _, _, _, keep(0), _);
    P(cuGraphExternalSemaphoresWaitNodeGetParams);
    P(cuGraphExternalSemaphoresWaitNodeSetParams);
    P(cuGraphAddBatchMemOpNode, _, _, _, keep(0), _);
    P(cuGraphBatchMemOpNodeGetParams);
    P(cuGraphBatchMemOpNodeSetParams);
    P(cuGraphExecBatchMemOpNodeSetParams);
    P(cuGraphAddMemAllocNode, _, _, _, keep(0), _);
    P(cuGraphMemAllocNodeGetParams);
    P(cuGraphAddMemFreeNode, _, _, _, keep(0), memory);
    P(cuGraphMemFreeNodeGetParams);
    P(cuDeviceGraphMemTrim);
    P(cuDeviceGetGraphMemAttribute);
    P(cuDeviceSetGraphMemAttribute);
    P(cuGraphClone);
    P(cuGraphNodeFindInClone);
    P(cuGraphNodeGetType);
    P(cuGraphGetNodes);
    P(cuGraphGetRootNodes);
    P(cuGraphGetEdges);
    P(cuGraphNodeGetDependencies);
    P(cuGraphNodeGetDependentNodes);
    P(cuGraphAddDependencies, _, _, _, _, keep(0));
    P(cuGraphRemoveDependencies, _, _, _, _, keep(0));
    P(cuGraphDestroyNode);
    P(cuGraphInstantiate);
    P(cuGraphInstantiateWithParams);
    P(cuGraphExecGetFlags);
    P(cuGraphExecKernelNodeSetParams);
    P(cuGraphExecMemcpyNodeSetParams);
    P(cuGraphExecMemsetNodeSetParams);
    P(cuGraphExecHostNodeSetParams);
    P(cuGraphExecChildGraphNodeSetParams);
    P(cuGraphExecEventRecordNodeSetEvent);
    P(cuGraphExecEventWaitNodeSetEvent);
    P(cuGraphExecExternalSemaphoresSignalNodeSetParams);
    P(cuGraphExecExternalSemaphoresWaitNodeSetParams);
    P(cuGraphNodeSetEnabled);
    P(cuGraphNodeGetEnabled);
    P(cuGraphUpload);
    P(cuGraphLaunch);
    P(cuGraphExecDestroy);
    P(cuGraphDestroy);
    P(cuGraphExecUpdate);
    P(cuGraphKernelNodeCopyAttributes);
    P(cuGraphKernelNodeGetAttribute);
    P(cuGraphKernelNodeSetAttribute);
    P(cuGraphDebugDotPrint, _, "/dev/null", _);
    P(cuUserObjectCreate);
    P(cuUserObjectRetain, _, 1);
    P(cuUserObjectRelease, _, 1);
    P(cuGraphRetainUserObject, _, _, 1, _);
    P(cuGraphReleaseUserObject, _, _, 1);
    P(cuGraphAddNode, _, _, _, _, keep(0), _);
    P(cuGraphNodeSetParams);
    P(cuGraphExecNodeSetParams);
    P(cuGraphConditionalHandleCreate);
}

}  // namespace bad_input
