// SPDX-License-Identifier: Apache-2.0 OR MIT
// Four host threads, each with its own stream, buffers and errors.
#include "check.h"

#include <thread>
#include <vector>

static const int kThreads = 4;
static const int kElements = 1 << 14;
static const int kRounds = 20;

__global__ void affine(unsigned *values, int n, unsigned factor, unsigned offset) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        values[i] = values[i] * factor + offset;
    }
}

static void work(int index, uint64_t *hash) {
    std::vector<unsigned> host(kElements), expected(kElements);
    Random(index + 1).fill(host.data(), kElements * sizeof(unsigned));
    expected = host;

    cudaStream_t stream;
    unsigned *device;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&device, kElements * sizeof(unsigned)));
    CHECK(cudaMemcpyAsync(device, host.data(), kElements * sizeof(unsigned), cudaMemcpyHostToDevice, stream));
    for (int round = 0; round < kRounds; round++) {
        const unsigned factor = 2 * round + 3, offset = index * 1000 + round;
        affine<<<8, 128, 0, stream>>>(device, kElements, factor, offset);
        CHECK(cudaGetLastError());
        for (unsigned &value : expected) {
            value = value * factor + offset;
        }
    }
    CHECK(cudaMemcpyAsync(host.data(), device, kElements * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(host == expected);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    *hash = hash_bytes(host.data(), kElements * sizeof(unsigned));
}

int main() {
    uint64_t hashes[kThreads];
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
        threads.emplace_back(work, i, &hashes[i]);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (int i = 0; i < kThreads; i++) {
        std::printf("thread %d: %016llx\n", i, (unsigned long long)hashes[i]);
    }
    return 0;
}
