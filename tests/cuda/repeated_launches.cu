// SPDX-License-Identifier: Apache-2.0 OR MIT
// The same kernels again and again, with other arguments, shapes and streams each time, and everything in between that
// changes what a launch does: settings of functions, limits, captures, errors, streams and devices that end.
#include "check.h"

#include <thread>

static __device__ unsigned long long sum;

struct Wide {
    int values[200];
};

static __global__ void add(int value) { atomicAdd(&sum, (unsigned long long)value); }

static __global__ void add_wide(Wide wide, int index) { atomicAdd(&sum, (unsigned long long)wide.values[index]); }

static __global__ void add_shape() {
    if (threadIdx.x == 0) {
        atomicAdd(&sum, 1000ull * gridDim.x + blockDim.x);
    }
}

static __global__ void add_shared(int bytes) {
    extern __shared__ int words[];
    words[bytes / 4 - 1] = bytes;
    atomicAdd(&sum, (unsigned long long)words[bytes / 4 - 1]);
}

static __device__ __noinline__ int depth_of(int depth, volatile int *left) {
    volatile int room[32];
    for (int i = 0; i < 32; i++) room[i] = depth + i;
    if (--*left <= 0) return room[0];
    return depth_of(depth + 1, left) + room[31] - room[31];
}

static __global__ void add_depth(int depth) {
    volatile int left = depth;
    atomicAdd(&sum, (unsigned long long)depth_of(1, &left));
}

static __global__ void append(int *list, int *count, int value) { list[(*count)++] = value; }

static unsigned long long take() {
    unsigned long long value, zero = 0;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyFromSymbol(&value, sum, sizeof value));
    CHECK(cudaMemcpyToSymbol(sum, &zero, sizeof zero));
    return value;
}

static void arguments_and_shapes() {
    for (int i = 1; i <= 500; i++) add<<<1, 1>>>(i);
    std::printf("arguments: %llu\n", take());
    for (int i = 0; i < 400; i++) {
        Wide wide = {};
        wide.values[i % 200] = i;
        add_wide<<<1, 1>>>(wide, i % 200);
    }
    std::printf("800 bytes of arguments: %llu\n", take());
    for (int i = 1; i <= 200; i++) add_shape<<<i % 7 + 1, 32 * (i % 5 + 1)>>>();
    std::printf("shapes: %llu\n", take());
}

static void streams() {
    const int kStreams = 4, kEach = 200;
    cudaStream_t all[kStreams];
    int *lists[kStreams], *counts[kStreams];
    for (int s = 0; s < kStreams; s++) {
        // One of a higher priority, one that waits for the default stream.
        CHECK(cudaStreamCreateWithPriority(&all[s], s == 3 ? cudaStreamDefault : cudaStreamNonBlocking, s == 2 ? -1 : 0));
        CHECK(cudaMalloc(&lists[s], kEach * sizeof(int)));
        CHECK(cudaMalloc(&counts[s], sizeof(int)));
        CHECK(cudaMemset(counts[s], 0, sizeof(int)));
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kEach; i++) {
        for (int s = 0; s < kStreams; s++) append<<<1, 1, 0, all[s]>>>(lists[s], counts[s], i);
    }
    CHECK(cudaDeviceSynchronize());
    bool ordered = true;
    for (int s = 0; s < kStreams; s++) {
        int list[kEach];
        CHECK(cudaMemcpy(list, lists[s], sizeof list, cudaMemcpyDeviceToHost));
        for (int i = 0; i < kEach; i++) ordered &= list[i] == i;
        CHECK(cudaFree(lists[s]));
        CHECK(cudaFree(counts[s]));
        CHECK(cudaStreamDestroy(all[s]));
    }
    std::printf("streams keep their order: %s\n", ordered ? "yes" : "no");
    // A stream for each few launches.
    for (int i = 0; i < 60; i++) {
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        for (int j = 0; j < 40; j++) add<<<1, 1, 0, stream>>>(j);
        CHECK(cudaStreamDestroy(stream));
    }
    std::printf("streams that end: %llu\n", take());
}

static void settings() {
    for (int i = 0; i < 100; i++) add_shared<<<1, 1, 1024>>>(1024);
    const int more = 64 << 10;
    add_shared<<<1, 1, more>>>(more);
    std::printf("too much shared memory: %s\n", cudaGetErrorName(cudaGetLastError()));
    CHECK(cudaFuncSetAttribute(add_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, more));
    for (int i = 0; i < 100; i++) add_shared<<<1, 1, i % 2 ? more : 1024>>>(i % 2 ? more : 1024);
    CHECK(cudaFuncSetAttribute(add_shared, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    for (int i = 0; i < 100; i++) add_shared<<<1, 1, 1024>>>(1024);
    CHECK(cudaFuncSetAttribute(add_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
    add_shared<<<1, 1, more>>>(more);
    std::printf("too much again: %s\n", cudaGetErrorName(cudaGetLastError()));
    std::printf("shared memory: %llu\n", take());
    for (int i = 0; i < 100; i++) add_depth<<<1, 1>>>(2);
    std::printf("a shallow stack: %llu\n", take());
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 64 << 10));
    for (int i = 0; i < 100; i++) add_depth<<<1, 1>>>(100);
    std::printf("a deep one: %llu\n", take());
}

static void errors() {
    int refused = 0;
    for (int i = 0; i < 200; i++) {
        add<<<1, i % 50 == 49 ? 4096 : 1>>>(1);
        refused += cudaGetLastError() != cudaSuccess;
    }
    std::printf("launches of a wrong shape: %d, others: %llu\n", refused, take());
}

static void captures() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < 100; i++) add<<<1, 1, 0, stream>>>(1);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 50; i++) add<<<1, 1, 0, stream>>>(1000);
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t nodes;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
        for (int j = 0; j < 50; j++) add<<<1, 1, 0, stream>>>(1);
    }
    std::printf("captured: %zu nodes, %llu\n", nodes, take());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

static void threads() {
    for (int count : {1, 2, 5}) {
        std::thread all[5];
        for (int t = 0; t < count; t++) {
            all[t] = std::thread([] {
                for (int i = 0; i < 300; i++) add<<<1, 1, 0, cudaStreamPerThread>>>(1);
                CHECK(cudaStreamSynchronize(cudaStreamPerThread));
            });
        }
        for (int t = 0; t < count; t++) all[t].join();
        std::printf("%d threads: %llu\n", count, take());
    }
}

static void resets() {
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 100; j++) add<<<1, 1>>>(j);
        std::printf("before reset %d: %llu\n", i + 1, take());
        CHECK(cudaDeviceReset());
    }
    // A thread without a current context resets nothing.
    for (bool has_context : {false, true}) {
        for (int j = 0; j < 100; j++) add<<<1, 1>>>(1);
        CHECK(cudaDeviceSynchronize());
        std::thread([&] {
            if (has_context) CHECK(cudaFree(nullptr));
            CHECK(cudaDeviceReset());
        }).join();
        CHECK(cudaSetDevice(0));
        for (int j = 0; j < 100; j++) add<<<1, 1>>>(1);
        std::printf("after a reset by a thread %s a context: %llu\n", has_context ? "with" : "without", take());
    }
}

int main() {
    arguments_and_shapes();
    streams();
    settings();
    errors();
    captures();
    threads();
    resets();
    return 0;
}
