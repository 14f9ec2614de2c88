// SPDX-License-Identifier: Apache-2.0 OR MIT
// Graphs and executable graphs that stay for many steps, with pauses between them: whatever happens to the GPU's objects in a pause, each
// step must do the same, and every query must give the same answer.
#include "check.h"

#include <atomic>
#include <vector>

#include <unistd.h>

static const int COUNT = 4096;
static const size_t BYTES = COUNT * sizeof(int);
static const int STEPS = 12;
static const useconds_t PAUSE_US = 20000;

__global__ void add(int *data, int count, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] += value;
    }
}
__global__ void scale(int *data, int count, int factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] *= factor;
    }
}

static std::atomic<int> called{0}, destroyed{0};
static void CUDART_CB call(void *argument) { called += *static_cast<int *>(argument); }
static void CUDART_CB destroy(void *argument) { destroyed += *static_cast<int *>(argument); }

struct Arguments {
    int *data;
    int count, value;
    void *all[3];
    Arguments(int *data, int value) : data(data), count(COUNT), value(value), all{&this->data, &count, &this->value} {}
};
static cudaKernelNodeParams kernel(void (*function)(int *, int, int), Arguments &arguments) {
    cudaKernelNodeParams params = {};
    params.func = (void *)function;
    params.gridDim = dim3(COUNT / 256);
    params.blockDim = dim3(256);
    params.kernelParams = arguments.all;
    return params;
}

static long long sum(const int *data) {
    long long all = 0;
    for (int i = 0; i < COUNT; i++) {
        all += data[i];
    }
    return all;
}

// Every kind of node, and graphs in graphs. All handles are used again after each pause.
static void all_kinds(cudaStream_t stream, int *device, int *host) {
    static int one = 1;
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    cudaGraph_t innermost, inner, graph;
    cudaGraphNode_t leaf, middle, fill, adding, scaling, nested, calling, empty, recording, waiting, copying;
    Arguments of_leaf(device, 5), of_add(device, 2), of_scale(device, 3);
    CHECK(cudaGraphCreate(&innermost, 0));
    cudaKernelNodeParams leaf_params = kernel(add, of_leaf);
    CHECK(cudaGraphAddKernelNode(&leaf, innermost, nullptr, 0, &leaf_params));
    CHECK(cudaGraphCreate(&inner, 0));
    CHECK(cudaGraphAddChildGraphNode(&middle, inner, nullptr, 0, innermost));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams set = {};
    set.dst = device;
    set.elementSize = 4;
    set.value = 7;
    set.width = COUNT;
    set.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
    cudaKernelNodeParams add_params = kernel(add, of_add), scale_params = kernel(scale, of_scale);
    CHECK(cudaGraphAddKernelNode(&adding, graph, &fill, 1, &add_params));
    CHECK(cudaGraphAddKernelNode(&scaling, graph, &adding, 1, &scale_params));
    CHECK(cudaGraphAddChildGraphNode(&nested, graph, &scaling, 1, inner));
    cudaHostNodeParams host_params = {call, &one};
    CHECK(cudaGraphAddHostNode(&calling, graph, nullptr, 0, &host_params));
    CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
    CHECK(cudaGraphAddEventRecordNode(&recording, graph, &nested, 1, event));
    CHECK(cudaGraphAddEventWaitNode(&waiting, graph, &empty, 1, event));
    CHECK(cudaGraphAddMemcpyNode1D(&copying, graph, &recording, 1, host, device, BYTES, cudaMemcpyDeviceToHost));
    // The first node depends on later ones.
    cudaGraphNode_t from[2] = {calling, waiting}, to[2] = {fill, fill};
    CHECK(cudaGraphAddDependencies(graph, from, to, nullptr, 2));
    cudaLaunchAttributeValue attribute = {};
    attribute.priority = -1;
    CHECK(cudaGraphKernelNodeSetAttribute(adding, cudaLaunchAttributePriority, &attribute));
    cudaGraphExec_t exec, own;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphInstantiate(&own, graph, 0));
    long long results = 0;
    for (int step = 0; step < STEPS; step++) {
        // Parameters of this executable graph alone, and a node that is off in every third step.
        Arguments stepped(device, step);
        cudaKernelNodeParams params = kernel(add, stepped);
        CHECK(cudaGraphExecKernelNodeSetParams(own, adding, &params));
        CHECK(cudaGraphNodeSetEnabled(own, scaling, step % 3 != 0));
        usleep(PAUSE_US);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(host[step] == (7 + 2) * 3 + 5);
        usleep(PAUSE_US);
        unsigned enabled = 9;
        CHECK(cudaGraphNodeGetEnabled(own, scaling, &enabled));
        REQUIRE(enabled == (step % 3 != 0 ? 1u : 0u));
        CHECK(cudaGraphLaunch(own, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(host[step] == (7 + step) * (enabled ? 3 : 1) + 5);
        results += sum(host);
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(nested, &type));
        cudaGraph_t found;
        CHECK(cudaGraphChildGraphNodeGetGraph(nested, &found));
        size_t nodes = 0, edges = 0, inside = 0, before = 0;
        CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
        CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
        CHECK(cudaGraphNodeGetDependencies(fill, nullptr, nullptr, &before));
        CHECK(cudaGraphGetNodes(found, nullptr, &inside));
        REQUIRE(type == cudaGraphNodeTypeGraph && nodes == 9 && edges == 8 && inside == 1 && before == 2);
        cudaKernelNodeParams got = {};
        CHECK(cudaGraphKernelNodeGetParams(scaling, &got));
        REQUIRE(got.gridDim.x == COUNT / 256 && *static_cast<int *>(got.kernelParams[2]) == 3);
        cudaMemsetParams filled = {};
        CHECK(cudaGraphMemsetNodeGetParams(fill, &filled));
        REQUIRE(filled.dst == device && filled.value == 7);
        cudaEvent_t recorded;
        CHECK(cudaGraphEventRecordNodeGetEvent(recording, &recorded));
        REQUIRE(recorded == event);
        CHECK(cudaGraphKernelNodeGetAttribute(adding, cudaLaunchAttributePriority, &attribute));
        REQUIRE(attribute.priority == -1);
    }
    std::printf("all kinds: %lld, %d calls\n", results, called.load());
    CHECK(cudaGraphExecDestroy(own));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(inner));
    CHECK(cudaGraphDestroy(innermost));
    CHECK(cudaEventDestroy(event));
}

