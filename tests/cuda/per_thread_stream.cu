// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: --default-stream per-thread
// Each thread's default stream is its own: work in one does not wait for work in another, `cudaStreamLegacy` still
// means the stream that all wait for, and the order inside of a thread's stream is kept.
#include "check.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

__global__ void wait_for(volatile int *flag) {
    while (*flag == 0) {
    }
}

__global__ void add(int *values, int n, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] = values[i] * 3 + value;
    }
}

constexpr int N = 4096;

// One thread's chain of copies, fills and kernels without a stream argument.
static uint64_t chain(int seed) {
    std::vector<int> host(N, seed);
    int *device = nullptr;
    CHECK(cudaMalloc(&device, N * sizeof(int)));
    CHECK(cudaMemset(device, 0, N * sizeof(int)));
    CHECK(cudaMemcpyAsync(device, host.data(), N * sizeof(int), cudaMemcpyHostToDevice));
    for (int i = 0; i < 8; i++) {
        add<<<N / 128, 128>>>(device, N, i + seed);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), device, N * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    return hash_bytes(host.data(), N * sizeof(int));
}

int main() {
    int *flag = nullptr;
    CHECK(cudaHostAlloc(&flag, sizeof *flag, cudaHostAllocDefault));
    *flag = 0;
    CHECK(cudaFree(nullptr));

    // The other thread's kernel runs until this thread has done work in its own stream.
    std::atomic<bool> launched{false};
    cudaError_t before = cudaSuccess, after = cudaErrorUnknown;
    std::thread other([&] {
        wait_for<<<1, 1>>>(flag);
        CHECK(cudaGetLastError());
        before = cudaStreamQuery(nullptr);
        launched = true;
        CHECK(cudaStreamSynchronize(nullptr));
        after = cudaStreamQuery(nullptr);
    });
    while (!launched) {
        std::this_thread::yield();
    }
    const cudaError_t here = cudaStreamQuery(cudaStreamPerThread);
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaStreamSynchronize(nullptr));
    *static_cast<volatile int *>(flag) = 1;
    other.join();
    std::printf("other thread: %s, then %s; here: %s\n", cudaGetErrorName(before), cudaGetErrorName(after),
                cudaGetErrorName(here));

    uint64_t hashes[3] = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&, i] { hashes[i] = chain(i + 1); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (int i = 0; i < 3; i++) {
        REQUIRE(hashes[i] == chain(i + 1));
        std::printf("chain %d: %016llx\n", i + 1, (unsigned long long)hashes[i]);
    }

    unsigned flags = 0;
    CHECK(cudaStreamGetFlags(nullptr, &flags));
    REQUIRE(flags == 0);
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFreeHost(flag));
    CHECK(cudaDeviceSynchronize());
    std::printf("done\n");
}
