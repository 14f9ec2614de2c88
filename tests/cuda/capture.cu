// SPDX-License-Identifier: Apache-2.0 OR MIT
// Capture of streams: forks and joins, state, what may not be done meanwhile, and copies of pageable memory,
// which must see the memory as it is at each replay.
#include "check.h"

#include <cstring>
#include <vector>

__global__ void add(int *to, const int *from, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        to[i] += from[i];
    }
}
__global__ void bump(int *data, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i]++;
    }
}

static const int COUNT = 4096;
static const int BLOCKS = COUNT / 256;

static const char *status_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    return status == cudaStreamCaptureStatusNone     ? "none"
           : status == cudaStreamCaptureStatusActive ? "active"
                                                     : "invalidated";
}

static int calls = 0;
static void count_call(void *) { calls++; }

static void forks_and_joins() {
    int *a, *b, *host;
    CHECK(cudaMalloc(&a, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&b, COUNT * sizeof(int)));
    CHECK(cudaMallocHost(&host, COUNT * sizeof(int)));
    cudaStream_t one, two;
    cudaEvent_t forked, joined;
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));

    std::printf("before: %s\n", status_of(one));
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    std::printf("begun: %s, other stream %s\n", status_of(one), status_of(two));
    CHECK(cudaMemsetAsync(a, 0, COUNT * sizeof(int), one));
    CHECK(cudaEventRecord(forked, one));
    CHECK(cudaStreamWaitEvent(two, forked, 0));
    std::printf("forked: other stream %s\n", status_of(two));
    CHECK(cudaMemsetAsync(b, 0, COUNT * sizeof(int), two));
    bump<<<BLOCKS, 256, 0, two>>>(b, COUNT);
    bump<<<BLOCKS, 256, 0, one>>>(a, COUNT);
    bump<<<BLOCKS, 256, 0, one>>>(a, COUNT);
    CHECK(cudaEventRecord(joined, two));
    CHECK(cudaStreamWaitEvent(one, joined, 0));
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t capturing = nullptr;
    const cudaGraphNode_t *next = nullptr;
    const cudaGraphEdgeData *data = nullptr;
    size_t count = 99;
    CHECK(cudaStreamGetCaptureInfo(one, &status, &id, &capturing, &next, &data, &count));
    REQUIRE(status == cudaStreamCaptureStatusActive && capturing != nullptr && next != nullptr);
    std::printf("the next work depends on %zu nodes\n", count);
    add<<<BLOCKS, 256, 0, one>>>(a, b, COUNT);
    CHECK(cudaMemcpyAsync(host, a, COUNT * sizeof(int), cudaMemcpyDeviceToHost, one));
    CHECK(cudaLaunchHostFunc(one, count_call, nullptr));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(one, &graph));
    std::printf("ended: %s, other stream %s\n", status_of(one), status_of(two));

    size_t nodes = 0, edges = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    std::printf("nodes %zu, edges %zu\n", nodes, edges);
    std::memset(host, 0xff, COUNT * sizeof(int));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    REQUIRE(calls == 0 && host[0] == -1);
    for (int i = 0; i < 5; i++) {
        CHECK(cudaGraphLaunch(exec, one));
    }
    CHECK(cudaStreamSynchronize(one));
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(host[i] == 3);
    }
    std::printf("value %d, %d calls of the host function\n", host[0], calls);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    CHECK(cudaStreamDestroy(one));
    CHECK(cudaStreamDestroy(two));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFreeHost(host));
}

static void add_up(void *argument) {
    long long *sums = static_cast<long long *>(argument);
    sums[1] += sums[0];
}

// Both ends on stack and heap: read and written when the graph runs, in the order of its nodes.
static void pageable_memory() {
    std::vector<int> in(COUNT), out(COUNT);
    long long last_and_sum[2] = {0, 0};
    long long *wide;
    int *device;
    CHECK(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&wide, sizeof(long long)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemset(wide, 0, sizeof(long long)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(device, in.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice, stream));
    bump<<<BLOCKS, 256, 0, stream>>>(device, COUNT);
    CHECK(cudaMemcpyAsync(out.data(), device, COUNT * sizeof(int), cudaMemcpyDeviceToHost, stream));
    bump<<<1, 1, 0, stream>>>((int *)wide, 1);
    CHECK(cudaMemcpyAsync(last_and_sum, wide, sizeof(long long), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, add_up, last_and_sum));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    std::vector<cudaGraphNode_t> all(nodes);
    CHECK(cudaGraphGetNodes(graph, all.data(), &nodes));
    int copies = 0;
    for (cudaGraphNode_t node : all) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        copies += type == cudaGraphNodeTypeMemcpy;
    }
    std::printf("pageable: nodes %zu, copies %d\n", nodes, copies);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    REQUIRE(out[1] == 0);
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            in[i] = round * 1000 + i;
        }
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++) {
            REQUIRE(out[i] == round * 1000 + i + 1);
        }
        std::printf("round %d: first %d, last %lld, sum %lld\n", round, out[0], last_and_sum[0], last_and_sum[1]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // The same with nodes, and other memory at the next launch.
    std::vector<int> other(COUNT, 77);
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t to, from;
    CHECK(cudaGraphAddMemcpyNode1D(&to, graph, nullptr, 0, device, in.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&from, graph, &to, 1, out.data(), device, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    cudaMemcpy3DParms got = {};
    CHECK(cudaGraphMemcpyNodeGetParams(from, &got));
    REQUIRE(got.dstPtr.ptr == out.data() && got.srcPtr.ptr == device && got.extent.width == COUNT * sizeof(int));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    in[5] = -5;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("nodes: %d %d\n", out[4], out[5]);
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, to, device, other.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("other memory: %d %d\n", out[4], out[5]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(device));
    CHECK(cudaFree(wide));
    CHECK(cudaStreamDestroy(stream));
}

static void errors() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph = (cudaGraph_t)1;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    std::printf("wait while capturing: %s\n", cudaGetErrorName(cudaStreamSynchronize(stream)));
    std::printf("then: %s\n", status_of(stream));
    std::printf("end: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
    REQUIRE(graph == nullptr);
    std::printf("after: %s\n", status_of(stream));
    (void)cudaGetLastError();

    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    std::printf("mode was %d\n", (int)mode);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    std::printf("mode was %d\n", (int)mode);
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    // Loads the kernels: that might need what a capture forbids.
    int *memory;
    CHECK(cudaMalloc(&memory, sizeof(int)));
    add<<<1, 1>>>(memory, memory, 0);
    bump<<<1, 1>>>(memory, 0);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
    forks_and_joins();
    pageable_memory();
    errors();
    std::printf("done\n");
    return 0;
}
