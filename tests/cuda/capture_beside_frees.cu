// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One thread captures in relaxed mode, others allocate and free meanwhile: no call ends the capture.

#include "check.h"

#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

__global__ void add(int *value) { atomicAdd(value, 1); }

static const int kRounds = 300;

// Allocations that lie around, of lengths that many programs have, until the captures are over.
static void allocate(size_t bytes, const std::atomic<bool> &over, std::atomic<int> &wrong) {
    while (!over) {
        void *block;
        if (cudaMalloc(&block, bytes) != cudaSuccess) wrong++;
        if (cudaMemset(block, 7, 64) != cudaSuccess) wrong++;
        if (cudaFree(block) != cudaSuccess) wrong++;
    }
}

// Pinned memory that a kernel may still use when it is freed.
static void pin(size_t bytes, const std::atomic<bool> &over, std::atomic<int> &wrong) {
    cudaStream_t stream;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) wrong++;
    // Whole pages, so that no other thread writes to a page while it is registered.
    void *own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) wrong++;
    while (!over) {
        void *block;
        if (cudaMallocHost(&block, bytes) != cudaSuccess) wrong++;
        if (cudaMemsetAsync(block, 7, bytes, stream) != cudaSuccess) wrong++;
        if (cudaFreeHost(block) != cudaSuccess) wrong++;
        if (cudaHostRegister(own, bytes, cudaHostRegisterDefault) != cudaSuccess) wrong++;
        if (cudaMemsetAsync(own, 7, bytes, stream) != cudaSuccess) wrong++;
        if (cudaHostUnregister(own) != cudaSuccess) wrong++;
    }
    munmap(own, bytes);
    if (cudaStreamDestroy(stream) != cudaSuccess) wrong++;
}

int main() {
    int *value, sum;
    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaMemset(value, 0, sizeof(int)));
    // The stream does not wait for the default one.
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> others;
    for (size_t bytes : {size_t(512), size_t(64) << 10, size_t(1) << 20, size_t(4) << 20}) {
        others.emplace_back([&, bytes] { allocate(bytes, over, wrong); });
    }
    for (size_t bytes : {size_t(4) << 10, size_t(256) << 10}) {
        others.emplace_back([&, bytes] { pin(bytes, over, wrong); });
    }
    for (int round = 0; round < kRounds; round++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        for (int i = 0; i < 10; i++) add<<<1, 1, 0, stream>>>(value);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }
    over = true;
    for (std::thread &other : others) other.join();
    CHECK(cudaMemcpy(&sum, value, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%d captures, %d additions, %d refused allocations\n", kRounds, sum, wrong.load());
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(value));
    return 0;
}