static cudaGraph_t captured(cudaStream_t stream, int *device, int *host, int *value) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(device, 0, BYTES, stream));
    add<<<COUNT / 256, 256, 0, stream>>>(device, COUNT, *value);
    CHECK(cudaLaunchHostFunc(stream, call, value));
    CHECK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

// As frameworks do: the executable graphs stay, and the graphs that they were made from are destroyed at once.
static void without_their_graphs(cudaStream_t stream, int *device, int *host) {
    static int values[4] = {1, 20, 300, 4000}, weight = 1;
    called = 0;
    std::vector<cudaGraphExec_t> execs;
    for (int &value : values) {
        cudaGraph_t graph = captured(stream, device, host, &value);
        cudaUserObject_t object;
        CHECK(cudaUserObjectCreate(&object, &weight, destroy, 1, cudaUserObjectNoDestructorSync));
        CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        execs.push_back(exec);
    }
    for (int step = 0; step < STEPS; step++) {
        usleep(PAUSE_US);
        CHECK(cudaGraphLaunch(execs[step % 4], stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(host[step] == values[step % 4] && destroyed.load() == 0);
    }
    std::printf("without their graphs: %d calls\n", called.load());
    for (cudaGraphExec_t exec : execs) {
        usleep(PAUSE_US);
        CHECK(cudaGraphExecDestroy(exec));
    }
    for (int i = 0; i < 5000 && destroyed.load() < 4; i++) {
        usleep(1000);
    }
    usleep(PAUSE_US);
    std::printf("destroyed: %d\n", destroyed.load());
}

// As programs do that capture anew for each step.
static void updated(cudaStream_t stream, int *device, int *host) {
    called = 0;
    cudaGraphExec_t exec = nullptr;
    static int values[STEPS];
    for (int step = 0; step < STEPS; step++) {
        values[step] = step + 1;
        cudaGraph_t graph = captured(stream, device, host, &values[step]);
        usleep(PAUSE_US);
        if (exec == nullptr) {
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
        } else {
            cudaGraphExecUpdateResultInfo info;
            CHECK(cudaGraphExecUpdate(exec, graph, &info));
        }
        CHECK(cudaGraphDestroy(graph));
        usleep(PAUSE_US);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(host[step] == step + 1);
    }
    std::printf("updated: %d calls\n", called.load());
    CHECK(cudaGraphExecDestroy(exec));
}

int main() {
    int *device, *host;
    cudaStream_t stream;
    CHECK(cudaMalloc(&device, BYTES));
    CHECK(cudaMallocHost(&host, BYTES));
    CHECK(cudaStreamCreate(&stream));
    all_kinds(stream, device, host);
    without_their_graphs(stream, device, host);
    updated(stream, device, host);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    return 0;
}
