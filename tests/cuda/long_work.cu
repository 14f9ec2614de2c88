// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Work that takes long in one way or another, for a device with a time limit.
//
//   long_work endless   a kernel that does not end
//   long_work graph     a graph with one
//   long_work patient   much work in short pieces, and work that waits for long; prints "right"

#include "busy.h"
#include "check.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

constexpr int PIECES = 40;
constexpr unsigned long long PIECE_NS = 50'000'000;

__global__ void wait_for(volatile int *flag) {
    while (*flag == 0) {}
}

__global__ void take(unsigned long long nanoseconds, int *count) {
    stay_busy(nanoseconds);
    ++*count;
}

static void sleep_for_long(void *) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(PIECES * PIECE_NS));
}

static void endless(bool in_graph) {
    int *flag;
    CHECK(cudaMallocHost(&flag, sizeof *flag));
    *flag = 0;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    if (in_graph) CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    wait_for<<<1, 1, 0, stream>>>(flag);
    CHECK(cudaGetLastError());
    if (in_graph) {
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphLaunch(executable, stream));
    }
    std::printf("started\n");
    std::fflush(stdout);
    std::printf("synchronize: %s\n", cudaGetErrorName(cudaStreamSynchronize(stream)));
    void *memory;
    std::printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&memory, 1 << 20)));
    std::thread([] { std::printf("of another thread: %s\n", cudaGetErrorName(cudaDeviceSynchronize())); }).join();
}

static void patient() {
    int *counts;
    cudaStream_t first, second;
    cudaEvent_t event;
    CHECK(cudaMallocManaged(&counts, 2 * sizeof *counts));
    counts[0] = counts[1] = 0;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    CHECK(cudaEventCreate(&event));
    for (int piece = 0; piece < PIECES; piece++) take<<<1, 1, 0, first>>>(PIECE_NS, &counts[0]);
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    take<<<1, 1, 0, second>>>(PIECE_NS, &counts[1]);
    CHECK(cudaLaunchHostFunc(second, sleep_for_long, nullptr));
    take<<<1, 1, 0, second>>>(PIECE_NS, &counts[1]);
    CHECK(cudaDeviceSynchronize());
    std::printf(counts[0] == PIECES && counts[1] == 2 ? "right\n" : "wrong: %d, %d\n", counts[0], counts[1]);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "patient";
    if (std::strcmp(what, "patient") == 0) {
        patient();
    } else {
        endless(std::strcmp(what, "graph") == 0);
    }
    return 0;
}
