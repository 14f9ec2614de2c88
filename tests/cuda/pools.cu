// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory in stream order, from the device's pool and from pools of one's own.
#include "check.h"

#include <vector>

__global__ void add(int *memory, int n, int value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        memory[i] = memory[i] * 2 + value;
    }
}

static int run(cudaMemPool_t pool, cudaStream_t stream, int n) {
    int *memory;
    const size_t bytes = n * sizeof(int);
    CHECK(pool ? cudaMallocFromPoolAsync(&memory, bytes, pool, stream) : cudaMallocAsync(&memory, bytes, stream));
    CHECK(cudaMemsetAsync(memory, 1, bytes, stream));
    add<<<(n + 255) / 256, 256, 0, stream>>>(memory, n, 5);
    std::vector<int> back(n);
    CHECK(cudaMemcpyAsync(back.data(), memory, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamSynchronize(stream));
    int wrong = 0;
    for (int value : back) {
        wrong += value != 0x01010101 * 2 + 5;
    }
    return wrong;
}

static uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr number) {
    uint64_t value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, number, &value));
    return value;
}

int main() {
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    std::printf("supported: %d\n", supported);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t pool, same, mine;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaDeviceGetMemPool(&same, 0));
    std::printf("default is current: %d\n", pool == same);
    std::printf("default pool: %d wrong\n", run(nullptr, stream, 100000));
    for (int round = 0; round < 20; round++) {
        REQUIRE(run(nullptr, stream, 1000 << (round % 8)) == 0);
    }

    uint64_t threshold = 1 << 20;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    std::printf("threshold: %llu\n", (unsigned long long)attribute(pool, cudaMemPoolAttrReleaseThreshold));
    int reuse = 0;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
    reuse = 9;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
    std::printf("reuse: %d\n", reuse);

    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CHECK(cudaMemPoolCreate(&mine, &props));
    std::printf("own pool: %d wrong\n", run(mine, stream, 50000));
    void *held;
    CHECK(cudaMallocFromPoolAsync(&held, 3 << 20, mine, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("used: %d\n", attribute(mine, cudaMemPoolAttrUsedMemCurrent) >= 3 << 20);
    std::printf("reserved: %d\n",
                attribute(mine, cudaMemPoolAttrReservedMemCurrent) >= attribute(mine, cudaMemPoolAttrUsedMemCurrent));
    CHECK(cudaFreeAsync(held, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolTrimTo(mine, 0));
    std::printf("used after: %llu\n", (unsigned long long)attribute(mine, cudaMemPoolAttrUsedMemCurrent));
    std::printf("reserved after: %llu\n", (unsigned long long)attribute(mine, cudaMemPoolAttrReservedMemCurrent));

    cudaMemAccessFlags access;
    CHECK(cudaMemPoolGetAccess(&access, mine, &props.location));
    std::printf("access: %d\n", (int)access);
    CHECK(cudaDeviceSetMemPool(0, mine));
    CHECK(cudaDeviceGetMemPool(&same, 0));
    std::printf("own is current: %d, %d wrong\n", same == mine, run(nullptr, stream, 777));
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaMemPoolDestroy(mine));
    CHECK(cudaDeviceGetMemPool(&same, 0));
    std::printf("default is current: %d\n", pool == same);
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
