// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API of CUDA 12: what 13 has no more, or by another name.
#include "bad_input_runtime.h"

using namespace bad_input;

static void table() {
#if CUDART_VERSION < 13000
    P(cudaGetDeviceProperties);
    P(cudaLaunchCooperativeKernelMultiDevice, _, keep(1), _);
    P(cudaSetDoubleForDevice);
    P(cudaSetDoubleForHost);
    P(cudaThreadGetCacheConfig);
    P(cudaThreadGetLimit);
    P(cudaThreadSetCacheConfig);
    P(cudaThreadSetLimit, _, 16);
    P(cudaEventElapsedTime);
    P(cudaMemAdvise, memory, 16, _, _);
    P(cudaMemAdvise_v2, memory, 16, _, _);
    P(cudaMemPrefetchAsync, memory, 16, _, _);
    P(cudaMemPrefetchAsync_v2, memory, 16, _, _, _);
    P(cudaSignalExternalSemaphoresAsync, _, _, keep(1), _);
    P(cudaWaitExternalSemaphoresAsync, _, _, keep(1), _);
    P(cudaStreamGetCaptureInfo);
    P(cudaStreamGetCaptureInfo_v3);
    P(cudaStreamUpdateCaptureDependencies, _, _, keep(0), _);
    P(cudaStreamUpdateCaptureDependencies_v2, _, _, _, keep(0), _);
    P(cudaGraphAddDependencies, _, _, _, keep(0));
    P(cudaGraphAddDependencies_v2, _, _, _, _, keep(0));
    P(cudaGraphRemoveDependencies, _, _, _, keep(0));
    P(cudaGraphRemoveDependencies_v2, _, _, _, _, keep(0));
    P(cudaGraphGetEdges);
    P(cudaGraphGetEdges_v2);
    P(cudaGraphNodeGetDependencies);
    P(cudaGraphNodeGetDependencies_v2);
    P(cudaGraphNodeGetDependentNodes);
    P(cudaGraphNodeGetDependentNodes_v2);
    P(cudaGraphAddNode, _, _, _, keep(0), _);
    P(cudaGraphAddNode_v2, _, _, _, _, keep(0), _);
    P(cudaGraphKernelNodeGetParams);
    P(cudaGraphKernelNodeSetParams);
    P(cudaGraphInstantiate);
    P(cudaGraphExecUpdate);
    P(cudaGraphMemcpyNodeGetParams);
    P(cudaGraphMemsetNodeGetParams);
    P(cudaGraphHostNodeGetParams);
    P(cudaMemPoolGetAttribute);
    P(cudaPointerGetAttributes, _, memory);
    P(cudaDeviceGetAttribute);
    P(cudaInitDevice);
#endif
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(table); }, runtime_is_healthy);
}
