// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls about graphs whose signatures differ between CUDA 11, 12 and 13. Compiled by each compiler, this prints the
// same.
#include "check.h"

#include <vector>

#if CUDART_VERSION >= 13000
#define NO_EDGES nullptr,
#else
#define NO_EDGES
#endif

static cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph) {
#if CUDART_VERSION >= 12000
    return cudaGraphInstantiate(exec, graph, 0);
#else
    cudaGraphNode_t node = nullptr;
    char log[64] = "";
    return cudaGraphInstantiate(exec, graph, &node, log, sizeof log);
#endif
}

static cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, int *result) {
#if CUDART_VERSION >= 12000
    cudaGraphExecUpdateResultInfo info = {};
    const cudaError_t error = cudaGraphExecUpdate(exec, graph, &info);
    *result = info.result;
#else
    cudaGraphNode_t node = nullptr;
    cudaGraphExecUpdateResult answer = cudaGraphExecUpdateError;
    const cudaError_t error = cudaGraphExecUpdate(exec, graph, &node, &answer);
    *result = answer;
#endif
    return error;
}

__global__ void add(int *out, int value) { *out = *out * 2 + value; }

// A chain of two kernels and a copy back, changed and asked about.
static void build_and_ask() {
    int *device = nullptr;
    int host = 0;
    CHECK(cudaMalloc(&device, sizeof *device));
    CHECK(cudaMemset(device, 0, sizeof *device));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t first, second, copy;
    int one = 1, five = 5;
    void *first_arguments[] = {&device, &one}, *second_arguments[] = {&device, &five};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(add);
    kernel.gridDim = dim3(1);
    kernel.blockDim = dim3(1);
    kernel.kernelParams = first_arguments;
    CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &kernel));
#if CUDART_VERSION >= 12000
    cudaGraphNodeParams any = {};
    any.type = cudaGraphNodeTypeKernel;
    any.kernel.func = reinterpret_cast<void *>(add);
    any.kernel.gridDim = dim3(1);
    any.kernel.blockDim = dim3(1);
    any.kernel.kernelParams = second_arguments;
    CHECK(cudaGraphAddNode(&second, graph, &first, NO_EDGES 1, &any));
#else
    kernel.kernelParams = second_arguments;
    CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
#endif
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, &host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddDependencies(graph, &second, &copy, NO_EDGES 1));
    CHECK(cudaGraphAddDependencies(graph, &first, &copy, NO_EDGES 1));
    CHECK(cudaGraphRemoveDependencies(graph, &first, &copy, NO_EDGES 1));

    size_t edges = 0, before = 0, after = 0;
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, NO_EDGES &edges));
    CHECK(cudaGraphNodeGetDependencies(second, nullptr, NO_EDGES &before));
    CHECK(cudaGraphNodeGetDependentNodes(second, nullptr, NO_EDGES &after));
    cudaGraphNode_t found = nullptr;
    size_t room = 1;
    CHECK(cudaGraphNodeGetDependencies(copy, &found, NO_EDGES &room));
    REQUIRE(found == second && room == 1);
    std::printf("%zu edges, %zu before, %zu after\n", edges, before, after);

    cudaGraphExec_t exec;
    CHECK(instantiate(&exec, graph));
    CHECK(cudaGraphLaunch(exec, nullptr));
    CHECK(cudaGraphLaunch(exec, nullptr));
    CHECK(cudaStreamSynchronize(nullptr));
    std::printf("after two launches: %d\n", host);
    int result = -1;
    CHECK(update(exec, graph, &result));
    std::printf("updated: %d\n", result);
    cudaGraph_t empty;
    CHECK(cudaGraphCreate(&empty, 0));
    const int refused = update(exec, empty, &result);
    std::printf("updated by another graph: %d, %d, %d\n", refused, result, (int)cudaGetLastError());
    CHECK(cudaGraphDestroy(empty));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(device));
}

static void capture() {
    int *device = nullptr;
    cudaStream_t stream;
    CHECK(cudaMalloc(&device, sizeof *device));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    add<<<1, 1, 0, stream>>>(device, 1);
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t *nodes = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *data = nullptr;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &data, &count));
#elif CUDART_VERSION >= 12000
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &count));
#else
    unsigned long long same = 1;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &same));
    CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
    REQUIRE(same == id);
#endif
    REQUIRE(status == cudaStreamCaptureStatusActive && id != 0 && graph != nullptr && count == 1);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, nullptr, NO_EDGES 0, cudaStreamSetCaptureDependencies));
    add<<<1, 1, 0, stream>>>(device, 2);
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t all = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &all));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    std::printf("captured %zu nodes, %zu roots\n", all, roots);
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
}

int main() {
    build_and_ask();
    capture();
    std::printf("done\n");
}
