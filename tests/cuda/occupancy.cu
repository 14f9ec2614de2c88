// SPDX-License-Identifier: Apache-2.0 OR MIT
// Occupancy and function attributes: plausible everywhere, the device's own numbers where there is one.
#include "check.h"

__global__ void __launch_bounds__(256) bounded(float *out) {
    __shared__ float tile[512];
    tile[threadIdx.x] = out[threadIdx.x];
    tile[threadIdx.x + 256] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x] + tile[511 - threadIdx.x];
}

__global__ void dynamic(float *out) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

int main() {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));

    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, bounded));
    std::printf("bounded: %zu bytes shared, up to %d threads\n", attributes.sharedSizeBytes,
                attributes.maxThreadsPerBlock);
    REQUIRE(attributes.sharedSizeBytes == 2048 && attributes.maxThreadsPerBlock == 256);

    int previous = 1 << 30;
    for (int threads : {32, 64, 128, 256}) {
        int blocks = 0;
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, threads, 0));
        REQUIRE(blocks >= 1 && blocks <= previous);
        REQUIRE(blocks * threads <= properties.maxThreadsPerMultiProcessor);
        previous = blocks;
    }
    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded));
    REQUIRE(block >= 32 && block <= 256 && block % 32 == 0);
    REQUIRE(grid >= properties.multiProcessorCount);

    // More shared memory than the default limit must be asked for.
    const int wanted = 96 << 10;
    float *device;
    CHECK(cudaMalloc(&device, 128 * sizeof(float)));
    CHECK(cudaMemset(device, 0, 128 * sizeof(float)));
    int too_early = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&too_early, dynamic, 128, wanted));
    std::printf("blocks with 96 KiB of shared memory, not asked for: %d\n", too_early);
    dynamic<<<1, 128, wanted>>>(device);
    std::printf("96 KiB of shared memory, not asked for: %d\n", (int)cudaGetLastError());
    CHECK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted));
    CHECK(cudaFuncGetAttributes(&attributes, dynamic));
    std::printf("dynamic: up to %d bytes\n", attributes.maxDynamicSharedSizeBytes);
    dynamic<<<1, 128, wanted>>>(device);
    std::printf("asked for: %d\n", (int)cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    int with_little = 0, with_much = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with_little, dynamic, 128, 1 << 10));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&with_much, dynamic, 128, wanted));
    REQUIRE(with_much >= 1 && with_much <= 2 && with_little > with_much);
    std::printf("one bounded block more than fits: %d\n",
                (int)cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
    CHECK(cudaFree(device));
    return 0;
}
