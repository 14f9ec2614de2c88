// SPDX-License-Identifier: Apache-2.0 OR MIT
// What graphs own and name: memory that they allocate, user objects, events, functions that outlive their graph.
#include "check.h"

#include <atomic>

#include <unistd.h>

__global__ void fill(int *data, int count, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] = value + i;
    }
}

static const int COUNT = 2048;
static const size_t BYTES = COUNT * sizeof(int);

static bool holds(const int *data, int value) {
    for (int i = 0; i < COUNT; i++) {
        if (data[i] != value + i) {
            return false;
        }
    }
    return true;
}

static void allocating_nodes(cudaStream_t stream, int *host) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.poolProps.location.id = 0;
    params.bytesize = BYTES;
    cudaGraphNode_t allocating, filling, copying, freeing;
    CHECK(cudaGraphAddMemAllocNode(&allocating, graph, nullptr, 0, &params));
    REQUIRE(params.dptr != nullptr);
    int *memory = static_cast<int *>(params.dptr);
    int count = COUNT, value = 500;
    void *arguments[] = {&memory, &count, &value};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)fill;
    kernel.gridDim = dim3(COUNT / 256);
    kernel.blockDim = dim3(256);
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&filling, graph, &allocating, 1, &kernel));
    CHECK(cudaGraphAddMemcpyNode1D(&copying, graph, &filling, 1, host, memory, BYTES, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&freeing, graph, &copying, 1, memory));
    cudaMemAllocNodeParams got = {};
    CHECK(cudaGraphMemAllocNodeGetParams(allocating, &got));
    REQUIRE(got.dptr == memory && got.bytesize == BYTES);
    void *freed = nullptr;
    CHECK(cudaGraphMemFreeNodeGetParams(freeing, &freed));
    REQUIRE(freed == memory);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        host[7] = 0;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(holds(host, 500));
    }
    std::printf("allocated by nodes: %d\n", host[7]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
}

static void allocating_capture(cudaStream_t stream, int *host) {
    int *memory;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&memory, BYTES, stream));
    fill<<<COUNT / 256, 256, 0, stream>>>(memory, COUNT, 900);
    CHECK(cudaMemcpyAsync(host, memory, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < 2; i++) {
        host[7] = 0;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(holds(host, 900));
    }
    std::printf("allocated by a capture: %d, nodes %zu\n", host[7], nodes);
    CHECK(cudaGraphExecDestroy(exec));
}

static std::atomic<int> destroyed{0};
static void CUDART_CB destroy(void *argument) { destroyed += *static_cast<int *>(argument); }

static void user_objects(cudaStream_t stream) {
    static int ten = 10;
    cudaUserObject_t object;
    cudaGraph_t graph;
    cudaGraphNode_t node;
    CHECK(cudaUserObjectCreate(&object, &ten, destroy, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("object: destroyed %d", destroyed.load());
    CHECK(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 5000 && destroyed.load() == 0; i++) {
        usleep(1000);
    }
    std::printf(", then %d\n", destroyed.load());
}

static std::atomic<int> total{0};
static void CUDART_CB add(void *argument) { total += *static_cast<int *>(argument); }

// As programs do that capture anew for each step: the executable graph lives on, the captured ones do not.
static void capture_again(cudaStream_t stream) {
    static int steps[4] = {1, 20, 300, 4000};
    static int source[4], target[4];
    int *device;
    CHECK(cudaMalloc(&device, sizeof(int)));
    cudaGraphExec_t exec = nullptr;
    for (int step = 0; step < 4; step++) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMemcpyAsync(device, &source[step], sizeof(int), cudaMemcpyHostToDevice, stream));
        CHECK(cudaLaunchHostFunc(stream, add, &steps[step]));
        CHECK(cudaMemcpyAsync(&target[step], device, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamEndCapture(stream, &graph));
        if (exec == nullptr) {
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
        } else {
            cudaGraphExecUpdateResultInfo info;
            CHECK(cudaGraphExecUpdate(exec, graph, &info));
        }
        CHECK(cudaGraphDestroy(graph));
        for (int launch = 0; launch < 2; launch++) {
            source[step] = 100 * step + launch;
            CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaStreamSynchronize(stream));
            REQUIRE(target[step] == 100 * step + launch);
        }
        std::printf("step %d: total %d, target %d\n", step, total.load(), target[step]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(device));
}

static void events(cudaStream_t stream, int *host) {
    int *memory;
    CHECK(cudaMalloc(&memory, BYTES));
    cudaStream_t other;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cudaEvent_t done, wrong;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&wrong, cudaEventDisableTiming));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fill<<<COUNT / 256, 256, 0, stream>>>(memory, COUNT, 70);
    CHECK(cudaEventRecordWithFlags(wrong, stream, cudaEventRecordExternal));
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 2;
    cudaGraphNode_t all[2];
    CHECK(cudaGraphGetNodes(graph, all, &nodes));
    for (cudaGraphNode_t node : all) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        if (type == cudaGraphNodeTypeEventRecord) {
            cudaEvent_t event;
            CHECK(cudaGraphEventRecordNodeGetEvent(node, &event));
            REQUIRE(event == wrong);
            CHECK(cudaGraphEventRecordNodeSetEvent(node, done));
            CHECK(cudaGraphEventRecordNodeGetEvent(node, &event));
            REQUIRE(event == done);
            std::printf("the event was changed\n");
        }
    }
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemset(memory, 0, BYTES));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamWaitEvent(other, done, 0));
    CHECK(cudaMemcpyAsync(host, memory, BYTES, cudaMemcpyDeviceToHost, other));
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaEventSynchronize(done));
    REQUIRE(holds(host, 70));
    std::printf("after the event: %d\n", host[0]);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(done));
    CHECK(cudaEventDestroy(wrong));
    CHECK(cudaFree(memory));
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int *host;
    CHECK(cudaMallocHost(&host, BYTES));
    fill<<<1, 1, 0, stream>>>(host, 0, 0);
    CHECK(cudaStreamSynchronize(stream));
    allocating_nodes(stream, host);
    allocating_capture(stream, host);
    user_objects(stream);
    capture_again(stream);
    events(stream, host);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(host));
    std::printf("done\n");
    return 0;
}
