// SPDX-License-Identifier: Apache-2.0 OR MIT
// Graphs node by node: structure, parameters given back, replay, changes in executable graphs, clones, children.
#include "check.h"

#include <algorithm>
#include <vector>

__global__ void scale(int *data, int count, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] *= factor;
    }
}
__global__ void add(int *data, int count, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] += value;
    }
}

static const int COUNT = 1000;

struct Seen {
    const int *data;
    long long sum;
    int calls;
};
static void sum_up(void *argument) {
    Seen *seen = static_cast<Seen *>(argument);
    seen->sum = 0;
    for (int i = 0; i < COUNT; i++) {
        seen->sum += seen->data[i];
    }
    seen->calls++;
}

static cudaKernelNodeParams kernel(void *function, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3((COUNT + 127) / 128);
    params.blockDim = dim3(128);
    params.kernelParams = arguments;
    return params;
}

int main() {
    int *device, *host;
    CHECK(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK(cudaMallocHost(&host, COUNT * sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    // fill with bytes 1 -> add 1 -> scale by 3 -> copy out -> sum on the host
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t fill, adding, scaling, copying, summing, empty;
    cudaMemsetParams set = {};
    set.dst = device;
    set.value = 1;
    set.elementSize = 4;
    set.width = COUNT;
    set.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
    int count = COUNT, one = 1, three = 3;
    void *add_arguments[] = {&device, &count, &one};
    void *scale_arguments[] = {&device, &count, &three};
    cudaKernelNodeParams add_params = kernel((void *)add, add_arguments);
    cudaKernelNodeParams scale_params = kernel((void *)scale, scale_arguments);
    CHECK(cudaGraphAddKernelNode(&adding, graph, &fill, 1, &add_params));
    CHECK(cudaGraphAddKernelNode(&scaling, graph, &adding, 1, &scale_params));
    CHECK(cudaGraphAddMemcpyNode1D(&copying, graph, &scaling, 1, host, device, COUNT * sizeof(int),
                                   cudaMemcpyDeviceToHost));
    Seen seen = {host, 0, 0};
    cudaHostNodeParams host_params = {};
    host_params.fn = sum_up;
    host_params.userData = &seen;
    CHECK(cudaGraphAddHostNode(&summing, graph, &copying, 1, &host_params));
    CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));

    size_t nodes = 0, edges = 0, roots = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    std::printf("nodes %zu, edges %zu, roots %zu\n", nodes, edges, roots);
    std::vector<cudaGraphNode_t> all(nodes), from(edges), to(edges);
    CHECK(cudaGraphGetNodes(graph, all.data(), &nodes));
    REQUIRE(std::count(all.begin(), all.end(), copying) == 1);
    CHECK(cudaGraphGetEdges(graph, from.data(), to.data(), nullptr, &edges));
    for (size_t i = 0; i < edges; i++) {
        REQUIRE(from[i] != empty && to[i] != fill);
    }
    cudaGraphNode_t before = nullptr;
    size_t one_node = 1;
    CHECK(cudaGraphNodeGetDependencies(scaling, &before, nullptr, &one_node));
    REQUIRE(one_node == 1 && before == adding);
    CHECK(cudaGraphNodeGetDependentNodes(scaling, &before, nullptr, &one_node));
    REQUIRE(one_node == 1 && before == copying);
    for (cudaGraphNode_t node : {fill, adding, copying, summing, empty}) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        std::printf("type %d\n", (int)type);
    }

    // What was set is given back.
    cudaKernelNodeParams got = {};
    CHECK(cudaGraphKernelNodeGetParams(adding, &got));
    REQUIRE(got.func != nullptr && got.gridDim.x == 8 && got.blockDim.x == 128);
    REQUIRE(*(int **)got.kernelParams[0] == device && *(int *)got.kernelParams[1] == COUNT);
    REQUIRE(*(int *)got.kernelParams[2] == 1);
    cudaMemsetParams got_set = {};
    CHECK(cudaGraphMemsetNodeGetParams(fill, &got_set));
    REQUIRE(got_set.dst == device && got_set.value == 1 && got_set.elementSize == 4 && got_set.width == COUNT);
    cudaHostNodeParams got_host = {};
    CHECK(cudaGraphHostNodeGetParams(summing, &got_host));
    REQUIRE(got_host.fn == sum_up && got_host.userData == &seen);
    cudaMemcpy3DParms got_copy = {};
    CHECK(cudaGraphMemcpyNodeGetParams(copying, &got_copy));
    REQUIRE(got_copy.extent.width == COUNT * sizeof(int) && got_copy.srcPtr.ptr == device);
    REQUIRE(got_copy.dstPtr.ptr == host);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    std::printf("sum %lld after %d calls\n", seen.sum, seen.calls);

    // Changes in the executable graph do not touch the graph.
    int five = 5;
    scale_arguments[2] = &five;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, scaling, &scale_params));
    set.value = 3;
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, fill, &set));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("sum %lld in the changed executable graph\n", seen.sum);
    CHECK(cudaGraphNodeSetEnabled(exec, adding, 0));
    unsigned enabled = 9;
    CHECK(cudaGraphNodeGetEnabled(exec, adding, &enabled));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("sum %lld with a node switched off (%u)\n", seen.sum, enabled);
    CHECK(cudaGraphNodeSetEnabled(exec, adding, 1));

    // A clone has nodes of its own; the executable graph takes its parameters.
    cudaGraph_t clone;
    CHECK(cudaGraphClone(&clone, graph));
    cudaGraphNode_t twin;
    CHECK(cudaGraphNodeFindInClone(&twin, scaling, clone));
    REQUIRE(twin != scaling);
    int seven = 7;
    scale_arguments[2] = &seven;
    CHECK(cudaGraphKernelNodeSetParams(twin, &scale_params));
    CHECK(cudaGraphKernelNodeGetParams(scaling, &got));
    REQUIRE(*(int *)got.kernelParams[2] == 3);
    CHECK(cudaGraphKernelNodeGetParams(twin, &got));
    REQUIRE(*(int *)got.kernelParams[2] == 7);
    cudaGraphExecUpdateResultInfo info = {};
    CHECK(cudaGraphExecUpdate(exec, clone, &info));
    REQUIRE(info.result == cudaGraphExecUpdateSuccess);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("sum %lld after the update\n", seen.sum);
    cudaGraphNode_t more;
    CHECK(cudaGraphAddEmptyNode(&more, clone, nullptr, 0));
    const cudaError_t refused = cudaGraphExecUpdate(exec, clone, &info);
    std::printf("update to another shape: %s, result %d\n", cudaGetErrorName(refused),
                (int)(info.result != cudaGraphExecUpdateSuccess));
    (void)cudaGetLastError();

    // A graph in a graph: twice the work.
    cudaGraph_t parent;
    CHECK(cudaGraphCreate(&parent, 0));
    cudaGraphNode_t first, second;
    CHECK(cudaGraphAddChildGraphNode(&first, parent, nullptr, 0, graph));
    CHECK(cudaGraphAddChildGraphNode(&second, parent, &first, 1, graph));
    cudaGraph_t inner;
    CHECK(cudaGraphChildGraphNodeGetGraph(second, &inner));
    CHECK(cudaGraphGetNodes(inner, nullptr, &nodes));
    std::printf("nodes in the child: %zu\n", nodes);
    cudaGraphExec_t parent_exec;
    CHECK(cudaGraphInstantiate(&parent_exec, parent, 0));
    const int calls = seen.calls;
    CHECK(cudaGraphLaunch(parent_exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("sum %lld, %d calls\n", seen.sum, seen.calls - calls);

    // Edges can be taken away and put back; nodes can go.
    CHECK(cudaGraphRemoveDependencies(graph, &adding, &scaling, nullptr, 1));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    std::printf("edges %zu", edges);
    CHECK(cudaGraphAddDependencies(graph, &adding, &scaling, nullptr, 1));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    std::printf(", then %zu\n", edges);
    CHECK(cudaGraphDestroyNode(empty));
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    std::printf("nodes %zu\n", nodes);

    CHECK(cudaGraphExecDestroy(parent_exec));
    CHECK(cudaGraphDestroy(parent));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    std::printf("done\n");
    return 0;
}
