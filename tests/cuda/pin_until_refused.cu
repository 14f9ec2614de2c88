// SPDX-License-Identifier: Apache-2.0 OR MIT
// Allocates page-locked memory until it is refused, or until it has the given number of MiB (default 64); then all of
// what it got must work and be freed. A second number is of MiB that it asks for at once before, and must not get.
#include "check.h"

#include <vector>

__global__ void increment(int *value) { ++*value; }

int main(int argc, char **argv) {
    const int most = argc > 1 ? std::atoi(argv[1]) : 64;
    if (argc > 2) {
        void *all = nullptr;
        REQUIRE(cudaMallocHost(&all, (size_t)std::atoi(argv[2]) << 20) == cudaErrorMemoryAllocation);
        (void)cudaGetLastError();
    }
    std::vector<int *> got;
    cudaError_t error = cudaSuccess;
    while ((int)got.size() < most) {
        int *memory = nullptr;
        error = cudaMallocHost((void **)&memory, 1 << 20);
        if (error != cudaSuccess) {
            break;
        }
        *memory = (int)got.size();
        got.push_back(memory);
    }
    std::printf("%zu MiB, %s %d\n", got.size(), error == cudaSuccess ? "ended with" : "refused with", (int)error);
    (void)cudaGetLastError();
    for (size_t i = 0; i < got.size(); i++) {
        increment<<<1, 1>>>(got[i]);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    for (size_t i = 0; i < got.size(); i++) {
        REQUIRE(*got[i] == (int)i + 1);
        CHECK(cudaFreeHost(got[i]));
    }
    return 0;
}
