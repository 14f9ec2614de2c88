// SPDX-License-Identifier: Apache-2.0 OR MIT
// A kernel writes to an illegal address: this process gets cudaErrorIllegalAddress (700) from then on.
#include "check.h"

__global__ void bad(int *address) { *address = 1; }
__global__ void good(int *address) { *address = 2; }

int main() {
    int *device, *other = nullptr, host = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    good<<<1, 1>>>(device);
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    std::printf("good kernel: %d\n", host);

    bad<<<1, 1>>>(reinterpret_cast<int *>(0x10));
    CHECK(cudaGetLastError());
    std::printf("synchronize: %d\n", (int)cudaDeviceSynchronize());
    std::printf("last error: %d\n", (int)cudaGetLastError());
    std::printf("synchronize again: %d\n", (int)cudaDeviceSynchronize());
    std::printf("malloc: %d\n", (int)cudaMalloc(&other, 4));
    std::printf("memcpy: %d\n", (int)cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    good<<<1, 1>>>(device);
    std::printf("launch: %d\n", (int)cudaGetLastError());
    std::printf("free: %d\n", (int)cudaFree(device));
    return 0;
}
